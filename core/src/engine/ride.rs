//! Riding through the absence of the API server (R14).
//!
//! ```text
//!   renewal sent        LEAD before     renew deadline        every ride_every
//!   ─────┬───────────────────┬────────────────┬──────────────────────┬──────▶
//!        │ lives until here ─┼──▶ (less 1 s)  │ lives ride_step more │ again
//!        │                   │ OVER the deadline, should it be that
//! ```
//! Past the renew deadline nobody vouches for a node but itself. What it held as the rightful
//! owner it keeps while the segment says nothing else: it listens there, is not cut off, and
//! hears nobody claim the address. It gives the address life itself, in short steps, so that a
//! daemon that dies is still fenced by its kernel (R3). Who claims it has a valid Lease, or
//! found that nobody answered: it has it a moment later (R13).
//!
//! The ride is over once a renewal has come back and everything was listed since: until then
//! nothing is known that could take the address from us but a claim.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::config::{FencePolicy, LeaseTimers, kernel_lateness};
use crate::detector::{ClaimSighting, DetectorTrouble};
use crate::facts::{AddrFacts, LinkFacts};
use crate::handoff::OwnerVerdict;
use crate::ids::{IfIndex, NodeName, Vip};
use crate::messages::{Effect, Source};
use crate::placement::Demand;
use crate::reason::{FenceCause, Reason};
use crate::segment::SegmentReport;
use crate::time::Mono;

use super::Engine;
use super::vip::{DesiredVip, VipState};

/// Lifetimes are whole seconds, rounded down, so that the kernel would end an address up to a
/// second before the deadline. This long before it a rider is given what outlasts it.
const LEAD: Duration = Duration::from_millis(1800);
/// By so much: two whole seconds are left, also if the kernel gets to it half a second late.
const OVER: Duration = Duration::from_millis(700);
/// A second that is not whole is not given, and what the kernel shows lives for one more.
const LEAST: Duration = Duration::from_secs(1);
/// What is given then, in whole seconds.
const GRANTED: Duration = Duration::from_secs(2);
/// A host that is no member's claims it: heeded if it still does so after half of this time.
const STRANGER: Duration = Duration::from_secs(2);

/// The engine's part: what concerns all addresses alike.
#[derive(Clone, Debug, Default)]
pub(super) struct Ride {
    /// Since when our Lease or our picture is too old, and until both are beyond doubt again.
    since: Option<Mono>,
    /// Since when renewals succeed, though the rest is in doubt.
    answered: Option<Mono>,
    /// When riders were given life last, and until when they have it at least: a renewal since
    /// gives them its own.
    given: Option<Mono>,
    lives: Option<Mono>,
    /// We were held up for longer than what was given lasts: the kernel is asked what is left.
    held_up: bool,
    /// Who is given more.
    riders: BTreeSet<Vip>,
    /// Interfaces with addresses of ours on which nobody rides, as of the last look.
    deaf: BTreeSet<IfIndex>,
}

/// The part of one address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum RideState {
    #[default]
    Off,
    /// Claims until then were settled.
    Rides { settled: Mono },
    /// Somebody claims it, first heard at `since`: it stays until then, so that there is never
    /// nobody. A member has a say in it; a stranger is heeded if it says so once more.
    Yields { since: Mono, until: Mono, to: Option<NodeName> },
    /// It is that one's, until we know more.
    Yielded { to: Option<NodeName> },
}

impl RideState {
    /// A repeat of ours would call clients back.
    pub(super) fn yields(&self) -> bool {
        matches!(self, Self::Yields { to: Some(_), .. })
    }

    pub(super) fn rides(&self) -> bool {
        matches!(self, Self::Rides { .. })
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        match self {
            Self::Yields { until, .. } => Some(*until),
            Self::Off | Self::Rides { .. } | Self::Yielded { .. } => None,
        }
    }
}

impl Ride {
    pub(super) fn since(&self) -> Option<Mono> {
        self.since
    }

    pub(super) fn any(&self) -> bool {
        !self.riders.is_empty()
    }

    pub(super) fn has(&self, vip: Vip) -> bool {
        self.riders.contains(&vip)
    }

    pub(super) fn renewed(&mut self, now: Mono) {
        self.answered.get_or_insert(now);
        if self.since.is_none() {
            self.lives = None;
        }
    }

    /// What the kernel still has is known.
    pub(super) fn kernel_was_read(&mut self, now: Mono) {
        if std::mem::take(&mut self.held_up) {
            (self.given, self.lives) = (None, Some(now + LEAST));
        }
    }

    pub(super) fn failed(&mut self) {
        self.answered = None;
    }

    /// Renewals have succeeded for a whole duration, and we still do not see what others do.
    /// Those who do may have what rides here: they claim it, and it goes without a gap.
    pub(super) fn is_left_to_others(&self, now: Mono, timers: LeaseTimers) -> bool {
        self.left_to_others_at(timers).is_some_and(|at| now >= at)
    }

