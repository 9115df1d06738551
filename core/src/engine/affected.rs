//! Which addresses an input may concern, so that no more than those are looked at.
//!
//! A look at everything costs what a start costs less the hashing: with ten thousand
//! addresses tens of milliseconds. A pod that starts makes several link events, and every
//! peer renews three times in the life of its Lease; neither may cost that.
//! [`Engine::overlooked`] is the check that nothing was left out.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::facts::{AddrFacts, DefaultRoute, LinkFacts};
use crate::ids::{IfIndex, IfName, NodeName, Vip};
use crate::messages::FactsUpdate;
use crate::reason::{PendingCause, Reason};
use crate::time::Mono;

use super::Engine;

impl Engine {
    /// Everything that is asked for, and everything we have, is looked at again.
    pub(super) fn mark_all_vips(&mut self) {
        self.dirty.extend(self.demands.vips());
        self.dirty.extend(self.kernel.ours().map(AddrFacts::vip));
        self.dirty.extend(self.vips.keys());
    }

    /// The same, of what these prefixes contain.
    pub(super) fn mark_vips_inside(&mut self, nets: &BTreeSet<IpNet>) {
        // What is not here and another's stays so, unless the election says otherwise.
        let elsewhere = |vip: &Vip| self.vips.get(vip).is_some_and(|state| state.is_elsewhere());
        let within = |vip: &Vip| nets.iter().any(|net| net.contains(&vip.ip()));
        let inside = |vip: &Vip| within(vip) && !elsewhere(vip);
        self.dirty.extend(self.demands.vips().filter(inside));
        self.dirty.extend(self.kernel.ours().map(AddrFacts::vip).filter(|vip| within(vip)));
        self.dirty.extend(self.vips.keys().copied().filter(inside));
    }

    /// What should be in the kernel and is not: a fence about to fall left it no time,
    /// and a renewal has given it some.
    pub(super) fn mark_missing_vips(&mut self) {
        self.dirty.extend(&self.missing);
    }

    /// What we have announced, or are about to. Where nothing else happens to an address
    /// it is said again without another look: there may be thousands.
    pub(super) fn announce_everything_again(&mut self, now: Mono) {
        let garp = self.agents.current().map(|c| c.garp.clone()).unwrap_or_default();
        let may = garp.enabled && self.confirmed().is_some();
        let me = &self.config.node;
        let listed =
            |vip: &Vip| self.announced_by.get(vip).is_some_and(|nodes| nodes.iter().any(|n| n != me));
        // Those of remote pools are announced by routers.
        for (vip, state) in self.vips.iter_mut().filter(|(_, state)| !state.is_remote()) {
            let settled = may && state.is_settled() && !self.dirty.contains(vip) && !listed(vip);
            let shown = self.kernel.of_vip(*vip).find(|a| a.ours && !a.tentative && !a.dad_failed);
            let place = shown.and_then(|a| Some((a.index, self.kernel.name_of(a.index)?.clone())));
            match place.filter(|_| settled) {
                Some((index, interface)) => {
                    state.is_announced_again();
                    self.announcer.start(now, *vip, index, interface, &garp);
                }
                None if state.announce_again(*vip, &mut self.announcer) => {
                    self.dirty.insert(*vip);
                }
                None => {}
            }
        }
    }

    /// Our addresses on a link that has another hardware address now are known to the
    /// segment by the old one.
    pub(super) fn hardware_may_have_changed(&mut self, link: &LinkFacts) {
        let before = self.kernel.link(link.index).and_then(|l| l.mac);
        if before.is_none() || link.mac.is_none() || before == link.mac {
            return;
        }
        for address in self.kernel.ours_on(link.index) {
            if let Some(state) = self.vips.get_mut(&address.vip()) {
                state.announce_again(address.vip(), &mut self.announcer);
                self.dirty.insert(address.vip());
            }
        }
    }

    pub(super) fn kernel_reported(&mut self, vip: Vip) {
        if let Some(state) = self.vips.get_mut(&vip) {
            state.kernel_reported();
        }
        self.dirty.insert(vip);
    }

    pub(super) fn link_changed(&mut self, update: FactsUpdate<LinkFacts, IfIndex>) {
        match update {
            FactsUpdate::All(links) => {
                let listed: BTreeSet<IfIndex> = links.iter().map(|l| l.index).collect();
                let known: Vec<IfIndex> = self.kernel.links().map(|l| l.index).collect();
                for index in known.into_iter().filter(|i| !listed.contains(i)) {
                    self.link_changed(FactsUpdate::Gone(index));
                }
                for link in links {
                    self.link_changed(FactsUpdate::Set(link));
                }
            }
            FactsUpdate::Set(link) => {
                self.hardware_may_have_changed(&link);
                let after = link.clone();
                let before = self.kernel.set_link(link);
                if before.as_ref() == Some(&after) {
                    return;
                }
                self.links_dirty = true;
                self.dirty.extend(self.kernel.vips_on(after.index));
                self.link_renamed(after.index, before.as_ref().map(|l| &l.name), Some(&after.name));
            }
            FactsUpdate::Gone(index) => {
                let (link, addresses) = self.kernel.remove_link(index);
                self.links_dirty = true;
                for address in addresses {
                    self.address_changed(&address);
                }
                self.link_renamed(index, link.as_ref().map(|l| &l.name), None);
            }
        }
    }

