//! R12: an address is taken before its owner's Lease has run out only on the word of the
//! segment: it answered before and is silent, while somebody else answers. And where all of
//! that can be had, it is taken soon.
//!
//! All of it is told from the frames that reached the taker's sockets, whatever its engine
//! was told of them, and from what stands of the segment.

use purelb_core::segment::HardwareAddr;
use purelb_core::{IfIndex, Vip};

use crate::ledger::Rule;
use crate::node::Process;
use crate::queue::{MS, SEC, SimEvent, T};
use crate::setup::Batches;
use crate::wire::{Station, mac_of};
use crate::world::World;

/// A kernel that could be heard for this long was heard.
const HEARD: T = 1500 * MS;
/// Whoever asked for the very address this lately did so to take it.
const DECISIVE: T = 2 * SEC;
/// Between the two decisive questions, less what timers and the wire shift them.
const APART: T = 45 * MS;
const MISSES: usize = 3;
/// What stood for this long is known to who watches.
const KNOWN: T = 8 * SEC;

/// Taken before the owner's Lease ran out.
#[derive(Clone, Copy, Debug)]
pub struct EarlyTake {
    pub taker: usize,
    pub owner: usize,
    pub at: T,
}

impl World {
    /// Who had the address before `taker` did: whose kernel has it, or had it last.
    fn owner_before(&self, taker: usize, v: usize) -> Option<usize> {
        let truth = &self.truth.vips[v];
        let others = || (0..self.nodes.len()).filter(|n| *n != taker);
        let has = others().find(|n| truth.holds[*n].is_some_and(|h| h.usable));
        has.or_else(|| {
            others().filter(|n| truth.last_usable[*n].is_some()).max_by_key(|n| truth.last_usable[*n])
        })
    }

    /// The node just put the address on. If it did so before its time, had it the right to?
    pub fn judge_takeover(&mut self, node: usize, v: usize) -> bool {
        let (now, vip) = (self.now, self.truth.vips[v].vip);
        let Some((segment, index)) = self.place_on(node, v) else {
            return false;
        };
        let Some(owner) = self.owner_before(node, v) else {
            return false;
        };
        let lag = self.view_lag(node, owner);
        let winner = self.truth.vips[v].was_winner_since(node, now.saturating_sub(lag));
        // Unseen, nobody's Lease runs out.
        let blind = self.api.outage || self.nodes[node].cut || self.nodes[node].deaf;
        let over = !blind && self.lease_ends(owner).is_none_or(|end| end <= now);
        let Some(process) = self.nodes[node].process.as_ref() else {
            return false;
        };
        let asked: Vec<T> = process
            .questions
            .iter()
            .filter(|q| q.index == index && q.target == vip && q.at + DECISIVE > now)
            .map(|q| q.at)
            .collect();
        if winner || over || asked.is_empty() {
            return false;
        }
        self.ledger.judged(Rule::Early);
        self.stats.early += 1;
        let problem = self
            .answering(segment, node, owner, v)
            .or_else(|| self.unproven(process, index, owner, vip, &asked))
            .or_else(|| self.passed_over(node, owner, v));
        if let Some(problem) = problem {
            let (taker, owner) = (self.name(node), self.name(owner));
            let words = format!("{taker} takes {vip} of {owner} before its Lease has run out, and {problem}");
            self.violate("R12", words);
            return true;
        }
        self.log(|w| format!("{} takes {vip} of {} early", w.name(node), w.name(owner)));
        self.truth.vips[v].early = Some(EarlyTake { taker: node, owner, at: now });
        true
    }

    fn place_on(&self, node: usize, v: usize) -> Option<(usize, IfIndex)> {
        let segment = self.truth.vips[v].segment?;
        let (index, _) = self.nodes[node].ports.iter().find(|(_, s)| *s == segment)?;
        Some((segment, *index))
    }

    /// The owner's kernel answers, and nothing on the segment keeps the taker from hearing it.
    fn answering(&self, segment: usize, taker: usize, owner: usize, v: usize) -> Option<String> {
        let (now, wire) = (self.now, &self.segments[segment]);
        let steady = |n: usize| {
            let node = &self.nodes[n];
            node.thawed.is_none_or(|(at, _)| at + HEARD < now) && node.port_changed + HEARD < now
        };
        let hold = self.truth.vips[v].holds[owner];
        let holds = hold.is_some_and(|h| h.usable && h.reachable && h.since + HEARD < now);
        let hears = wire.loss == 0 && wire.changed + HEARD < now && self.connected(segment, taker, owner);
        (holds && hears && steady(taker) && steady(owner))
            .then(|| "its kernel answers and is heard".to_owned())
    }