    fn left_to_others_at(&self, timers: LeaseTimers) -> Option<Mono> {
        let answered = self.answered?.max(self.since?);
        Some(answered + timers.duration)
    }

    pub(super) fn forget(&mut self, vip: Vip) {
        self.riders.remove(&vip);
    }

    fn set(&mut self, vip: Vip, rides: bool) {
        if !rides {
            self.riders.remove(&vip);
        } else if self.riders.insert(vip) {
            self.given = None;
        }
    }
}

impl Engine {
    /// Begins and ends the doubt that addresses ride through.
    pub(super) fn check_ride(&mut self, now: Mono) {
        let in_doubt = match self.fence_cause(now) {
            Some(FenceCause::Expired { .. } | FenceCause::StaleView) => true,
            // Somebody said so: others may act on it at once.
            Some(FenceCause::NeverRenewed | FenceCause::Deleted | FenceCause::Taken { .. }) => false,
            None => self.ride.since.is_some() && !self.is_back(now),
        };
        if in_doubt == self.ride.since.is_some() {
            return;
        }
        self.ride.riders.clear();
        self.ride.deaf.clear();
        self.ride.given = None;
        self.ride.since = in_doubt.then_some(now);
        // What rode has life for less time than what did not.
        self.extend |= !in_doubt;
        self.mark_all_vips();
    }

    /// Everything is known again, and the others can read in our Lease what we would serve.
    fn is_back(&self, now: Mono) -> bool {
        self.confirmed().is_some_and(|lease| self.offered(now).is_subset(&lease.subnets))
    }

    /// Where addresses of ours can no longer ride, or can again.
    pub(super) fn check_ridden_segments(&mut self) {
        if self.ride.since.is_none() {
            return;
        }
        let used: BTreeSet<IfIndex> = self.kernel.ours().map(|a| a.index).collect();
        let deaf: BTreeSet<IfIndex> = used.into_iter().filter(|index| !self.carries_riders(*index)).collect();
        let changed: Vec<IfIndex> = deaf.symmetric_difference(&self.ride.deaf).copied().collect();
        for index in changed {
            self.dirty.extend(self.kernel.vips_on(index));
        }
        self.ride.deaf = deaf;
    }

    fn carries_riders(&self, index: IfIndex) -> bool {
        let serves = |link: &LinkFacts| link.usable() && !self.is_cut_off(link);
        self.kernel.link(index).is_some_and(serves) && self.detector.works_on(index).is_ok()
    }

    /// Somebody may have claimed what rides.
    pub(super) fn heard_while_riding(&mut self, report: &SegmentReport) {
        if self.ride.since.is_some() {
            let known = |vip: &Vip| self.vips.contains_key(vip);
            self.dirty.extend(report.sightings.iter().map(|s| s.address).filter(known));
        }
    }

    /// What riding makes of an address: `None` if it does not ride.
    pub(super) fn ride_of(
        &mut self,
        now: Mono,
        vip: Vip,
        demand: &Demand,
        ours: &[AddrFacts],
        state: &mut VipState,
    ) -> Option<DesiredVip> {
        let since = self.ride.since;
        let place = since.and_then(|_| self.ride_place(vip, demand, ours, state));
        let (Some(since), Some(place)) = (since, place) else {
            if since.is_none() || !matches!(state.ride, RideState::Yielded { .. }) {
                state.ride = RideState::Off;
            }
            self.ride.set(vip, false);
            state.rightful &= since.is_none();
            return match &state.ride {
                RideState::Yielded { to: Some(to) } => {
                    Some(DesiredVip::forbidden(Reason::NotWinner { winner: to.clone() }))
                }
                _ => None,
            };
        };
        let claim = self.detector.claimed_by_other(vip).filter(|claim| claim.at >= since);
        self.follow_claim(now, state, claim.cloned().as_ref());
        self.ride.set(vip, !self.ride.deaf.contains(&place.index));
        let interface = self.kernel.name_of(place.index)?.clone();
        let reason = match &state.ride {
            RideState::Yields { to: Some(to), .. } => Reason::HandingOver { to: to.clone() },
            RideState::Yielded { .. } => {
                state.rightful = false;
                return self.ride_of(now, vip, demand, &[], state);
            }
            _ => Reason::Riding { interface, since },
        };
        Some(DesiredVip::of(OwnerVerdict::Nobody { keep: true }, reason, None))
    }

