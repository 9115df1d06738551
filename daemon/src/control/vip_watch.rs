//! Addresses that match a request, and what changes of them.

use std::collections::BTreeSet;

use purelb_core::shared_table::SharedTable;
use purelb_core::snapshot::{Snapshot, VipView};
use purelb_core::{Mono, Vip};
use purelb_proto::control::v1 as pb;
use tonic::Status;

use super::convert;

#[derive(Debug, Default)]
pub struct VipFilter {
    ips: BTreeSet<Vip>,
    namespace: String,
    service: String,
    reasons: BTreeSet<i32>,
}

impl VipFilter {
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
            && (self.reasons.is_empty() || self.reasons.contains(&convert::reason_code(&view.reason).into()))
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
pub struct SentVips {
    views: Option<SharedTable<VipView>>,
}

impl SentVips {
    /// What is new since; `None` = nothing.
    pub fn changes_since_last(
        &mut self,
        filter: &VipFilter,
        snapshot: &Snapshot,
        now: Mono,
    ) -> Option<pb::WatchVipsResponse> {
        let initial = self.views.is_none();
        let before = self.views.replace(snapshot.vips.clone()).unwrap_or_default();
        let (mut changed, mut removed) = (Vec::new(), Vec::new());
        for (was, is) in snapshot.vips.changes_since(&before) {
            let (was, is) = (was.filter(|v| filter.matches(v)), is.filter(|v| filter.matches(v)));
            match (was, is) {
                (_, Some(is)) => changed.push(convert::vip(is, now)),
                (Some(was), None) => removed.push(was.vip.to_string()),
                (None, None) => {}
            }
        }
        let quiet = changed.is_empty() && removed.is_empty() && !initial;
        (!quiet).then_some(pb::WatchVipsResponse { changed, removed, initial })
    }
}
