//! `Explain`: every step from Service to packet, as this node sees it.

use pb::StepState as S;
use purelb_core::election::RankedCandidate;
use purelb_core::facts::PoolType;
use purelb_core::rank::Rank;
use purelb_core::reason::PendingCause;
use purelb_core::snapshot::{ConfigStatus, FenceView, MemberView, Snapshot, VipView, WatchState};
use purelb_core::{Reason, Vip};
use purelb_proto::control::v1 as pb;

use super::convert::{self, reason_text};

struct ExplainedSteps {
    steps: Vec<pb::Step>,
    stopped: Option<(String, String)>,
}

impl ExplainedSteps {
    fn step(&mut self, title: &str, state: S, detail: impl Into<String>) {
        self.steps.push(pb::Step { title: title.into(), state: state.into(), detail: detail.into() });
    }

    /// Here it does not go on: the first such step is the answer.
    fn fail(&mut self, title: &str, detail: impl Into<String>, advice: impl Into<String>) {
        let detail = detail.into();
        self.step(title, S::StepFailed, detail.clone());
        self.stopped.get_or_insert((detail, advice.into()));
    }
}

/// `order`: everyone who may win, best first.
pub fn explain_address(snapshot: &Snapshot, vip: Vip, order: &[RankedCandidate]) -> pb::Explanation {
    let mut story = ExplainedSteps { steps: Vec::new(), stopped: None };
    let view = snapshot.vips.get(&vip);
    service(&mut story, snapshot, vip, view);
    sources_listed(&mut story, snapshot);
    let local = view.is_none_or(|v| v.pool == PoolType::Local);
    if local {
        candidates(&mut story, snapshot, vip, order);
        winner(&mut story, snapshot, order);
        segment(&mut story, snapshot, view);
    }
    let announced = view.is_some_and(|v| here(&mut story, snapshot, v, local));
    let election = local.then(|| convert::election(vip, order));
    let (summary, advice) = story.stopped.unwrap_or_else(|| {
        let text = view.map_or_else(|| "no Service has the address".to_owned(), |v| reason_text(&v.reason));
        (text, String::new())
    });
    pb::Explanation { ip: vip.to_string(), steps: story.steps, summary, advice, announced, election }
}

fn service(story: &mut ExplainedSteps, snapshot: &Snapshot, vip: Vip, view: Option<&VipView>) {
    let Some(view) = view else {
        let advice = format!(
            "look for a Service with it (`kubectl get services -A | grep {vip}`): it must be of our class and carry purelb.io/allocated-by: PureLB"
        );
        return story.fail("Service", format!("no Service of ours has {vip}"), advice);
    };
    let names: Vec<&str> = view.services.iter().map(|s| s.as_str()).collect();
    story.step("Service", S::StepOk, names.join(", "));
    let kind = match view.pool {
        PoolType::Local => "local: one elected node has it on a real interface",
        PoolType::Remote => "remote: every node has it on the dummy interface",
    };
    match &view.group {
        Some(name) if snapshot.groups.iter().any(|g| g.name == *name) => {
            story.step("Pool", S::StepOk, format!("ServiceGroup {name}, {kind}"));
        }
        Some(name) => story.step(
            "Pool",
            S::StepNote,
            format!("ServiceGroup {name}, which is not there any more; {kind}"),
        ),
        None => story.step("Pool", S::StepNote, kind),
    }
}

/// What must hold before this node decides anything.
fn sources_listed(story: &mut ExplainedSteps, snapshot: &Snapshot) {
    if snapshot.unsynced.is_empty() {
        story.step("Picture", S::StepOk, "everything is listed and dumped");
    } else {
        let names: Vec<String> = snapshot.unsynced.iter().map(ToString::to_string).collect();
        let advice =
            "wait; if it lasts, check the API server and the daemon's rights (journalctl -u purelbd)";
        story.fail("Picture", format!("not listed completely yet: {}", names.join(", ")), advice);
    }
    match &snapshot.config_status {
        ConfigStatus::Configured => {
            story.step("Configuration", S::StepOk, "an LBNodeAgent selects this node")
        }
        ConfigStatus::Defaults => {
            story.step("Configuration", S::StepOk, "there is no LBNodeAgent: the defaults are in force");
        }
        ConfigStatus::NotSelected => {
            story.step(
                "Configuration",
                S::StepNote,
                "no LBNodeAgent selects this node: it announces nothing",
            );
        }
        ConfigStatus::Rejected(p) => {
            story.step(
                "Configuration",
                S::StepNote,
                format!("LBNodeAgent {} is invalid: {}: {}", p.object, p.field, p.message),
            );
        }
    }
}

fn place(ranked: &RankedCandidate) -> String {
    match ranked.rank {
        Rank::First => ranked.node.to_string(),
        Rank::Last => format!("{} (last: the cluster calls its Node not well)", ranked.node),
    }
}