    fn follow_claim(&mut self, now: Mono, state: &mut VipState, claim: Option<&ClaimSighting>) {
        let before = std::mem::take(&mut state.ride);
        let settled = match &before {
            RideState::Rides { settled } => *settled,
            _ => Mono::ZERO,
        };
        let again = |since: Mono| claim.is_some_and(|claim| claim.at >= since + STRANGER / 2);
        state.ride = match before {
            yielded @ RideState::Yielded { .. } => yielded,
            RideState::Yields { since, until, to } if now >= until => {
                if to.is_some() || again(since) {
                    self.counters.rides_ended_by_claim += 1;
                    RideState::Yielded { to }
                } else {
                    RideState::Rides { settled: claim.map_or(now, |claim| claim.at) }
                }
            }
            // Whoever claimed it took that back; clients may remember it.
            RideState::Yields { .. } if claim.is_none() => {
                state.rival = true;
                RideState::Rides { settled: now }
            }
            // A member after a stranger.
            yields @ RideState::Yields { .. }
                if yields.yields() || claim.is_none_or(|claim| claim.by.is_none()) =>
            {
                yields
            }
            before => {
                self.counters.rides += u64::from(before == RideState::Off);
                match claim.filter(|claim| claim.at > settled) {
                    None => RideState::Rides { settled },
                    Some(claim) => {
                        let stays = if claim.by.is_some() { self.config.handoff.linger } else { STRANGER };
                        RideState::Yields { since: claim.at, until: now + stays, to: claim.by.clone() }
                    }
                }
            }
        };
    }

    /// Where the kernel has it, if it may ride: it was rightfully ours, its policy says so, and
    /// its segment is heard. A lost carrier, or a segment that is cut off, ends it with its lifetime.
    fn ride_place(
        &self,
        vip: Vip,
        demand: &Demand,
        ours: &[AddrFacts],
        state: &VipState,
    ) -> Option<AddrFacts> {
        let may = demand.fence_policy.unwrap_or(self.config.fence) == FencePolicy::Ride
            && state.rightful
            && !self.stopping_now()
            && self.in_service(&self.config.node)
            && self.foreign(vip).is_none();
        let place = ours.iter().find(|a| !a.tentative && !a.dad_failed).filter(|_| may)?;
        let hears = match self.detector.works_on(place.index) {
            Ok(()) => true,
            // The socket closes with the carrier, and is opened again after it.
            Err(DetectorTrouble::NotListening) => state.ride != RideState::Off,
            Err(_) => false,
        };
        hears.then(|| place.clone())
    }

    /// Gives life to what rides, and, shortly before the fence, to what would.
    pub(super) fn keep_riders(&mut self, now: Mono) {
        if self.ride_due().is_none_or(|at| now < at) {
            return;
        }
        // What was given may be over: given again it would be added, and somebody may have it.
        let lives = self.ride.lives.or_else(|| Some(self.fence.deadline()? - LEAST));
        self.ride.given = Some(now);
        if lives.is_some_and(|lives| now >= lives) {
            if self.ride.any() {
                self.ride.held_up = true;
                self.out.push(Effect::Relist(Source::Kernel));
            }
            return;
        }
        let until = self.rides_until(now);
        self.ride.lives = Some(now + Duration::from_secs(now.until(until).as_secs()));
        let riders: Vec<AddrFacts> = self.kernel.ours().filter(|a| self.is_prolonged(a)).cloned().collect();
        for address in riders {
            self.prolong(&address, until);
        }
    }

    fn is_prolonged(&self, address: &AddrFacts) -> bool {
        let vip = address.vip();
        if address.dad_failed || self.being_removed(address) {
            return false;
        }
        if self.ride.since.is_some() {
            return self.ride.has(vip);
        }
        let policy = self.demands.fence_policy(vip).unwrap_or(self.config.fence);
        let rightful = self.vips.get(&vip).is_some_and(|state| state.rightful);
        policy == FencePolicy::Ride && rightful && !address.tentative && self.carries_riders(address.index)
    }

    /// How long a rider lives that is given life now: while the fence stands not past it, but
    /// for what outlasts the deadline until it is looked at again.
    pub(super) fn rides_until(&self, now: Mono) -> Mono {
        let timers = self.config.timers;
        let step = now + timers.ride_step();
        match self.fence.deadline() {
            Some(deadline) if now + LEAD < deadline => step.min(deadline),
            // The kernel, late as it may be, is done before another may begin.
            Some(deadline) if now < deadline => {
                let lease_ends = deadline + timers.duration.saturating_sub(timers.renew_deadline);
                (deadline + OVER).min(lease_ends - kernel_lateness(GRANTED))
            }
            _ => step,
        }
    }

    /// When riders are given life next.
    fn ride_due(&self) -> Option<Mono> {
        if self.ride.held_up {
            return None;
        }
        let deadline = self.fence.deadline();
        if self.ride.since.is_none() {
            let at = deadline? - LEAD;
            return self.ride.given.is_none_or(|given| given < at).then_some(at);
        }
        let Some(given) = self.ride.given else {
            return self.ride.any().then_some(Mono::ZERO);
        };
        let near = deadline.into_iter().flat_map(|at| [at - LEAD, at]).filter(|at| *at > given);
        let next = given + self.config.timers.ride_every();
        self.ride.any().then(|| near.chain([next]).min().unwrap_or(next))
    }

    pub(super) fn ride_deadline(&self, now: Mono) -> Option<Mono> {
        let left = self.ride.left_to_others_at(self.config.timers);
        [self.ride_due(), left].into_iter().flatten().filter(|at| *at > now).min()
    }
}
