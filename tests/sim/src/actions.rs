//! What an actor outside the daemons does: administrators, hardware, networks, users.
//! Which of them act, and how often, is the profile's choice.

use ipnet::IpNet;
use purelb_core::messages::{ShutdownMode, Source};
use purelb_core::{IfIndex, ObjectKey};

use crate::queue::{MS, SEC, SimEvent, T};
use crate::setup::Profile;
use crate::wire_faults::WireFault;
use crate::world::{Phase, World};

#[derive(Clone, Debug)]
pub struct Action {
    /// Void once a new epoch began: everything was healed in between.
    pub epoch: u64,
    pub what: ActionKind,
}

#[derive(Clone, Debug)]
pub enum ActionKind {
    /// Choose something to do, and plan the next choice.
    Choose,
    Crash(usize),
    Start(usize),
    Stop(usize, ShutdownMode),
    Drain(usize),
    Undrain(usize),
    PowerOff(usize),
    PowerOn(usize),
    Pause(usize, T),
    Resume(usize),
    /// Stopped between its next decision and what follows from it.
    StallStep(usize, T),
    /// The whole machine stands still; its clock with it, or not.
    Freeze(usize, T, bool),
    Thaw(usize),
    /// Changes wait before they are sent to the kernel.
    Busy(usize, T),
    /// Restarted with the timers that everybody is to have from now on.
    Retime(usize),
    LeaseEdited(usize),
    Cut(usize, T),
    Uncut(usize),
    Deaf(usize, T),
    Hears(usize),
    Stall(usize, Source, T),
    Unstall(usize, Source),
    Break(usize, Source),
    Outage(T),
    OutageEnd,
    Slow(T, T),
    SlowEnd,
    Errors(u64, T),
    ErrorsEnd,
    Carrier(usize, IfIndex, T),
    LinkDown(usize, IfIndex, T),
    /// Without its carrier, and administratively up or not.
    LinkLost(usize, IfIndex, bool),
    LinkBack(usize, IfIndex),
    Flap(usize, IfIndex, u32),
    FlapEnd(usize),
    OwnAddress(usize, IfIndex, IpNet),
    OwnAddressGone(usize, IfIndex, IpNet),
    Stranger(usize, IfIndex, IpNet, T),
    StrangerGone(usize, IfIndex, IpNet),
    TakeByHand(usize, usize),
    Overrun(usize, T),
    OverrunEnd(usize),
    Refuse(usize, Option<usize>, T),
    RefuseEnd(usize),
    Mute(usize, T),
    MuteEnd(usize),
    LeaseDeleted(usize),
    LeaseTaken(usize),
    NodeDeleted(usize),
    NodeCreated(usize),
    CollectLease(usize, String),
    Vouch(usize),
    /// Kept off by its label, or no longer.
    Label(usize),
    /// NotReady for a while.
    Unwell(usize, T),
    Well(usize),
    DummyRemoved(usize),
    ClockJump(usize),
    Resync(usize),
    /// What was in the way is gone, and whoever mended it says so.
    Mended(usize),
    Ask,
    Join(usize),
    Service,
    Endpoints,
    EndpointsOf(ObjectKey),
    CollectSlices(ObjectKey),
    Agent,
    AgentRepaired,
    Wire(WireFault),
}

/// Everything an actor can do, by the part of the world it belongs to.
const PLANNED: [&str; 10] =
    ["drain", "undrain", "label", "unwell", "stop", "upgrade", "crash-quick", "reboot", "join", "resync"];
const API: [&str; 18] = [
    "deaf",
    "deaf",
    "deaf-kind",
    "lease-edited",
    "stall-step",
    "freeze",
    "cut",
    "stall",
    "break",
    "outage",
    "slow",
    "errors",
    "lease-deleted",
    "lease-taken",
    "node-deleted",
    "label",
    "unwell",
    "pause",
];
const NETWORK: [&str; 15] = [
    "refuse-for-good",
    "busy",
    "stall-step",
    "carrier",
    "link-down",
    "flap",
    "own-address",
    "stranger",
    "take-by-hand",
    "overrun",
    "refuse",
    "mute",
    "dummy-removed",
    "clock-jump",
    "pause",
];
/// What can be wrong with a segment, and machines that stand still for a moment.
const WIRE: [&str; 10] = [
    "lossy",
    "one-way",
    "split",
    "port-dead",
    "squat",
    "drops",
    "power-loss",
    "freeze-5s",
    "power-loss",
    "port-dead",
];
const CHURN: [&str; 6] = ["service", "service", "endpoints", "endpoints", "agent", "take-by-hand"];
const MACHINES: [&str; 6] = ["crash", "power-loss", "vouch", "crash-quick", "freeze", "start-slow"];

/// A watch that is silent for this long is opened anew.
const IDLE_WATCH: T = 150 * SEC;

impl World {
    pub fn plan(&mut self, after: T, what: ActionKind) {
        let action = Action { epoch: self.epoch, what };
        self.queue.push(self.now + after, SimEvent::Act(Box::new(action)));
    }

