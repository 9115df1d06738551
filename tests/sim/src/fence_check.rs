//! R2 and R3: what a node may hold, and until when, counted as its own fence counts.

use std::time::Duration;

use purelb_core::messages::{AddressSpec, Input, Source};
use purelb_core::{Mono, Vip};

use crate::ledger::Rule;
use crate::queue::{MS, SEC, SimEvent, T};
use crate::world::World;

/// From the renew deadline until the kernel has removed everything, on a machine
/// that is not disturbed: a late timer, a busy task, the kernel's own time.
const WITHDRAWN: T = 700 * MS;

impl World {
    pub fn duration(&self, node: usize) -> T {
        self.nodes[node].timers.duration.as_nanos() as T
    }

    pub fn renew_deadline(&self, node: usize) -> T {
        self.nodes[node].timers.renew_deadline.as_nanos() as T
    }

    /// The process learns that a renewal succeeded.
    pub fn note_renewal(&mut self, node: usize, input: &Input) {
        if let Input::LeaseWritten { sent_at, result: Ok(_), .. } = input {
            let n = &mut self.nodes[node];
            n.fence_from = n.fence_from.max(Some(*sent_at));
            self.plan_fence_check(node);
        }
    }

    /// When the fence of the process that runs falls, by its own clock.
    fn fence_at(&self, node: usize) -> Option<Mono> {
        let n = &self.nodes[node];
        n.fence_from.map(|from| from + n.timers.renew_deadline)
    }

    pub fn plan_fence_check(&mut self, node: usize) {
        let Some(fence) = self.fence_at(node) else {
            return;
        };
        let mono = self.mono(node);
        for after in [WITHDRAWN, self.kernel_done(node)] {
            let at = fence + Duration::from_nanos(after);
            let wait = mono.until(at).as_nanos() as T;
            self.queue.push(self.now + wait.max(WITHDRAWN), SimEvent::FenceCheck { node });
        }
    }

    /// After the deadline, the time by which the kernel has removed what nobody else did.
    fn kernel_done(&self, node: usize) -> T {
        self.renew_deadline(node) / 8 + 1500 * MS
    }

