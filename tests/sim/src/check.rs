//! What may never be, looked at after every change. Each check says in words what
//! went wrong; the figures behind it are in the simulator's document.

use ipnet::IpNet;
use purelb_core::messages::{KernelChange, ShutdownMode, Source};
use purelb_core::{IfIndex, Vip};

use crate::hardware::MONITOR_LAG;
use crate::ledger::Rule;
use crate::node::Flap;
use crate::queue::{MS, SEC, SimEvent, T};
use crate::truth::Hold;
use crate::world::{Phase, World};

/// Views of undisturbed nodes are never older than this.
pub(crate) const VIEW_LAG: T = 3 * SEC;
const HANDOFF_DEADLINE: T = 5 * SEC;
/// On top of the handoff deadline: the linger, two watch deliveries, kernel time.
const HANDOFF_SLACK: T = 2 * SEC;
/// An address taken away by hand is back within this.
const PUT_BACK: T = SEC;

impl World {
    pub fn name(&self, node: usize) -> String {
        self.nodes[node].name.to_string()
    }

    /// R5 and the shape of what is asked of the kernel.
    pub fn check_apply(&mut self, node: usize, op: &KernelChange) {
        let name = self.name(node);
        let process = self.nodes[node].process.as_ref().expect("it runs");
        // Told to leave, it takes what carries its mark along.
        if process.listed.len() < Source::ALL.len() && process.stopping.is_none() {
            let refresh = match op {
                KernelChange::Put(spec) => {
                    self.nodes[node].kernel.find(spec.index, spec.net).is_some_and(|a| a.facts.ours)
                }
                _ => false,
            };
            if !refresh {
                let words = format!("{name} acts on half a picture: {op:?}");
                self.violate("R5", words);
                return;
            }
        }
        let KernelChange::Put(spec) = op else {
            return;
        };
        let vip = Vip::new(spec.net.addr());
        let Some(index) = self.truth.index.get(&vip) else {
            let words = format!("{name} adds {vip}, which is no service's address");
            self.violate("R4", words);
            return;
        };
        let dummy = self.nodes[node].segment_of(spec.index).is_none();
        let known = self.nodes[node].kernel.links.contains_key(&spec.index);
        if known && self.truth.vips[*index].local == dummy {
            let words = format!("{name} puts {vip} on interface {:?}, the wrong kind", spec.index);
            self.violate("R1", words);
        }
    }

    /// R4: an address without our mark, seen for long enough to be known.
    pub fn check_foreign(&mut self, node: usize, issued: T, index: IfIndex, net: IpNet, does: &str) {
        let n = &self.nodes[node];
        let Some(addr) = n.kernel.find(index, net) else {
            return;
        };
        let known =
            addr.since + MONITOR_LAG < issued && n.blind_until <= addr.since.max(issued - MONITOR_LAG);
        let (ours, name) = (addr.facts.ours, n.name.clone());
        self.ledger.judged(Rule::Mark);
        if !ours && !known {
            self.ledger.waived(Rule::Mark, "not seen yet");
        } else if !ours {
            let words = format!("{name} {does} {net}, which it did not add");
            self.violate("R4", words);
        }
    }

    /// R9: announced is what the kernel shows, with our mark, past detection.
    pub fn check_announce(&mut self, node: usize, vip: Vip, index: IfIndex) {
        let Some(i) = self.truth.index.get(&vip).copied() else {
            self.violate("R9", format!("{vip} is announced and is no service's address"));
            return;
        };
        let n = &self.nodes[node];
        let good =
            n.kernel.marked(vip).any(|a| a.facts.index == index && !a.facts.tentative && !a.facts.dad_failed);
        let recent = self.truth.vips[i].last_usable[node]
            .is_some_and(|at| self.now < at + MONITOR_LAG || n.blind_until + MONITOR_LAG > self.now);
        self.ledger.judged(Rule::Mark);
        if !good && recent {
            self.ledger.waived(Rule::Mark, "just gone");
        } else if !good {
            let n = &self.nodes[node];
            let shows: Vec<_> = n.kernel.marked(vip).map(|a| a.facts.clone()).collect();
            let words = format!("{} announces {vip}, and its kernel shows {shows:?}", n.name);
            self.violate("R9", words);
        }
    }

    pub fn check_exit(&mut self, node: usize) {
        let stopping = self.nodes[node].process.as_ref().and_then(|p| p.stopping);
        let name = self.name(node);
        let Some(how) = stopping else {
            self.violate("R11", format!("{name} exits unasked"));
            return;
        };
        if how == ShutdownMode::Leave || self.disturbed(node) {
            return;
        }
        let left: Vec<_> =
            self.nodes[node].kernel.addrs.iter().filter(|a| a.facts.ours).map(|a| a.facts.net).collect();
        if !left.is_empty() {
            self.violate("R4", format!("{name} stopped and left {left:?} behind"));
        } else if self.api.leases.contains_key(&self.nodes[node].name) {
            self.violate("R2", format!("{name} stopped and left its Lease behind"));
        }
    }

