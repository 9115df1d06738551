//! Who is able to hold an address, told from the state of the world alone; whether one
//! is without a holder for too long; and how much of the time each rule is in force.

use purelb_core::Vip;
use purelb_core::facts::PoolType;
use purelb_core::messages::Source;

use crate::ledger::Rule;
use crate::node::WATCHED;
use crate::queue::{MS, SEC, SimEvent, T};
use crate::world::{Phase, World};

const LOOK_EVERY: T = SEC;

impl World {
    /// Why this node could not hold this address now. `keeps`: it has it, and drains.
    pub fn unable(&self, node: usize, v: usize, keeps: bool) -> Option<&'static str> {
        let (n, truth) = (&self.nodes[node], &self.truth.vips[v]);
        if n.legacy {
            return Some("older member");
        }
        let Some(process) = n.process.as_ref().filter(|p| !p.paused && n.frozen.is_none()) else {
            return Some("does not run");
        };
        if process.stopping.is_some() {
            return Some("stops");
        }
        if process.listed.len() < Source::ALL.len() || process.started + 3 * SEC > self.now {
            return Some("just started");
        }
        if n.cut || n.deaf || self.api.outage || self.api.slow > 0 || self.api.errors > 0 {
            return Some("API in trouble");
        }
        if WATCHED.into_iter().any(|s| !process.hears(s)) {
            return Some("a watch is silent");
        }
        if n.refuses.is_some() || n.overrun || self.now < n.busy_until || self.now < n.blind_until {
            return Some("kernel in trouble");
        }
        if self.api.nodes.get(&n.name).is_none_or(|o| o.out_of_service) {
            return Some("Node out of service");
        }
        if n.drain.is_some() && !keeps {
            return Some("drains");
        }
        if !keeps && self.api.nodes.get(&n.name).is_some_and(|o| o.excluded) {
            return Some("kept off by its label");
        }
        let lease = self.api.leases.get(&n.name);
        let own = lease.is_some_and(|l| l.facts.instance.as_ref() == Some(&process.instance));
        if !own || !self.lease_live(node) {
            return Some("no live Lease");
        }
        if !keeps && !self.covers(node, truth.vip) {
            return Some("does not advertise the subnet");
        }
        if self.declines(node, truth.vip) {
            return Some("declines it");
        }
        if !self.has_subnet(node, truth.vip) {
            return Some("no subnet");
        }
        if n.kernel.addrs.iter().any(|a| !a.facts.ours && a.facts.vip() == truth.vip) {
            return Some("address is somebody else's");
        }
        if self.beyond_reach(node, v) {
            return Some("port is dead");
        }
        if !self.endpoints_permit(node, truth.vip) {
            return Some("no endpoint");
        }
        None
    }

    fn has_subnet(&self, node: usize, vip: Vip) -> bool {
        let interfaces = self.interfaces(node);
        self.nodes[node]
            .kernel
            .addrs
            .iter()
            .any(|a| !a.facts.ours && interfaces.contains(&a.facts.index) && a.facts.net.contains(&vip.ip()))
    }

    /// Its switch port is dead, and its carrier is not.
    pub fn beyond_reach(&self, node: usize, v: usize) -> bool {
        self.truth.vips[v].segment.is_some_and(|s| self.segments[s].dead.contains(&node))
    }

    fn endpoints_permit(&self, node: usize, vip: Vip) -> bool {
        let wish = self.wish(vip, PoolType::Local);
        wish.wanted && wish.only.is_none_or(|only| only.contains(&self.nodes[node].name))
    }

    /// Long enough for the one that should have it to be counted out: dead, cut off,
    /// deaf or refused by its kernel; and for the next one to take it.
    fn vacancy_bound(&self) -> T {
        self.setup.duration() + self.setup.renew_deadline() / 8 + self.setup.retry_period() + 10 * SEC
    }

    /// Why an address without a holder is nobody's fault now.
    pub fn vacancy_waiver(&self, v: usize) -> Option<&'static str> {
        let truth = &self.truth.vips[v];
        let (_, candidates) = self.candidates(v);
        if candidates.iter().any(|n| self.nodes[*n].legacy) {
            return Some("older member");
        }
        if truth.winner.is_some_and(|w| self.deaf_to_a_kind(w).is_some()) {
            return Some("winner deaf to a kind");
        }
        if truth.winner.is_some_and(|w| self.beyond_reach(w, v)) {
            return Some("winner's port is dead");
        }
        if self.stranger_on_segment(v) {
            return Some("a stranger has it");
        }
        let able = (0..self.nodes.len()).any(|n| self.unable(n, v, false).is_none());
        if !able || truth.segment.is_none() { Some("nobody able") } else { None }
    }

    /// Until when a node hears of Leases and not of some other kind: nothing tells it
    /// so before the watch's own limit.
    pub fn deaf_to_a_kind(&self, node: usize) -> Option<T> {
        let until = self.nodes[node].deaf_until;
        (self.now < until + self.setup.duration()).then_some(until)
    }

    fn stranger_on_segment(&self, v: usize) -> bool {
        let vip = self.truth.vips[v].vip;
        if self.truth.squatted.contains(&vip) {
            return true;
        }
        self.nodes.iter().any(|n| n.kernel.addrs.iter().any(|a| !a.facts.ours && a.facts.vip() == vip))
    }

    /// R1: an address that somebody able could have is not without a holder for long.
    fn look_at_vacancy(&mut self, v: usize) {
        let truth = &self.truth.vips[v];
        let held = truth.holds.iter().flatten().any(|h| h.usable && h.reachable);
        if !truth.local || !truth.wanted || held {
            self.truth.vips[v].vacant = None;
            return;
        }
        let now = self.now;
        let waiver = self.vacancy_waiver(v);
        let vacant = self.truth.vips[v].vacant.get_or_insert_default();
        if vacant.since == 0 {
            vacant.since = now;
        }
        if let Some(why) = waiver {
            vacant.able = [None; crate::setup::MOST_NODES];
            self.ledger.waived(Rule::Vacancy, why);
            return;
        }
        self.ledger.judged(Rule::Vacancy);
        for node in 0..self.nodes.len() {
            let able = self.unable(node, v, false).is_none();
            if let Some(vacant) = &mut self.truth.vips[v].vacant {
                let since = &mut vacant.able[node];
                *since = if able { since.or(Some(now)) } else { None };
            }
        }
        let truth = &self.truth.vips[v];
        let Some(vacant) = &truth.vacant else {
            return;
        };
        // Trouble that began since gets its own time: each can be the one that was next.
        let changed = truth.history.back().map_or(0, |(at, _)| *at);
        let troubled = truth.winner.map_or(0, |w| self.nodes[w].last_trouble);
        // One that started since does not know yet who is dead.
        let started = truth.winner.and_then(|w| self.nodes[w].process.as_ref()).map_or(0, |p| p.started);
        let clock = [vacant.since, changed, troubled, started, truth.objects_at, self.config_changed];
        let clock = clock.into_iter().max().unwrap_or(now);
        let bound = self.vacancy_bound();
        let overdue = |since: &Option<T>| since.is_some_and(|since| now >= since.max(clock) + bound);
        let Some(able) = vacant.able.iter().position(overdue) else {
            return;
        };
        let words = format!(
            "{} is without a holder for {} ms, and {} could have it ({}); {} is the winner ({})",
            truth.vip,
            (now - vacant.since) / MS,
            self.name(able),
            self.reason(able, truth.vip),
            truth.winner.map_or("nobody".to_owned(), |w| self.name(w)),
            truth.winner.map_or(String::new(), |w| self.reason(w, truth.vip)),
        );
        self.violate("R1", words);
    }

    pub fn sample(&mut self) {
        let after = LOOK_EVERY - 50 * MS + self.rng.below(100 * MS);
        self.queue.push(self.now + after, SimEvent::Sample);
        for v in 0..self.truth.vips.len() {
            self.look_at_vacancy(v);
        }
        let v = self.rng.below(self.truth.vips.len() as u64) as usize;
        let node = self.rng.below(self.nodes.len() as u64) as usize;
        let active = matches!(self.phase, Phase::Active { .. });
        let n = &self.nodes[node];
        if n.joined && !n.legacy && n.fence_from.is_some() {
            let waiver = self.fence_waiver(node);
            self.ledger.sample(Rule::Fence, active, waiver);
            self.ledger.sample(Rule::Lifetime, active, None);
            let n = &self.nodes[node];
            let blind = (n.overrun || self.now < n.blind_until).then_some("picture of the kernel is old");
            self.ledger.sample(Rule::Mark, active, blind);
            if let Some(flap) = n.flap {
                let waiver = self.flap_waiver(node, flap);
                self.ledger.sample(Rule::Flap, active, waiver);
            }
        }
        let truth = &self.truth.vips[v];
        if !truth.local || !truth.wanted || truth.segment.is_none() {
            return;
        }
        let waiver = self.vacancy_waiver(v);
        self.ledger.sample(Rule::Vacancy, active, waiver);
        let truth = &self.truth.vips[v];
        let Some(holder) = truth.holders().first().copied() else {
            return;
        };
        let gap = self.gap_waiver(holder, v);
        self.ledger.sample(Rule::Gap, active, gap);
        let put_back = self.put_back_waiver(holder, v, self.now);
        self.ledger.sample(Rule::PutBack, active, put_back);
        if node != holder {
            let taking = self.taking_waiver(node, holder, v);
            let longer = (self.disturbed(node) || self.disturbed(holder)).then_some("trouble: longer bound");
            self.ledger.sample(Rule::SecondOwner, active, taking.or(longer));
            let (_, why) = self.overlap_bound(node, holder, self.now);
            self.ledger.sample(Rule::Overlap, active, why);
        }
    }
}