    /// Answers before, silence after, a witness, and the address itself asked for twice.
    fn unproven(
        &self,
        process: &Process,
        index: IfIndex,
        owner: usize,
        vip: Vip,
        asked: &[T],
    ) -> Option<String> {
        let mac = mac_of(owner, index_of(self, owner, vip).unwrap_or(index));
        let Some(answered) = process.answered_by.get(&(index, mac)).copied() else {
            return Some("never heard an answer of it".to_owned());
        };
        let known = |target: Vip| process.answered_for.get(&(index, target)).is_some_and(|(_, m)| *m == mac);
        let missed: Vec<T> = process
            .questions
            .iter()
            .filter(|q| q.index == index && q.at > answered)
            .filter(|q| q.to == Some(mac) || q.target == vip || known(q.target))
            .map(|q| q.at)
            .collect();
        if missed.len() < MISSES {
            return Some(format!("only {} questions to it went unanswered", missed.len()));
        }
        let witness =
            |(at, other): (&(IfIndex, HardwareAddr), &T)| at.0 == index && at.1 != mac && *other >= missed[0];
        if !process.answered_by.iter().any(witness) {
            return Some("nobody else on the segment answered meanwhile".to_owned());
        }
        let (first, last) = (asked.first().copied()?, asked.last().copied()?);
        if last < first + APART {
            return Some(format!("the address itself was asked for only within {} ms", (last - first) / MS));
        }
        let answered = process.answered_for.get(&(index, vip)).filter(|(at, _)| *at >= first);
        answered.map(|_| "somebody answers for the address".to_owned())
    }

    /// Somebody who is before it in line, and could have it.
    fn passed_over(&mut self, taker: usize, owner: usize, v: usize) -> Option<String> {
        let (_, line) = self.candidates(v);
        let next = line.into_iter().find(|n| *n != owner)?;
        let truth = &self.truth.vips[v];
        if next == taker {
            return None;
        }
        let why = if self.api.outage || self.disturbed(taker) {
            Some("the taker's picture is old")
        } else if truth.line_changed + 3 * SEC > self.now || truth.objects_at + 3 * SEC > self.now {
            Some("the line just changed")
        } else if self.config_changed + 3 * SEC > self.now {
            Some("configuration just changed")
        } else if self.disturbed(next) || self.unable(next, v, false).is_some() {
            Some("who is next is in trouble too")
        } else {
            None
        };
        if let Some(why) = why {
            self.ledger.waived(Rule::Early, why);
            return None;
        }
        Some(format!("{} is next in line", self.name(next)))
    }

    /// Long enough for three questions, the two decisive ones, and whatever this
    /// simulator's machines may be held up by meanwhile.
    pub fn takeover_bound(&self) -> T {
        let held_up = match self.setup.batches {
            Batches::Single => 50 * MS,
            Batches::Moments => 100 * MS,
            Batches::Heaps => 600 * MS,
        };
        // The kernel's slowest change, a watch's slowest word, and two timers that fire late.
        800 * MS + 250 * MS + held_up
    }

    /// A machine is not there any more: what it had is somebody's soon.
    pub fn expect_takeover(&mut self, owner: usize) {
        for v in 0..self.truth.vips.len() {
            let hold = self.truth.vips[v].holds[owner];
            let steady = hold.is_some_and(|h| h.usable && h.reachable && h.since + KNOWN < self.now);
            if !steady || !self.truth.vips[v].local {
                continue;
            }
            self.ledger.judged(Rule::Taken);
            if let Some(why) = self.takeover_waiver(owner, v) {
                self.ledger.waived(Rule::Taken, why);
                continue;
            }
            let ev = SimEvent::TakeoverCheck { vip: v, owner, since: self.now };
            self.queue.push(self.now + self.takeover_bound(), ev);
        }
    }