    /// Called whenever a kernel's state of an address may have changed.
    pub fn holding_changed(&mut self, node: usize, v: usize) {
        let vip = self.truth.vips[v].vip;
        if !self.truth.vips[v].local {
            return;
        }
        let n = &self.nodes[node];
        let new = n.kernel.marked(vip).find(|a| n.segment_of(a.facts.index).is_some()).map(|a| Hold {
            since: a.since,
            usable: !a.facts.tentative && !a.facts.dad_failed,
            reachable: n.kernel.usable(a.facts.index)
                && n.frozen.is_none()
                && n.segment_of(a.facts.index).is_some_and(|s| !self.segments[s].dead.contains(&node)),
        });
        let old = self.truth.vips[v].holds[node];
        let before = self.truth.vips[v].usable_count();
        self.truth.vips[v].holds[node] = new;
        let (was_usable, is_usable) = (old.is_some_and(|h| h.usable), new.is_some_and(|h| h.usable));
        if was_usable && !is_usable {
            self.truth.vips[v].last_usable[node] = Some(self.now);
        }
        if old.is_some() != new.is_some() {
            self.trace.mix([self.now, v as u64, node as u64]);
            self.log(|w| {
                let word = if new.is_some() { "has" } else { "no longer has" };
                format!("{} {word} {vip}", w.nodes[node].name)
            });
            if let Phase::Quiet { .. } = self.phase {
                let words = format!("{vip} came to or left {} while nothing happened", self.name(node));
                self.violate("R1", words);
                return;
            }
        }
        if old.is_none() && new.is_some() {
            self.check_added(node, v);
        }
        let reached = new.is_some_and(|h| h.reachable && h.usable);
        self.update_pairs(node, v, reached, old.is_none());
        if before > 0 && self.truth.vips[v].usable_count() == 0 {
            self.check_gap(node, v);
        }
    }

    /// A node that just put an address on must be allowed to.
    fn check_added(&mut self, node: usize, v: usize) {
        let vip = self.truth.vips[v].vip;
        if self.nodes[node].legacy {
            return;
        }
        let early = self.judge_takeover(node, v);
        // One whose clock stood still counts by that clock: see `fence_check`.
        let stood = self.nodes[node].thawed.is_some_and(|(at, stood)| stood && self.now < at + self.margin());
        let fresh = self.nodes[node].last_applied.is_some_and(|at| self.now < at + self.duration(node));
        if !fresh && !stood && !early {
            let words = format!("{} adds {vip} without a live Lease", self.name(node));
            self.violate("R2", words);
            return;
        }
        let Some(flap) = self.nodes[node].flap else {
            return;
        };
        if !self.nodes[node].kernel.marked(vip).any(|a| a.facts.index == flap.index) {
            return;
        }
        self.ledger.judged(Rule::Flap);
        if let Some(why) = self.flap_waiver(node, flap) {
            self.ledger.waived(Rule::Flap, why);
        } else if self.nodes[node].put_issued <= flap.from {
            // What waited behind a busy kernel is as old as its decision; what was decided
            // since follows it.
            self.ledger.waived(Rule::Flap, "decided before");
        } else {
            let words = format!("{vip} moves to {} while its link flaps", self.name(node));
            self.violate("R8", words);
        }
    }