fn candidates(story: &mut ExplainedSteps, snapshot: &Snapshot, vip: Vip, order: &[RankedCandidate]) {
    let has_subnet = |m: &&MemberView| m.subnets.iter().any(|net| net.contains(&vip.ip()));
    let mut out = Vec::new();
    for member in snapshot.members.iter().filter(has_subnet) {
        if order.iter().any(|r| r.node == member.node) {
            continue;
        }
        let why = match member {
            m if !m.live => "its Lease is not renewed",
            m if m.out_of_service => "out of service",
            m if m.draining => "draining",
            m if m.excluded => "kept off by the label on its Node",
            m if m.declined.contains(&vip) => "declined it: it cannot put it on its interface",
            _ => "no endpoint that takes traffic there",
        };
        out.push(format!("{} ({why})", member.node));
    }
    let note = if out.is_empty() { String::new() } else { format!("; not {}", out.join(", ")) };
    if !order.is_empty() {
        let names: Vec<String> = order.iter().map(place).collect();
        return story.step("Candidates", S::StepOk, format!("{}{note}", names.join(", ")));
    }
    let nets: Vec<String> =
        snapshot.candidates.iter().filter(|(_, n)| **n > 0).map(|(net, _)| net.to_string()).collect();
    let have = if nets.is_empty() { "none".to_owned() } else { nets.join(", ") };
    if out.is_empty() {
        let detail = format!("no live node advertises a subnet that contains {vip}");
        let advice = format!(
            "subnets with candidates: {have}; give a node an address in the pool's subnet, let its LBNodeAgent name the interface, or make the pool remote"
        );
        story.fail("Candidates", detail, advice);
    } else {
        let advice = "bring one of them back: `purelbctl undrain` there, the Node without the label, a ready pod of the Service, or a running daemon";
        story.fail("Candidates", format!("nobody can take it{note}"), advice);
    }
}

fn winner(story: &mut ExplainedSteps, snapshot: &Snapshot, order: &[RankedCandidate]) {
    let Some(first) = order.first() else { return };
    let of = match order {
        [_] => "the only candidate".to_owned(),
        [_, next, ..] => format!("lowest score of {}; {} is next", order.len(), next.node),
        [] => String::new(),
    };
    let me = if first.node == snapshot.node { " (this node)" } else { "" };
    story.step("Winner", S::StepOk, format!("{}{me}, {of}", first.node));
}

/// What the segment says of the one that should have the address, where this node asks it.
fn segment(story: &mut ExplainedSteps, snapshot: &Snapshot, view: Option<&VipView>) {
    let winner = view.and_then(|view| view.winner.as_ref()).filter(|winner| **winner != snapshot.node);
    let Some(winner) = winner else { return };
    for (interface, segment) in &*snapshot.segments {
        let Some(watch) = segment.watched.iter().find(|watch| watch.owner == *winner) else { continue };
        let state = match watch.state {
            WatchState::Answering => S::StepOk,
            _ => S::StepNote,
        };
        let said = convert::watch_text(watch.state);
        story.step("Segment", state, format!("asked on {interface}, {winner} {said}"));
    }
}

/// This node's own part; whether somebody announces the address.
fn here(story: &mut ExplainedSteps, snapshot: &Snapshot, view: &VipView, local: bool) -> bool {
    if local {
        match &snapshot.fence {
            FenceView::Healthy { .. } => story.step("Lease", S::StepOk, "renewed in time"),
            FenceView::Fenced { cause } => {
                let advice = "check that the API server can be reached from here (journalctl -u purelbd)";
                story.step("Lease", S::StepNote, format!("fenced: {cause}"));
                if matches!(view.reason, Reason::Fenced { .. }) {
                    story.stopped.get_or_insert((reason_text(&view.reason), advice.into()));
                }
            }
        }
    }
    match &view.on_interface {
        Some(interface) => story.step("Kernel", S::StepOk, format!("on {interface}")),
        None => story.step("Kernel", S::StepNote, "not on this node"),
    }
    match &view.reason {
        Reason::Announcing { .. } => {
            story.step("Announcement", S::StepOk, reason_text(&view.reason));
            true
        }
        Reason::Riding { .. } => {
            story.step("Announcement", S::StepNote, reason_text(&view.reason));
            true
        }
        Reason::NotWinner { winner } => elsewhere(story, snapshot, view, winner.as_str()),
        Reason::Declined { to: Some(to), .. } => {
            story.step("Declined", S::StepNote, reason_text(&view.reason));
            elsewhere(story, snapshot, view, to.as_str())
        }
        Reason::HandingOver { .. } | Reason::Draining { held: true } | Reason::Excluded { held: true } => {
            story.step("Announcement", S::StepWaiting, reason_text(&view.reason));
            true
        }
        Reason::Pending { missing } => {
            let advice = match missing {
                PendingCause::Sources(_) | PendingCause::Lease => {
                    "wait for the API server; if it lasts, see journalctl -u purelbd"
                }
                _ => "wait a moment; if it lasts, see journalctl -u purelbd",
            };
            story.step("Announcement", S::StepWaiting, reason_text(&view.reason));
            story.stopped.get_or_insert((reason_text(&view.reason), advice.into()));
            false
        }
        reason => {
            let advice = reason.profile().problem.map_or("see journalctl -u purelbd", |p| p.advice);
            story.fail("Announcement", reason_text(reason), advice);
            false
        }
    }
}

/// Another node should have it: does its Lease say so?
fn elsewhere(story: &mut ExplainedSteps, snapshot: &Snapshot, view: &VipView, winner: &str) -> bool {
    let member = snapshot.members.iter().find(|m| m.node.as_str() == winner);
    match member.map(|m| m.announced.as_ref()) {
        Some(Some(announced)) if announced.contains(&view.vip) => {
            story.step("Announcement", S::StepOk, format!("{winner} says in its Lease that it announces it"));
            true
        }
        Some(None) => {
            story.step(
                "Announcement",
                S::StepNote,
                format!("{winner} speaks the older format and does not say what it holds"),
            );
            true
        }
        _ => {
            let advice = format!("ask that node: `purelbctl --node {winner} explain {}`", view.vip);
            story.fail("Announcement", format!("{winner} should have it and does not say so"), advice);
            false
        }
    }
}
