//! `Drain`: follows the snapshots until the node holds nothing it can give away.

use std::collections::{BTreeMap, BTreeSet};

use pb::DrainResult as R;
use purelb_core::facts::PoolType;
use purelb_core::snapshot::{FenceView, Snapshot, VipView};
use purelb_core::{NodeName, Reason, Vip};
use purelb_proto::control::v1 as pb;

use super::convert::reason_text;

/// An address that is here, or that we still answer for.
pub fn is_held(view: &VipView) -> bool {
    view.on_interface.is_some()
        || matches!(
            view.reason,
            Reason::Announcing { .. } | Reason::Riding { .. } | Reason::HandingOver { .. }
        )
}

/// It stays, because nobody else can take it.
fn stays(view: &VipView) -> bool {
    // A remote address that goes on being announced has no other node to be on.
    let goes_on = matches!(view.reason, Reason::Announcing { .. }) && view.pool == PoolType::Remote;
    goes_on || view.reason.held()
}

#[derive(Debug)]
pub struct DrainTracker {
    total: u32,
    held: BTreeMap<Vip, pb::DrainVip>,
    /// Was here when the drain began or since, and is not any more.
    given: BTreeSet<Vip>,
    /// What nobody else can take goes as well.
    force: bool,
    last_message: Option<String>,
}

impl DrainTracker {
    pub fn new(snapshot: &Snapshot, force: bool) -> Self {
        let held = held(snapshot);
        let total = u32::try_from(held.len()).unwrap_or(u32::MAX);
        Self { total, held, given: BTreeSet::new(), force, last_message: None }
    }

    /// What to say of a snapshot; `None` = nothing new. A result ends the stream.
    pub fn next_message(&mut self, snapshot: &Snapshot) -> Option<pb::DrainProgress> {
        let now = held(snapshot);
        let gone = self.held.iter().filter(|(vip, _)| !now.contains_key(vip));
        let (vips, gone): (Vec<Vip>, Vec<pb::DrainVip>) = gone.map(|(vip, v)| (*vip, v.clone())).unzip();
        self.given.extend(vips);
        self.given.retain(|vip| !now.contains_key(vip));
        let waits = self.waits_for(snapshot);
        let result = result(snapshot).filter(|r| *r != R::Drained || waits.is_none());
        // What came in meanwhile (a Service, say) counts, too.
        let new = now.keys().filter(|vip| !self.held.contains_key(vip)).count();
        self.total = self.total.saturating_add(u32::try_from(new).unwrap_or(u32::MAX));
        let left = u32::try_from(now.len()).unwrap_or(u32::MAX);
        let message = match result {
            Some(R::Drained) => drained_words(snapshot),
            Some(R::AddressesLeft) => format!("{left} addresses stay: no other node can take them"),
            Some(R::Undrained) => "somebody took the drain back".into(),
            Some(R::DaemonStopping) => "the daemon stops; it drains again when it starts".into(),
            _ => {
                let waits = waits.map(|w| format!("; {w}")).unwrap_or_default();
                format!("{left} of {} addresses to go{waits}", self.total)
            }
        };
        let said = self.last_message.as_ref() == Some(&message);
        if gone.is_empty() && now == self.held && result.is_none() && said {
            return None;
        }
        self.last_message = Some(message.clone());
        let progress = self.message(
            now.values().cloned().collect(),
            gone,
            result.unwrap_or_default(),
            message,
            snapshot,
        );
        self.held = now;
        Some(progress)
    }

    /// Given away, and nobody says yet that it has it. A node that is fenced cannot know.
    fn waits_for(&self, snapshot: &Snapshot) -> Option<String> {
        if matches!(snapshot.fence, FenceView::Fenced { .. }) {
            return None;
        }
        let views = snapshot.vips.iter().filter(|v| v.pool == PoolType::Local && self.given.contains(&v.vip));
        let mut open = views.filter(|v| match &v.winner {
            Some(winner) => *winner != snapshot.node && !has_it(snapshot, v, winner),
            None => !self.force,
        });
        let first = open.next()?;
        let who = first
            .winner
            .as_ref()
            .map_or_else(|| "a node that can take".to_owned(), |w| format!("{w} to announce"));
        let more = match open.count() {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        Some(format!("waiting for {who} {}{more}", first.vip))
    }

    pub fn timed_out(&self, snapshot: &Snapshot) -> pb::DrainProgress {
        let remaining = self.held.values().cloned().collect();
        let message = "the time is over; the drain goes on by itself".to_owned();
        self.message(remaining, Vec::new(), R::TimedOut, message, snapshot)
    }

    fn message(
        &self,
        remaining: Vec<pb::DrainVip>,
        gone: Vec<pb::DrainVip>,
        result: R,
        message: String,
        snapshot: &Snapshot,
    ) -> pb::DrainProgress {
        let left = u32::try_from(remaining.len()).unwrap_or(u32::MAX);
        pb::DrainProgress {
            total: self.total,
            moved: self.total.saturating_sub(left),
            remaining,
            gone,
            result: result.into(),
            message,
            dry_run: false,
            since: snapshot.draining.clone().unwrap_or_default(),
        }
    }
}

/// Its Lease lists the address; one of the older format says so on the Service.
fn has_it(snapshot: &Snapshot, view: &VipView, node: &NodeName) -> bool {
    let member = snapshot.members.iter().find(|m| m.node == *node);
    match member.map(|m| &m.announced) {
        Some(Some(announced)) => announced.contains(&view.vip),
        Some(None) => view.slot.as_ref() == Some(node),
        None => false,
    }
}

fn held(snapshot: &Snapshot) -> BTreeMap<Vip, pb::DrainVip> {
    let held = snapshot.vips.iter().filter(|v| is_held(v));
    held.map(|v| (v.vip, vip(v, successor(v)))).collect()
}

fn successor(view: &VipView) -> String {
    match &view.reason {
        Reason::HandingOver { to } | Reason::NotWinner { winner: to } => to.to_string(),
        _ => view.winner.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

pub fn vip(view: &VipView, successor: String) -> pb::DrainVip {
    pb::DrainVip {
        ip: view.vip.to_string(),
        services: view.services.iter().map(ToString::to_string).collect(),
        successor,
        reason: reason_text(&view.reason),
    }
}

fn result(snapshot: &Snapshot) -> Option<R> {
    if snapshot.stopping {
        return Some(R::DaemonStopping);
    }
    if snapshot.draining.is_none() {
        return Some(R::Undrained);
    }
    let mut held = snapshot.vips.iter().filter(|v| is_held(v)).peekable();
    if held.peek().is_none() {
        return others_know(snapshot).then_some(R::Drained);
    }
    held.all(stays).then_some(R::AddressesLeft)
}

/// Our Lease says that we drain. Without an API server it cannot, and we hold nothing
/// that anybody would wait for.
fn others_know(snapshot: &Snapshot) -> bool {
    let fenced = matches!(snapshot.fence, FenceView::Fenced { .. });
    fenced || snapshot.members.iter().any(|m| m.node == snapshot.node && m.draining)
}

fn drained_words(snapshot: &Snapshot) -> String {
    match &snapshot.fence {
        FenceView::Healthy { .. } => "this node holds no addresses".into(),
        FenceView::Fenced { cause } => {
            format!(
                "this node holds no addresses; its Lease cannot say that it drains ({cause}), and will when it can"
            )
        }
    }
}

#[cfg(test)]
mod tests;