    /// Why an address may come to a link that flaps.
    pub fn flap_waiver(&self, node: usize, flap: Flap) -> Option<&'static str> {
        let n = &self.nodes[node];
        if n.blind_until > flap.from {
            return Some("picture of the kernel is old");
        }
        if flap.life != n.life {
            return Some("just started");
        }
        (self.now <= flap.from + MONITOR_LAG).then_some("just began")
    }

    /// Why a newcomer beside another holder is no proof of a mistake.
    pub fn taking_waiver(&self, node: usize, other: usize, v: usize) -> Option<&'static str> {
        let lag = self.view_lag(node, other);
        let from = self.now.saturating_sub(lag);
        let truth = &self.truth.vips[v];
        if self.nodes[node].legacy {
            return Some("older member");
        }
        // Judged by itself, when it did so.
        if truth.early.is_some_and(|e| e.taker == node && e.at == self.now) {
            return Some("early takeover");
        }
        // While members come and go each sees the others late and may be mistaken
        // for a moment. Once the winner has been the same for longer than any
        // view is old, nobody else may take the address.
        if truth.history.back().is_some_and(|(at, _)| *at >= from) {
            return Some("winner just changed");
        }
        // Its other watches may still lag behind when the one of the Leases is back.
        if self.disturbed(node) && truth.objects_at >= self.trouble_since(node) {
            return Some("missed a change");
        }
        // The other had been fenced and is back: the newcomer may have counted it
        // out before it heard of that.
        if self.nodes[other].back_at >= from && self.nodes[other].back_at > 0 {
            return Some("holder was fenced");
        }
        None
    }

    pub fn view_lag(&self, node: usize, other: usize) -> T {
        if self.disturbed(node) || self.disturbed(other) {
            self.setup.duration() + VIEW_LAG
        } else {
            VIEW_LAG
        }
    }

    fn update_pairs(&mut self, node: usize, v: usize, reached: bool, added: bool) {
        for other in 0..self.node_count() {
            if other == node {
                continue;
            }
            let key = (v, node.min(other), node.max(other));
            let theirs = self.truth.vips[v].holds[other].is_some_and(|h| h.reachable && h.usable);
            let meet = self.truth.vips[v].segment.is_none_or(|s| self.touches(s, node, other));
            if !(reached && theirs && meet) {
                self.truth.pairs.remove(&key);
                continue;
            }
            if self.truth.pairs.contains_key(&key) {
                continue;
            }
            self.truth.pairs.insert(key, self.now);
            self.stats.handoffs += 1;
            let at = self.now + HANDOFF_DEADLINE + HANDOFF_SLACK;
            let ev = SimEvent::PairCheck { vip: v, a: key.1, b: key.2, since: self.now };
            self.queue.push(at, ev);
            let lag = self.view_lag(node, other);
            let winner = self.truth.vips[v].was_winner_since(node, self.now.saturating_sub(lag));
            if !added || winner {
                continue;
            }
            self.ledger.judged(Rule::SecondOwner);
            if let Some(why) = self.taking_waiver(node, other, v) {
                self.ledger.waived(Rule::SecondOwner, why);
                continue;
            }
            let words = format!(
                "{} takes {} while {} has it, and was not its winner in the last {} s",
                self.name(node),
                self.truth.vips[v].vip,
                self.name(other),
                lag / SEC
            );
            self.violate("R2", words);
        }
    }

    /// How long two may hold an address, and what made it longer than a handoff.
    pub fn overlap_bound(&self, a: usize, b: usize, since: T) -> (T, Option<&'static str>) {
        // The deadline runs from when the successor was heard of: by its next renewal.
        let mut bound = HANDOFF_DEADLINE + HANDOFF_SLACK + self.setup.duration() / 3;
        let mut why = None;
        if self.nodes[a].legacy || self.nodes[b].legacy {
            // Which it sends when half of the duration has passed.
            bound += self.setup.duration() / 6 + SEC;
            why = Some("older member");
        }
        if let Some(until) = self.deaf_to_a_kind(a).max(self.deaf_to_a_kind(b)) {
            bound += until.saturating_sub(since);
            why = Some("deaf to a kind");
        }
        if self.disturbed(a) || self.disturbed(b) {
            // That a watch is silent shows by the next renewal, which has its deadline to
            // come back.
            bound += self.setup.renew_deadline() + self.setup.duration() / 3 + 1500 * MS;
            why = Some("trouble");
        }
        // Nothing is given to a peer not heard of since the start, and one that just
        // started itself gets the time it needs to know who is dead.
        let young = |n: usize| {
            let process = self.nodes[n].process.as_ref();
            process.is_some_and(|p| p.started + self.setup.duration() + bound > since)
        };
        if young(a) || young(b) {
            bound += self.setup.duration();
            why = why.or(Some("just started"));
        }
        (bound, why)
    }

    /// Two holders for longer than a handoff may take.
    pub fn pair_check(&mut self, v: usize, a: usize, b: usize, since: T) {
        if self.truth.pairs.get(&(v, a, b)) != Some(&since) {
            return;
        }
        self.ledger.judged(Rule::Overlap);
        let (bound, why) = self.overlap_bound(a, b, since);
        if self.now < since + bound {
            if let Some(why) = why {
                self.ledger.waived(Rule::Overlap, why);
            }
            let ev = SimEvent::PairCheck { vip: v, a, b, since };
            self.queue.push(since + bound, ev);
            return;
        }
        let words = format!(
            "{} is on {} and {} for {} ms",
            self.truth.vips[v].vip,
            self.name(a),
            self.name(b),
            (self.now - since) / MS
        );
        self.violate("R2", words);
    }

    /// Why nobody is to blame if `node` is the last to let go of an address now.
    pub fn gap_waiver(&self, node: usize, v: usize) -> Option<&'static str> {
        let truth = &self.truth.vips[v];
        if self.now < truth.excused_until {
            return Some("taken by hand");
        }
        if self.disturbed(node) {
            return Some("trouble of the holder");
        }
        if self.now < self.config_changed.max(truth.objects_at) + VIEW_LAG && truth.winner.is_none() {
            return Some("objects just changed");
        }
        let Some(winner) = truth.winner else {
            // Nobody else can have it: the holder keeps it for as long as it can.
            return self.unable(node, v, true).is_some().then_some("nobody able");
        };
        if self.disturbed(winner) {
            return Some("trouble of the winner");
        }
        if truth.eligible_since.is_none_or(|since| since + VIEW_LAG >= self.now) {
            return Some("just became eligible");
        }
        let (_, mut able) = self.candidates(v);
        if self.nodes[node].legacy || able.iter().any(|n| self.nodes[*n].legacy) {
            return Some("older member");
        }
        able.retain(|n| self.nodes[*n].process.as_ref().is_some_and(|p| p.stopping.is_none()));
        if able.is_empty() {
            return Some("nobody able");
        }
        // Selected no more, though their Leases are yet to say so: nobody can have it.
        let edited = self.now < self.config_changed + VIEW_LAG;
        let deselected = |n: &usize| self.reason(*n, truth.vip) == "NotSelected";
        // So if it gave the address to another at the same moment: that one is yet to say so.
        let new = truth.history.back().is_some_and(|(at, _)| *at >= self.config_changed);
        // Or made another able to have it, which is yet to be heard of.
        let unheard = |n: &usize| self.nodes[*n].offered_at >= self.config_changed;
        if edited && (new || able.iter().all(|n| *n == node || deselected(n) || unheard(n))) {
            return Some("configuration just changed");
        }
        // A stop does not wait for a winner that just started and may not know yet that
        // it won.
        let stops = self.nodes[node].process.as_ref().is_some_and(|p| p.stopping.is_some());
        let young = |p: &crate::node::Process| p.started + self.setup.duration() + VIEW_LAG > self.now;
        if stops && self.nodes[winner].process.as_ref().is_some_and(young) {
            return Some("winner just started");
        }
        None
    }

    /// The last holder let go of an address that somebody could hold.
    fn check_gap(&mut self, node: usize, v: usize) {
        if !self.truth.vips[v].wanted {
            return;
        }
        self.ledger.judged(Rule::Gap);
        if let Some(why) = self.gap_waiver(node, v) {
            self.ledger.waived(Rule::Gap, why);
            return;
        }
        let vip = self.truth.vips[v].vip;
        let words = match self.truth.vips[v].winner {
            Some(winner) => format!(
                "{vip} is without a holder: {} let go of it, {} is the winner ({}), and neither had any trouble",
                self.name(node),
                self.name(winner),
                self.reason(winner, vip)
            ),
            None => format!(
                "{vip} is without a holder: {} let go of it ({}), though it could hold it and nobody else can",
                self.name(node),
                self.reason(node, vip)
            ),
        };
        self.violate("R7", words);
    }

    pub fn plan_put_back(&mut self, node: usize, vip: usize) {
        let removed = self.now;
        self.truth.vips[vip].excused_until = removed + PUT_BACK + SEC;
        let ev = SimEvent::PutBackCheck { node, vip, removed };
        self.queue.push(removed + PUT_BACK, ev);
    }

    /// Why it need not be back.
    pub fn put_back_waiver(&self, node: usize, v: usize, removed: T) -> Option<&'static str> {
        let truth = &self.truth.vips[v];
        if truth.winner != Some(node) {
            return Some("not the winner");
        }
        if truth.history.back().is_none_or(|(since, _)| since + VIEW_LAG >= removed) {
            return Some("winner just changed");
        }
        if self.disturbed(node) {
            return Some("trouble");
        }
        // One that just started may wait for the Leases of the dead to expire.
        let duration = self.setup.duration();
        let process = self.nodes[node].process.as_ref();
        if !process.is_some_and(|p| p.stopping.is_none() && p.started + duration + VIEW_LAG < removed) {
            return Some("starts or stops");
        }
        None
    }

    /// R6: what somebody took away by hand is put back by its owner.
    pub fn put_back_check(&mut self, node: usize, v: usize, removed: T) {
        self.ledger.judged(Rule::PutBack);
        if let Some(why) = self.put_back_waiver(node, v, removed) {
            self.ledger.waived(Rule::PutBack, why);
        } else if self.truth.vips[v].holds[node].is_none() {
            let words = format!(
                "{} was removed from {} by hand and is not back after {} ms",
                self.truth.vips[v].vip,
                self.name(node),
                (self.now - removed) / MS
            );
            self.violate("R6", words);
        }
    }
}
