//! Rules switched off from outside the engine, to see that the simulator notices.
//! Each one breaks an adapter or the kernel the way the rule exists to survive; the
//! product itself has no such switch.

use std::time::Duration;

use purelb_core::config::EngineConfig;
use purelb_core::messages::{Command, FactsUpdate, Input, LeaseError, LeaseRenewal, Source};

use crate::queue::Channel;
use crate::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// R1: every node is blind to the Lease of one other node.
    BlindToAPeer,
    /// R2: failed renewals are reported as done and echoed on the watch.
    RenewalsNeverFail,
    /// R3: the kernel ignores lifetimes.
    KernelKeepsForEver,
    /// R4: every address is reported with our mark.
    EverythingIsOurs,
    /// R5: empty listings come first.
    EmptyListingsFirst,
    /// R6: addresses that vanish are not reported.
    BlindToRemovals,
    /// R7: no time for a handoff.
    NoHandoff,
    /// R8: gains count at once.
    GainAtOnce,
    /// R9: tentative addresses are reported as usable.
    TentativeHidden,
    /// R10: `externalTrafficPolicy: Local` is not passed on.
    PolicyHidden,
    /// R2, the renew deadline: removals are reported as done and are not.
    RemovalsIgnored,
    /// R3, the lifetimes: they are the configured ones.
    LifetimesUnfenced,
    /// R3, the moment of sending: what was decided long ago is sent as it was.
    LateChangesSent,
    /// R7, without a winner: a drain takes along what nobody else can have.
    DrainTakesAll,
    /// R2, the echo: a node is shown its own writes before anything that came first.
    EchoAtOnce,
    /// R1, the vacancy: that an address is left to others is not written down.
    DeclinesHidden,
}

impl Mutation {
    pub const ALL: [Self; 16] = [
        Self::BlindToAPeer,
        Self::RenewalsNeverFail,
        Self::KernelKeepsForEver,
        Self::EverythingIsOurs,
        Self::EmptyListingsFirst,
        Self::BlindToRemovals,
        Self::NoHandoff,
        Self::GainAtOnce,
        Self::TentativeHidden,
        Self::PolicyHidden,
        Self::RemovalsIgnored,
        Self::LifetimesUnfenced,
        Self::LateChangesSent,
        Self::DrainTakesAll,
        Self::EchoAtOnce,
        Self::DeclinesHidden,
    ];

    /// The rule it switches off, and how.
    pub fn rule(self) -> (&'static str, &'static str) {
        match self {
            Self::BlindToAPeer => ("R1", "each node's Lease watch leaves out one peer"),
            Self::RenewalsNeverFail => ("R2", "failed Lease writes are reported as done and echoed"),
            Self::KernelKeepsForEver => ("R3", "the kernel ignores address lifetimes"),
            Self::EverythingIsOurs => ("R4", "every address is reported with our mark"),
            Self::EmptyListingsFirst => ("R5", "each source is listed empty before it is listed"),
            Self::BlindToRemovals => ("R6", "vanished addresses are not reported"),
            Self::NoHandoff => ("R7", "handoff deadline and linger are zero"),
            Self::GainAtOnce => ("R8", "the gain delay is zero"),
            Self::TentativeHidden => ("R9", "tentative addresses are reported as usable"),
            Self::PolicyHidden => ("R10", "externalTrafficPolicy: Local is not passed on"),
            Self::RemovalsIgnored => ("R2-deadline", "removals are reported as done and are not"),
            Self::LifetimesUnfenced => ("R3-lifetime", "lifetimes are the configured ones, fence or not"),
            Self::LateChangesSent => ("R3-moment", "a change that waited is sent as it was decided"),
            Self::DrainTakesAll => ("R7-nobody", "a drain takes along what no other node can have"),
            Self::EchoAtOnce => ("R2-echo", "a node's own writes are shown to it before what came first"),
            Self::DeclinesHidden => ("R1-vacancy", "what a node declines is left out of its Lease"),
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.rule().0 == text)
    }
}

impl World {
    pub fn mutated(&self, mutation: Mutation) -> bool {
        self.setup.mutation == Some(mutation)
    }