    fn menu(&mut self) -> &'static str {
        let roll = self.rng.below(100);
        let from: &[&'static str] = match self.setup.profile {
            Profile::Calm if roll < 30 => &["ask", "clock-jump", "resync"],
            Profile::Calm => &["service", "endpoints", "ask", "take-by-hand"],
            Profile::FaultyApi if roll < 75 => &API,
            Profile::FaultyApi if roll < 90 => &MACHINES,
            Profile::FaultyApi => &["drain", "service", "ask", "clock-jump", "undrain"],
            Profile::Network if roll < 85 => &NETWORK,
            Profile::Network => &["service", "ask", "drain", "undrain", "crash-quick"],
            Profile::Churn if roll < 90 => &CHURN,
            Profile::Churn => &["ask", "join", "drain", "undrain", "upgrade"],
            Profile::Rolling | Profile::Mixed if roll < 80 => &PLANNED,
            Profile::Rolling | Profile::Mixed => &["service", "endpoints", "ask", "agent"],
            Profile::Segment if roll < 70 => &WIRE,
            Profile::Segment if roll < 80 => &MACHINES,
            Profile::Segment => &["ask", "cut", "drain", "undrain", "upgrade", "crash-quick", "service"],
            Profile::Outage if self.api.outage => match roll {
                0..40 => &["power-loss", "crash", "crash-quick", "upgrade", "start-slow", "reboot"],
                40..55 => &["ask", "take-by-hand", "freeze-5s"],
                55..75 => &WIRE,
                75..85 => &NETWORK,
                _ => &["ask"],
            },
            Profile::Outage if roll < 35 => &["long-outage"],
            Profile::Outage if roll < 60 => &["cut", "cut", "lease-taken", "node-deleted", "lease-deleted"],
            Profile::Outage => &["service", "endpoints", "ask", "power-loss", "crash"],
            Profile::Everything => match roll {
                0..20 => &API,
                20..40 => &NETWORK,
                40..50 => &WIRE,
                50..65 => &CHURN,
                65..80 => &PLANNED,
                80..95 => &MACHINES,
                _ => &["ask"],
            },
        };
        self.rng.pick(from).copied().unwrap_or("ask")
    }

    pub fn act(&mut self, action: Action) {
        if action.epoch != self.epoch {
            return;
        }
        if !matches!(action.what, ActionKind::Choose) {
            self.perform(action.what);
            return;
        }
        let Phase::Active { until, .. } = self.phase else {
            return;
        };
        self.stats.actions += 1;
        let word = self.menu();
        if let Some(what) = self.choose(word) {
            self.perform(what);
        }
        let pace = self.setup.pace;
        let after = self.rng.range(pace / 4, pace * 7 / 4);
        if self.now + after < until {
            self.plan(after, ActionKind::Choose);
        }
    }

    fn some_node(&mut self, fits: impl Fn(&crate::node::Node) -> bool) -> Option<usize> {
        let nodes: Vec<usize> = (0..self.nodes.len()).filter(|n| fits(&self.nodes[*n])).collect();
        self.rng.pick(&nodes).copied()
    }

    fn some_port(&mut self, node: usize) -> Option<(IfIndex, usize)> {
        let ports = self.nodes[node].ports.clone();
        self.rng.pick(&ports).copied()
    }

    /// From a fraction of a second to several lease durations.
    fn some_while(&mut self) -> T {
        let duration = self.setup.duration();
        match self.rng.below(4) {
            0 => self.rng.range(50 * MS, 2 * SEC),
            1 => self.rng.range(SEC, duration),
            2 => self.rng.range(duration / 2, duration * 3 / 2),
            _ => self.rng.range(duration, duration * 3),
        }
    }

    fn choose(&mut self, word: &str) -> Option<ActionKind> {
        let running = |n: &crate::node::Node| n.process.as_ref().is_some_and(|p| p.stopping.is_none());
        let wait = self.some_while();
        Some(match word {
            "drain" => ActionKind::Drain(self.some_node(running)?),
            "undrain" => ActionKind::Undrain(self.some_node(|n| n.drain.is_some())?),
            "stop" => ActionKind::Stop(self.some_node(running)?, ShutdownMode::Graceful),
            "upgrade" => ActionKind::Stop(self.some_node(running)?, ShutdownMode::Leave),
            "crash" => ActionKind::Crash(self.some_node(running)?),
            "crash-quick" => {
                let node = self.some_node(running)?;
                self.crash_quick(node);
                return None;
            }
            "reboot" => {
                let node = self.some_node(running)?;
                self.shut_down(node, ShutdownMode::Graceful);
                self.plan(9 * SEC, ActionKind::PowerOff(node));
                return None;
            }
            "lossy" | "one-way" | "split" | "port-dead" | "squat" | "drops" => {
                ActionKind::Wire(self.some_wire_fault(word)?)
            }
            "freeze-5s" => {
                let node = self.some_node(|n| n.powered && n.joined && !n.legacy)?;
                let clock_runs = self.rng.percent(50);
                let wait = self.rng.range(4 * SEC, 6 * SEC);
                ActionKind::Freeze(node, wait, clock_runs)
            }
            "long-outage" => {
                let Phase::Active { until, .. } = self.phase else { return None };
                let left = until.saturating_sub(self.now + 10 * SEC);
                let wait = self.rng.range(60 * SEC, 360 * SEC).min(left);
                ActionKind::Outage(wait)
            }
            "power-loss" => ActionKind::PowerOff(self.some_node(|n| n.powered && n.joined && !n.legacy)?),
            "join" => ActionKind::Join(self.some_node(|n| !n.joined)?),
            "resync" => ActionKind::Resync(self.some_node(running)?),
            "deaf" => ActionKind::Deaf(self.some_node(running)?, wait),
            // One kind, for minutes: until the watch's own idle limit ends it.
            "deaf-kind" => {
                let source = *self.rng.pick(&crate::node::WATCHED[..5])?;
                let wait = self.rng.range(20 * SEC, IDLE_WATCH);
                ActionKind::Stall(self.some_node(running)?, source, wait)
            }
            "lease-edited" => ActionKind::LeaseEdited(self.some_node(running)?),
            "stall-step" => ActionKind::StallStep(self.some_node(running)?, wait),
            "freeze" => {
                let clock_runs = self.rng.percent(50);
                ActionKind::Freeze(self.some_node(|n| n.powered && n.joined && !n.legacy)?, wait, clock_runs)
            }
            "busy" => ActionKind::Busy(self.some_node(running)?, wait.min(8 * SEC)),
            "refuse-for-good" => {
                let v = self.rng.below(self.truth.vips.len() as u64) as usize;
                ActionKind::Refuse(self.some_node(running)?, Some(v), 600 * SEC)
            }
            "start-slow" => {
                let node = self.some_node(running)?;
                self.nodes[node].slow_start = true;
                ActionKind::Crash(node)
            }
            "cut" => ActionKind::Cut(self.some_node(running)?, wait),
            "stall" => {
                let source = *self.rng.pick(&crate::node::WATCHED)?;
                let source = if self.rng.percent(60) { Source::Leases } else { source };
                ActionKind::Stall(self.some_node(running)?, source, wait)
            }
            "break" => {
                let source = *self.rng.pick(&crate::node::WATCHED)?;
                ActionKind::Break(self.some_node(running)?, source)
            }
            "outage" => ActionKind::Outage(wait),
            "slow" => ActionKind::Slow(self.rng.range(100 * MS, 3 * SEC), wait * 2),
            "errors" => ActionKind::Errors(self.rng.range(50, 700), wait * 2),
            "lease-deleted" => ActionKind::LeaseDeleted(self.some_node(running)?),
            "lease-taken" => ActionKind::LeaseTaken(self.some_node(running)?),
            "node-deleted" => ActionKind::NodeDeleted(self.some_node(|n| n.joined && !n.legacy)?),
            "pause" => ActionKind::Pause(self.some_node(running)?, wait),
            "carrier" | "link-down" | "flap" => {
                let node = self.some_node(|n| n.powered && !n.legacy && n.flap.is_none())?;
                let (index, _) = self.some_port(node)?;
                match word {
                    "carrier" => ActionKind::Carrier(node, index, wait),
                    "link-down" => ActionKind::LinkDown(node, index, wait),
                    _ => {
                        let times = self.rng.range(4, 12) as u32;
                        ActionKind::Flap(node, index, times)
                    }
                }
            }
            "own-address" => {
                let node = self.some_node(|n| n.powered && !n.legacy)?;
                let (index, segment) = self.some_port(node)?;
                self.toggle_own(node, index, segment)
            }
            "stranger" => self.stranger()?,
            "take-by-hand" => {
                let v = self.rng.below(self.truth.vips.len() as u64) as usize;
                ActionKind::TakeByHand(*self.truth.vips[v].holders().first()?, v)
            }
            "overrun" => ActionKind::Overrun(self.some_node(running)?, self.rng.range(10 * MS, 2 * SEC)),
            "refuse" => {
                let all = self.rng.percent(30);
                let v = self.rng.below(self.truth.vips.len() as u64) as usize;
                ActionKind::Refuse(self.some_node(running)?, (!all).then_some(v), wait)
            }
            "mute" => ActionKind::Mute(self.some_node(running)?, wait),
            "dummy-removed" => ActionKind::DummyRemoved(self.some_node(running)?),
            "clock-jump" => ActionKind::ClockJump(self.some_node(|_| true)?),
            "label" => ActionKind::Label(self.some_node(|n| n.joined && !n.legacy)?),
            "unwell" => ActionKind::Unwell(self.some_node(|n| n.joined && !n.legacy)?, wait * 2),
            "vouch" => ActionKind::Vouch(self.some_node(|n| n.joined && !n.powered)?),
            "service" => ActionKind::Service,
            "endpoints" => ActionKind::Endpoints,
            "agent" => ActionKind::Agent,
            _ => ActionKind::Ask,
        })
    }
}
