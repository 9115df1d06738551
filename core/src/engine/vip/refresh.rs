//! How long an address lives in the kernel unless it is given more: fenced ones until the
//! renew deadline (R3), remote ones as configured.

use std::time::Duration;

use crate::facts::{AddrFacts, AddressOptions, AgentConfig};
use crate::ids::{Family, IfIndex, Vip};
use crate::kernel_state::AddrKey;
use crate::messages::{AddressSpec, Effect, KernelChange};
use crate::time::Mono;

use super::{Engine, InFlight};

pub(super) fn seconds(count: u32) -> Duration {
    Duration::from_secs(count.into())
}

impl Engine {
    /// The address as the kernel shall have it. `None`: the fence leaves it no time.
    pub(super) fn spec(
        &self,
        now: Mono,
        vip: Vip,
        index: IfIndex,
        net: ipnet::IpNet,
        no_dad: bool,
        remote: bool,
    ) -> Option<AddressSpec> {
        let until = if remote || !self.config.kernel_fence {
            None
        } else if self.ride.has(vip) {
            Some(self.rides_until(now))
        } else {
            Some(self.fence.kernel_until(now)?)
        };
        Some(self.spec_until(until, vip, index, net, no_dad, remote))
    }

    /// The same, with the moment at which it has to be gone.
    fn spec_until(
        &self,
        until: Option<Mono>,
        vip: Vip,
        index: IfIndex,
        net: ipnet::IpNet,
        no_dad: bool,
        remote: bool,
    ) -> AddressSpec {
        let default = AgentConfig::default();
        let config = self.agents.current().unwrap_or(&default);
        let options = if remote { &config.dummy_address } else { &config.local_address };
        let preferred = match vip.family() {
            // Never a source address by itself: replies come from it, nothing else does.
            Family::V6 if !remote => Some(0),
            Family::V4 | Family::V6 => options.preferred,
        };
        let AddressOptions { valid, no_prefix_route, .. } = *options;
        AddressSpec { index, net, until, valid, preferred, no_prefix_route, no_dad }
    }

    /// A renewal succeeded: the addresses we hold live as long as it allows (R3).
    /// Before the picture is whole, what an earlier run left is kept alive as well:
    /// our Lease never lapsed, or the kernel would have removed it. What a run without
    /// the kernel's fence left for ever is fenced with the rest.
    pub(in crate::engine) fn extend_lifetimes(&mut self, now: Mono) {
        let held: Vec<AddrFacts> =
            self.kernel.ours().filter(|a| !self.is_remote(a) && self.stays(now, a)).cloned().collect();
        for address in held {
            self.refresh(now, &address, false);
        }
    }

    /// What is to live longer for another reason than a renewal.
    pub(in crate::engine) fn keep_alive(&mut self, now: Mono) {
        for key in self.upkeep.due(now) {
            let address = self.kernel.address(key).filter(|a| a.ours && self.stays(now, a)).cloned();
            let Some(address) = address else {
                self.upkeep.forget(key);
                continue;
            };
            let remote = self.is_remote(&address);
            if remote || self.fence_cause(now).is_none() || self.ride.has(address.vip()) {
                self.refresh(now, &address, remote);
            } else {
                self.upkeep.forget(key);
            }
        }
    }

    /// It rides, or is about to: it lives until then.
    pub(in crate::engine) fn prolong(&mut self, address: &AddrFacts, until: Mono) {
        let key = (address.index, address.net);
        let until = self.config.kernel_fence.then_some(until);
        let spec = self.spec_until(until, address.vip(), address.index, address.net, true, false);
        if spec.until.is_none() && spec.valid.is_none() && address.permanent {
            return;
        }
        let valid = spec.valid;
        let id = self.id(InFlight::Refresh { key, remote: false, valid });
        self.out.push(Effect::Apply { id, op: KernelChange::Put(spec) });
    }

    /// A remote address that is where it belongs: does it live as configured?
    pub(super) fn keep_remote(&mut self, now: Mono, address: &AddrFacts) {
        let finite = self.agents.current().is_some_and(|c| c.dummy_address.valid.is_some());
        if (finite || !address.permanent) && !self.upkeep.knows((address.index, address.net)) {
            self.refresh(now, address, true);
        }
    }

    fn refresh(&mut self, now: Mono, address: &AddrFacts, remote: bool) {
        let key = (address.index, address.net);
        let Some(spec) = self.spec(now, address.vip(), address.index, address.net, true, remote) else {
            self.upkeep.forget(key);
            return;
        };
        let for_ever = spec.until.is_none() && spec.valid.is_none();
        if for_ever && address.permanent {
            self.upkeep.forget(key);
            return;
        }
        if remote {
            self.upkeep.asked(now, key);
        }
        let valid = spec.valid;
        let id = self.id(InFlight::Refresh { key, remote, valid });
        self.out.push(Effect::Apply { id, op: KernelChange::Put(spec) });
    }

    /// The answer to a refresh.
    pub(super) fn refreshed(
        &mut self,
        now: Mono,
        key: AddrKey,
        remote: bool,
        valid: Option<u32>,
        done: bool,
    ) {
        match valid.filter(|_| remote) {
            _ if !done => self.upkeep.failed(now, key),
            Some(valid) => self.upkeep.given(now, key, seconds(valid)),
            // Looked at once more when the kernel must have shown it.
            None if remote => self.upkeep.asked(now, key),
            None => self.upkeep.forget(key),
        }
    }

    /// On the dummy interface, or decided to be: its path is a router's affair, so that
    /// no fence ends it.
    pub(in crate::engine) fn is_remote(&self, address: &AddrFacts) -> bool {
        match self.vips.get(&address.vip()) {
            Some(state) => state.remote,
            None => {
                // By its name, or made by an earlier run under another one.
                let dummy = self.agents.current().map(|c| &c.dummy);
                self.kernel.link(address.index).is_some_and(|l| l.ours || Some(&l.name) == dummy)
            }
        }
    }

    /// The kernel was told to remove it, and has not answered. More time for it would
    /// come behind that, and add it anew.
    pub(in crate::engine) fn being_removed(&self, address: &AddrFacts) -> bool {
        let changing = self.vips.get(&address.vip()).and_then(|state| state.changing);
        matches!(
            changing.and_then(|id| self.in_flight.get(&id)),
            Some(InFlight::Change { op: KernelChange::Remove { index, net }, .. })
                if (*index, *net) == (address.index, address.net)
        )
    }

    /// It is not on its way out.
    fn stays(&self, now: Mono, address: &AddrFacts) -> bool {
        if address.dad_failed || self.being_removed(address) {
            return false;
        }
        match self.vips.get(&address.vip()).and_then(|state| state.presence) {
            Some(presence) => presence.stays(),
            None => self.adopts(now),
        }
    }
}