    /// Why a node may still have something right after its renew deadline.
    pub fn fence_waiver(&self, node: usize) -> Option<&'static str> {
        let n = &self.nodes[node];
        if n.frozen.is_some() {
            return Some("machine stands still");
        }
        if n.thawed.is_some_and(|(at, _)| self.now < at + SEC) {
            return Some("machine just went on");
        }
        let Some(process) = &n.process else {
            return Some("process gone: the kernel's to do");
        };
        if process.paused {
            return Some("process stopped: the kernel's to do");
        }
        // R5: it may take nothing away yet.
        if process.listed.len() < Source::ALL.len() {
            return Some("half a picture: the kernel's to do");
        }
        if n.refuses.is_some() {
            return Some("kernel refuses");
        }
        if self.now < n.busy_until + WITHDRAWN {
            return Some("changes wait");
        }
        if n.overrun || self.now < n.blind_until {
            return Some("picture of the kernel is old");
        }
        None
    }

    /// Everything is off the node once its fence has fallen: by its own doing soon
    /// after, by its kernel's in any case.
    pub fn fence_check(&mut self, node: usize) {
        let Some(fence) = self.fence_at(node) else {
            return;
        };
        let mono = self.mono(node);
        let n = &self.nodes[node];
        if mono < fence + Duration::from_nanos(WITHDRAWN) || n.legacy {
            return;
        }
        let Some(v) = (0..self.truth.vips.len()).find(|v| self.truth.vips[*v].holds[node].is_some()) else {
            self.ledger.judged(Rule::Fence);
            return;
        };
        self.ledger.judged(Rule::Fence);
        let late = mono.since(fence).as_nanos() as T;
        let waiver = self.fence_waiver(node);
        // Lifetimes stand still with a suspended machine, though its clock goes on.
        let slept =
            n.frozen.is_some() || n.thawed.is_some_and(|(at, _)| self.now < at + self.setup.duration());
        if let Some(why) = waiver
            && (late < self.kernel_done(node) || slept)
        {
            self.ledger.waived(Rule::Fence, why);
            return;
        }
        let words = format!(
            "{} has {} {} ms after its renew deadline ({}; {})",
            self.name(node),
            self.truth.vips[v].vip,
            late / MS,
            waiver.unwrap_or("it runs undisturbed"),
            self.reason(node, self.truth.vips[v].vip),
        );
        self.violate(if waiver.is_some() { "R3" } else { "R2" }, words);
    }

    /// R3: at the moment the kernel is told, the lifetime ends before the fence.
    pub fn check_lifetime(&mut self, node: usize, spec: &AddressSpec) {
        let local =
            self.truth.index.get(&Vip::new(spec.net.addr())).is_some_and(|v| self.truth.vips[*v].local);
        if !local || self.nodes[node].legacy {
            return;
        }
        self.ledger.judged(Rule::Lifetime);
        let (name, net, mono) = (self.name(node), spec.net, self.mono(node));
        let words = match (spec.valid, self.fence_at(node)) {
            (None, _) => format!("{name} adds {net} for ever"),
            (Some(_), None) => format!("{name} adds {net} before a renewal of its own has succeeded"),
            (Some(valid), Some(fence)) => {
                let end = mono + Duration::from_secs(valid.into());
                if end <= fence {
                    return;
                }
                format!("{name} adds {net} for {valid} s, {} ms past its fence", end.since(fence).as_millis())
            }
        };
        self.violate("R3", words);
    }

    /// The end of what stands in the kernel, against the fence of the process that
    /// put it there; `None`: as it should be.
    pub fn lifetime_past_fence(&self, node: usize, valid_until: T) -> Option<Duration> {
        let end = self.mono(node) + Duration::from_nanos(valid_until.saturating_sub(self.now));
        let fence = self.fence_at(node)?;
        (end > fence).then(|| end.since(fence))
    }

    pub fn plan_run_out(&mut self, node: usize) {
        let at = self.now + self.duration(node);
        if self.nodes[node].run_out_planned.is_none_or(|planned| at < planned) {
            self.nodes[node].run_out_planned = Some(at);
            self.queue.push(at, SimEvent::LeaseRunsOut { node });
        }
    }

    /// R2 and R3: once the last renewal, as the API applied it, is older than the
    /// duration, peers may claim: the kernel may hold nothing of ours.
    pub fn lease_runs_out(&mut self, node: usize) {
        self.nodes[node].run_out_planned = None;
        let duration = self.nodes[node].last_duration;
        let own = self.nodes[node].last_applied.map(|at| at + duration);
        let seen = self.lease_ends(node);
        let n = &self.nodes[node];
        // One whose clock stood still with it cannot know, see `fence_check`; and where
        // no process runs, or one that may not act yet, lifetimes that stood still are
        // all there is.
        let acts = |p: &crate::node::Process| !p.paused && p.listed.len() == Source::ALL.len();
        let helpless = !n.process.as_ref().is_some_and(acts);
        let unaware = n.frozen.is_some()
            || n.thawed.is_some_and(|(at, stood)| {
                let grace = self.setup.duration() + self.kernel_done(node);
                self.now < at + if stood || helpless { grace } else { SEC }
            });
        if own.is_some_and(|end| end <= self.now) && !n.legacy {
            for v in 0..self.truth.vips.len() {
                if self.truth.vips[v].holds[node].is_some() {
                    if unaware {
                        self.ledger.waived(Rule::Fence, "machine stood still: so did lifetimes");
                        break;
                    }
                    let words = format!(
                        "{} still has {} and its last renewal was {} ms ago",
                        self.name(node),
                        self.truth.vips[v].vip,
                        (self.now + duration - own.unwrap_or(0)) / MS
                    );
                    let rule = if self.nodes[node].runs() { "R2" } else { "R3" };
                    self.violate(rule, words);
                    return;
                }
            }
        }
        if seen.is_some_and(|end| end <= self.now) && self.truth.live[node] {
            self.log(|w| format!("truth: {}'s Lease has run out", w.nodes[node].name));
            self.refresh_truth();
        }
        let next = [own, seen].into_iter().flatten().filter(|at| *at > self.now).min();
        if let Some(at) = next {
            self.nodes[node].run_out_planned = Some(at);
            self.queue.push(at, SimEvent::LeaseRunsOut { node });
        }
    }
}