    /// Another link answers to a name now. That concerns all addresses that are to be on
    /// the link of that name; it happens to no link in use but once in a while. And it
    /// concerns the remote addresses around those on the link, which a remote address may
    /// hide on some links and not on others.
    fn link_renamed(&mut self, index: IfIndex, before: Option<&IfName>, after: Option<&IfName>) {
        if before == after {
            return;
        }
        let own = self.kernel.others_on(index).filter(|a| !a.link_local);
        self.dirty.extend(own.flat_map(|a| self.prefixes.around(a.net.addr())));
        let dummy = self.agents.current().map(|config| &config.dummy);
        let used = |name: &IfName| dummy == Some(name) || self.subnets.knows(name);
        if before.is_some_and(used) || after.is_some_and(used) {
            self.mark_all_vips();
        }
    }

    /// An address appeared, changed or went. One of somebody else's may be what makes a
    /// subnet ours to serve.
    pub(super) fn address_changed(&mut self, address: &AddrFacts) {
        self.kernel_reported(address.vip());
        if address.ours || address.link_local {
            return;
        }
        self.links_dirty = true;
        self.dirty.extend(self.prefixes.around(address.net.addr()));
        let here = self.kernel.ours_on(address.index).map(AddrFacts::vip);
        self.dirty.extend(here.filter(|vip| address.net.contains(&vip.ip())));
    }

    /// The node's way out changed: remote addresses must not hide it.
    pub(super) fn default_routes_changed(&mut self, routes: Vec<DefaultRoute>) {
        let before: BTreeSet<IpAddr> = self.kernel.gateways().collect();
        self.kernel.set_default_routes(routes);
        self.links_dirty = true;
        let after: BTreeSet<IpAddr> = self.kernel.gateways().collect();
        let changed = before.symmetric_difference(&after);
        let itself = |gateway| Some(Vip::new(gateway)).filter(|vip| self.vips.contains_key(vip));
        self.dirty.extend(changed.flat_map(|gateway| self.prefixes.around(*gateway).chain(itself(*gateway))));
    }

    /// Who takes part changed, of these nodes, or what they understand: their word on what
    /// they hold counts now, or counts no more.
    pub(super) fn candidates_changed(&mut self, now: Mono, nodes: &BTreeSet<NodeName>) {
        for node in nodes.iter().filter(|n| **n != self.config.node) {
            let said = self.members.get(node).and_then(|m| m.facts().announced.as_ref());
            self.dirty.extend(said.into_iter().flatten());
        }
        self.others_changed();
        let speaks = self.is_speaker();
        let becomes = !std::mem::replace(&mut self.speaks, speaks) && speaks;
        let differs = |vip: &&Vip| {
            let left_over = self.demands.slots_of(**vip).next().is_some();
            becomes || left_over || self.nobody_otherwise(now, **vip)
        };
        let otherwise: Vec<Vip> = self.nobodys.iter().filter(differs).copied().collect();
        self.dirty.extend(otherwise);
        // Is there somebody to leave it to, and who?
        self.dirty.extend(&self.troubled);
    }

    /// Addresses of remote pools stay on a node that leaves while no other can have them:
    /// nobody at all, or nobody with an endpoint.
    fn others_changed(&mut self) {
        let me = &self.config.node;
        let alone = !self.candidacies.iter().any(|(node, c)| node != me && c.eligible);
        let differs = std::mem::replace(&mut self.alone, alone) != alone;
        if self.drain.is_none() && !self.excluded() {
            return;
        }
        let remote = |vip: &Vip| self.vips.get(vip).is_some_and(|s| s.is_remote());
        let concerned = |vip: &Vip| remote(vip) && (differs || self.demands.needs_endpoints(*vip));
        self.dirty.extend(self.kernel.ours().map(AddrFacts::vip).filter(concerned));
    }

    /// Nobody wins the address, for another reason than the one that was said.
    fn nobody_otherwise(&self, now: Mono, vip: Vip) -> bool {
        let said = self.vips.get(&vip).and_then(|s| s.reason());
        let placed = || self.subnets.locate(now, vip).and_then(|(name, _)| self.kernel.link_named(name));
        match said {
            Some(
                Reason::NoEligibleNode
                | Reason::AllDeclined
                | Reason::NoEndpoints
                | Reason::Pending { missing: PendingCause::Lease },
            ) => said != Some(&self.why_nobody(vip, placed().is_some())),
            _ => false,
        }
    }

    /// What concerns all nodes alike is said by one of them: the first by name of those
    /// that could serve anything, or else of those that take part at all. A node that
    /// knows no handoffs knows none of these events either.
    fn is_speaker(&self) -> bool {
        let me = &self.config.node;
        let says = |node: &NodeName| {
            node == me || self.members.get(node).is_some_and(|m| m.facts().announced.is_some())
        };
        let of = |able: bool| {
            let mut all = self.candidacies.iter().filter(|(node, _)| says(node));
            all.find(|(_, c)| !able || (c.eligible && !c.subnets.is_empty())).map(|(node, _)| node)
        };
        of(true).or_else(|| of(false)).is_none_or(|node| node == me)
    }

    /// What a look at everything would still do or say otherwise, in words: nothing, or
    /// an input touched less than it concerns. Costs as much as a start; the tests ask
    /// after every step, the simulator after every seventh.
    pub fn overlooked(&self, now: Mono) -> Option<String> {
        let mut again = self.clone();
        again.out.clear();
        again.mark_all_vips();
        again.settle(now);
        if !again.out.is_empty() {
            return Some(format!("still to do: {:?}", again.out));
        }
        let (seen, anew) = (self.clone().snapshot(now), again.snapshot(now));
        let differs = anew.vips.changes_since(&seen.vips).next();
        let differs = differs.map(|(is, would)| format!("{is:?} would be {would:?}"));
        differs.or_else(|| self.snapshot_mismatch(now))
    }
}
