//! Addresses that match a request, and what changes of them.

use std::collections::{BTreeMap, BTreeSet};

use purelb_core::snapshot::{Snapshot, VipView};
use purelb_core::{Mono, Vip};
use purelb_proto::control::v1 as pb;
use tonic::Status;

use super::convert;

#[derive(Debug, Default)]
pub struct Filter {
    ips: BTreeSet<Vip>,
    namespace: String,
    service: String,
    reasons: BTreeSet<i32>,
}

impl Filter {
    pub fn new(request: pb::ListVipsRequest, most: usize) -> Result<Self, Status> {
        Ok(Self {
            ips: addresses(&request.ips, most)?.into_iter().collect(),
            namespace: request.namespace,
            service: request.service,
            reasons: request.reasons.into_iter().collect(),
        })
    }

    fn matches(&self, view: &VipView) -> bool {
        (self.ips.is_empty() || self.ips.contains(&view.vip))
            && (self.namespace.is_empty() || view.services.iter().any(|s| s.namespace() == self.namespace))
            && (self.service.is_empty() || view.services.iter().any(|s| s.as_str() == self.service))
            && (self.reasons.is_empty() || self.reasons.contains(&convert::code(&view.reason).into()))
    }

    pub fn list(&self, snapshot: &Snapshot, now: Mono) -> Vec<pb::Vip> {
        snapshot.vips.iter().filter(|v| self.matches(v)).map(|v| convert::vip(v, now)).collect()
    }
}

pub fn addresses(texts: &[String], most: usize) -> Result<Vec<Vip>, Status> {
    if texts.len() > most {
        return Err(Status::invalid_argument(format!(
            "at most {most} addresses in one request, not {}",
            texts.len()
        )));
    }
    let parsed = texts.iter().map(|t| t.parse::<Vip>());
    parsed.collect::<Result<_, _>>().map_err(|e| Status::invalid_argument(e.to_string()))
}

/// What a reader was told last.
#[derive(Debug, Default)]
pub struct Told {
    views: Option<BTreeMap<Vip, VipView>>,
}

impl Told {
    /// What is new since; `None` = nothing.
    pub fn differ(
        &mut self,
        filter: &Filter,
        snapshot: &Snapshot,
        now: Mono,
    ) -> Option<pb::WatchVipsResponse> {
        let initial = self.views.is_none();
        let before = self.views.get_or_insert_default();
        let mut removed: BTreeSet<Vip> = before.keys().copied().collect();
        let mut changed = Vec::new();
        for view in snapshot.vips.iter().filter(|v| filter.matches(v)) {
            removed.remove(&view.vip);
            if before.get(&view.vip) != Some(view) {
                changed.push(convert::vip(view, now));
                before.insert(view.vip, view.clone());
            }
        }
        for vip in &removed {
            before.remove(vip);
        }
        let quiet = changed.is_empty() && removed.is_empty() && !initial;
        let removed = removed.iter().map(ToString::to_string).collect();
        (!quiet).then_some(pb::WatchVipsResponse { changed, removed, initial })
    }
}