    pub fn takeover_check(&mut self, v: usize, owner: usize, since: T) {
        let truth = &self.truth.vips[v];
        let back = truth.holds[owner].is_some_and(|h| h.usable && h.reachable);
        let taken = (0..self.nodes.len())
            .any(|n| n != owner && truth.holds[n].is_some_and(|h| h.usable && h.reachable));
        if taken || back {
            return;
        }
        if let Some(why) = self.takeover_waiver(owner, v) {
            self.ledger.waived(Rule::Taken, why);
            return;
        }
        let next = self.next_after(owner, v);
        let words = format!(
            "{} is gone for {} ms and nobody has its {}; {} is next ({})",
            self.name(owner),
            (self.now - since) / MS,
            self.truth.vips[v].vip,
            next.map_or("nobody".to_owned(), |n| self.name(n)),
            next.map_or(String::new(), |n| self.reason(n, self.truth.vips[v].vip)),
        );
        self.violate("R12 bar", words);
    }

    fn next_after(&self, owner: usize, v: usize) -> Option<usize> {
        let (_, line) = self.candidates(v);
        line.into_iter().find(|n| *n != owner)
    }

    /// Why it need not be taken early.
    pub fn takeover_waiver(&self, owner: usize, v: usize) -> Option<&'static str> {
        let (now, truth) = (self.now, &self.truth.vips[v]);
        let Some(segment) = truth.segment else {
            return Some("nobody's subnet");
        };
        let lately = |at: T| at + KNOWN > now;
        let settled =
            !lately(truth.objects_at) && !lately(self.config_changed) && !lately(truth.line_changed);
        if !truth.wanted || truth.winner != Some(owner) || !settled {
            return Some("who is next just changed");
        }
        if truth.excused_until > now {
            return Some("taken by hand");
        }
        let Some(next) = self.next_after(owner, v) else {
            return Some("nobody is next");
        };
        let Some(index) = self.port_on(next, segment) else {
            return Some("who is next is in trouble");
        };
        let (n, o) = (&self.nodes[next], &self.nodes[owner]);
        if n.legacy || o.legacy {
            return Some("older member");
        }
        let Some(process) = n.process.as_ref().filter(|p| !p.paused && p.stopping.is_none()) else {
            return Some("who is next is in trouble");
        };
        if !process.listening.contains(&index) {
            return Some("no detector");
        }
        if self.disturbed(next) && !self.only_outage(next)
            || self.api.outage
            || self.unable(next, v, false).is_some()
        {
            return Some("who is next is in trouble");
        }
        if process.started + 2 * KNOWN > now || n.drops || n.mute || lately(n.port_changed) {
            return Some("who is next is in trouble");
        }
        if o.echo_filtered {
            return Some("echo is filtered");
        }
        let wire = &self.segments[segment];
        let others_well = wire.loss == 0 && wire.one_way.is_none() && wire.side.is_none();
        if !others_well
            || wire.dead.iter().any(|n| *n != owner)
            || (lately(wire.changed) && wire.dead.is_empty())
        {
            return Some("segment in trouble");
        }
        if self.truth.squatted.contains(&truth.vip) {
            return Some("a stranger has it");
        }
        (!self.has_witness(next, owner, segment)).then_some("no witness")
    }

    fn only_outage(&self, _node: usize) -> bool {
        false
    }

    /// Somebody else on the segment who answers, and of whom the node knows.
    fn has_witness(&self, node: usize, owner: usize, segment: usize) -> bool {
        let wire = &self.segments[segment];
        let index = self.nodes[node].ports.iter().find(|(_, s)| *s == segment).map(|(i, _)| *i);
        let gateway = wire.gateway && index == Some(crate::kernel::ETH0);
        let answers =
            |s: Station| wire.carries(s, Station::Node(node)) && wire.carries(Station::Node(node), s);
        let member = |n: usize| {
            n != node
                && n != owner
                && self.port_on(n, segment).is_some()
                && !self.nodes[n].echo_filtered
                && self.api.nodes.contains_key(&self.nodes[n].name)
        };
        gateway && wire.hosts[0].echo && answers(Station::Host(0))
            || (0..self.nodes.len()).any(|n| member(n) && answers(Station::Node(n)))
    }
}

/// The owner's own port on the segment of the address.
fn index_of(world: &World, owner: usize, vip: Vip) -> Option<IfIndex> {
    let v = world.truth.index.get(&vip)?;
    world.place_on(owner, *v).map(|(_, index)| index)
}
