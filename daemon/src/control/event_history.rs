//! A bounded memory of what changed, told from the difference of two snapshots.
//!
//! The ring keeps the newest; older ones are forgotten. A follower that falls behind the
//! broadcast is told how many it missed, and never holds anybody up.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pb::EventKind as K;
use purelb_core::facts::ConfigProblem;
use purelb_core::rank::Rank;
use purelb_core::snapshot::{FenceView, MemberView, Snapshot, VipView};
use purelb_proto::control::v1 as pb;
use tokio::sync::broadcast;

use super::convert::reason_text;

/// Events a follower may be behind.
const FOLLOWER_BACKLOG: usize = 256;

#[derive(Debug)]
pub struct EventHistory {
    ring: Mutex<Ring>,
    news: broadcast::Sender<pb::Event>,
}

#[derive(Debug)]
struct Ring {
    kept: VecDeque<pb::Event>,
    most: usize,
    last: u64,
}

impl EventHistory {
    pub fn new(most: usize) -> Self {
        let ring = Ring { kept: VecDeque::new(), most: most.max(1), last: 0 };
        Self { ring: Mutex::new(ring), news: broadcast::channel(FOLLOWER_BACKLOG).0 }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest, oldest first.
    pub fn newest(&self, most: usize) -> Vec<pb::Event> {
        let ring = self.ring();
        let skip = ring.kept.len().saturating_sub(most);
        ring.kept.iter().skip(skip).cloned().collect()
    }

    /// What is kept after a number, and everything that follows it: nothing between is
    /// lost, since both are taken under one lock.
    pub fn follow(&self, after: u64) -> (Vec<pb::Event>, broadcast::Receiver<pb::Event>) {
        let ring = self.ring();
        let kept = ring.kept.iter().filter(|e| e.sequence > after).cloned().collect();
        (kept, self.news.subscribe())
    }

    pub fn record(&self, before: &Snapshot, after: &Snapshot) {
        let mut found = Vec::new();
        differences(before, after, &mut found);
        if found.is_empty() {
            return;
        }
        let time = crate::engine::handle::rfc3339_now();
        let mut ring = self.ring();
        for mut event in found {
            ring.last += 1;
            event.sequence = ring.last;
            event.time.clone_from(&time);
            if ring.kept.len() == ring.most {
                ring.kept.pop_front();
            }
            ring.kept.push_back(event.clone());
            // Nobody follows: most of the time.
            let _ = self.news.send(event);
        }
    }
}

fn event(kind: K, object: impl ToString, before: impl Into<String>, after: impl Into<String>) -> pb::Event {
    pb::Event {
        kind: kind.into(),
        object: object.to_string(),
        before: before.into(),
        after: after.into(),
        ..pb::Event::default()
    }
}

fn differences(before: &Snapshot, after: &Snapshot, found: &mut Vec<pb::Event>) {
    let fence = |s: &Snapshot| match &s.fence {
        FenceView::Healthy { .. } => "open".to_owned(),
        FenceView::Fenced { cause } => format!("fenced: {cause}"),
    };
    if fence(before) != fence(after) {
        found.push(event(K::FenceChanged, &after.node, fence(before), fence(after)));
    }
    if before.draining != after.draining {
        let words =
            |s: &Snapshot| s.draining.as_ref().map(|d| format!("draining since {d}")).unwrap_or_default();
        found.push(event(K::DrainChanged, &after.node, words(before), words(after)));
    }
    for (was, is) in after.members.changes_since(&before.members) {
        changed(was, is, member, |m, a, b| found.push(event(K::MemberChanged, &m.node, a, b)));
    }
    both(
        &before.problems,
        &after.problems,
        |p| (p.object.clone(), p.field.clone()),
        problem,
        |p, a, b| {
            found.push(event(K::ProblemChanged, format!("{} {}", p.object, p.field), a, b));
        },
    );
    let mut winners = Vec::new();
    for (was, is) in after.vips.changes_since(&before.vips) {
        let reason = |v: &VipView| reason_text(&v.reason);
        changed(was, is, reason, |v, a, b| {
            let mut event = event(K::ReasonChanged, v.vip, a, b);
            event.services = v.services.iter().map(ToString::to_string).collect();
            found.push(event);
        });
        changed(was, is, winner, |v, a, b| winners.push(event(K::WinnerChanged, v.vip, a, b)));
    }
    found.append(&mut winners);
}

/// Tells of one thing if its words differ; no words = it is not there.
fn changed<T>(
    was: Option<&T>,
    is: Option<&T>,
    words: impl Fn(&T) -> String,
    tell: impl FnOnce(&T, String, String),
) {
    let (a, b) = (was.map(&words).unwrap_or_default(), is.map(&words).unwrap_or_default());
    if let Some(thing) = is.or(was)
        && a != b
    {
        tell(thing, a, b);
    }
}

fn problem(p: &ConfigProblem) -> String {
    p.message.clone()
}

fn winner(view: &VipView) -> String {
    view.winner.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// Without what changes all the time: renewals, and what it has announced.
fn member(m: &MemberView) -> String {
    let state = match m {
        m if !m.live => "dead",
        m if m.out_of_service => "out of service",
        m if m.draining => "draining",
        m if m.excluded => "excluded",
        m if m.rank == Rank::Last => "live, ranks last",
        _ => "live",
    };
    let nets: Vec<String> = m.subnets.iter().map(ToString::to_string).collect();
    format!("{state}, {}", if nets.is_empty() { "no subnets".to_owned() } else { nets.join(" ") })
}

/// The same of two short lists.
fn both<T: PartialEq, Id: Ord>(
    before: &[T],
    after: &[T],
    key: impl Fn(&T) -> Id,
    words: impl Fn(&T) -> String,
    mut tell: impl FnMut(&T, String, String),
) {
    let mut old: BTreeMap<Id, &T> = before.iter().map(|t| (key(t), t)).collect();
    for now in after {
        let was = old.remove(&key(now));
        if was == Some(now) {
            continue;
        }
        let (a, b) = (was.map(&words).unwrap_or_default(), words(now));
        if a != b {
            tell(now, a, b);
        }
    }
    for was in old.values() {
        let words = words(was);
        if !words.is_empty() {
            tell(was, words, String::new());
        }
    }
}