    pub fn mutate_config(&self, config: &mut EngineConfig) {
        match self.setup.mutation {
            Some(Mutation::NoHandoff) => {
                config.handoff.deadline = Duration::ZERO;
                config.handoff.linger = Duration::ZERO;
            }
            Some(Mutation::GainAtOnce) => config.gain_delay = Duration::ZERO,
            Some(Mutation::LifetimesUnfenced) => config.kernel_fence = false,
            _ => {}
        }
    }

    pub fn false_listing(&mut self, node: usize, source: Source) {
        if !self.mutated(Mutation::EmptyListingsFirst) {
            return;
        }
        let empty = match source {
            Source::Services => Input::Services(FactsUpdate::All(Vec::new())),
            Source::ServiceGroups => Input::Groups(FactsUpdate::All(Vec::new())),
            Source::EndpointSlices => Input::Endpoints(FactsUpdate::All(Vec::new())),
            // Nodes, agents and Leases are left alone: Services suffice.
            _ => return,
        };
        self.deliver(node, Channel::Commands, 0, empty);
    }

    /// `None`: the engine never hears of it.
    pub fn mutate_input(&mut self, node: usize, mut input: Input) -> Option<Input> {
        let Some(mutation) = self.setup.mutation else {
            return Some(input);
        };
        match mutation {
            Mutation::BlindToAPeer => {
                let peer = self.nodes[(node + 1) % self.nodes.len()].name.clone();
                match &mut input {
                    Input::Leases(FactsUpdate::All(all)) => all.retain(|l| l.node != peer),
                    Input::Leases(FactsUpdate::Set(l)) if l.node == peer => return None,
                    _ => {}
                }
            }
            Mutation::RenewalsNeverFail => {
                if let Input::LeaseWritten { result, .. } = &mut input
                    && matches!(result, Err(LeaseError::Timeout | LeaseError::Unreachable(_)))
                {
                    let renewal = self.renewal_mark(node);
                    let name = &self.nodes[node].name;
                    if let Some(lease) = self.api.leases.get(name) {
                        let mut echo = lease.facts.clone();
                        echo.renewal.clone_from(&renewal);
                        *result = Ok(LeaseRenewal { renewal });
                        self.deliver(node, Channel::Answers, 0, Input::Leases(FactsUpdate::Set(echo)));
                    }
                }
            }
            Mutation::EverythingIsOurs => match &mut input {
                Input::Kernel(dump) => dump.addresses.iter_mut().for_each(|a| a.ours = true),
                Input::AddressSet(a) => a.ours = true,
                _ => {}
            },
            Mutation::BlindToRemovals => {
                if matches!(input, Input::AddressGone { .. }) {
                    return None;
                }
            }
            Mutation::TentativeHidden => match &mut input {
                Input::Kernel(dump) => dump.addresses.iter_mut().for_each(|a| a.tentative = false),
                Input::AddressSet(a) => a.tentative = false,
                _ => {}
            },
            Mutation::PolicyHidden => match &mut input {
                Input::Services(FactsUpdate::All(all)) => {
                    all.iter_mut().for_each(|s| s.only_local_endpoints = false);
                }
                Input::Services(FactsUpdate::Set(s)) => s.only_local_endpoints = false,
                _ => {}
            },
            Mutation::EchoAtOnce => {
                if let Input::LeaseWritten { result: Ok(LeaseRenewal { renewal }), .. } = &input {
                    let lease = self.api.leases.get(&self.nodes[node].name);
                    if let Some(mut echo) = lease.map(|l| l.facts.clone()) {
                        echo.renewal.clone_from(renewal);
                        self.deliver(node, Channel::Answers, 0, Input::Leases(FactsUpdate::Set(echo)));
                    }
                }
            }
            Mutation::DrainTakesAll => {
                if let Input::Command(Command::Drain { force, .. }) = &mut input {
                    *force = true;
                }
            }
            Mutation::KernelKeepsForEver
            | Mutation::RemovalsIgnored
            | Mutation::LifetimesUnfenced
            | Mutation::LateChangesSent
            | Mutation::DeclinesHidden
            | Mutation::EmptyListingsFirst
            | Mutation::NoHandoff
            | Mutation::GainAtOnce => {}
        }
        Some(input)
    }
}
