//! What providers may have back: what a Service gave up, and what their books say is
//! given though no Service holds it.
//!
//! While something of a Service is on its way back, the Service asks for nothing: the
//! same name may be another Service by now, and a provider that still finds the old
//! address in its book would give it again just before it takes it back.

use std::collections::BTreeMap;

use super::allocations::Allocations;
use crate::ids::{ObjectKey, Vip};
use crate::pools::GroupName;

/// What a provider may have back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GiveBack {
    pub group: GroupName,
    pub service: ObjectKey,
    /// None: whatever the Service has of the group.
    pub ip: Option<Vip>,
}

/// An address as a provider's book has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProviderListing {
    pub service: ObjectKey,
    pub ip: Vip,
}

/// On the way back.
#[derive(Clone, Debug, Default)]
pub(super) struct ProviderReturns {
    waiting: Vec<GiveBack>,
    /// How many per Service have not arrived.
    open: BTreeMap<ObjectKey, usize>,
}

impl Allocations {
    /// To be given back; `gave_back` when that was done or given up.
    pub fn give_back(&mut self, what: GiveBack) {
        let returns = self.returns_mut();
        *returns.open.entry(what.service.clone()).or_default() += 1;
        returns.waiting.push(what);
    }

    /// What is to be given back since the last call.
    pub fn take_give_backs(&mut self) -> Vec<GiveBack> {
        std::mem::take(&mut self.returns_mut().waiting)
    }

    /// It was taken back, or nobody tries any longer. The Service may ask again.
    pub fn gave_back(&mut self, what: &GiveBack) {
        let returns = self.returns_mut();
        if let Some(open) = returns.open.get_mut(&what.service) {
            *open -= 1;
            if *open == 0 {
                returns.open.remove(&what.service);
            }
        }
        self.look_again(&what.service);
    }

    pub(super) fn is_returning(&self, key: &ObjectKey) -> bool {
        self.returns().open.contains_key(key)
    }

    /// What no Service holds of what a provider has given. `listed` is what its book said
    /// BEFORE this call: whatever is asked for in between is then known here.
    pub fn orphans(&self, listed: Vec<ProviderListing>) -> Vec<ProviderListing> {
        listed.into_iter().filter(|entry| self.is_orphan(entry)).collect()
    }

    fn is_orphan(&self, ProviderListing { service, ip }: &ProviderListing) -> bool {
        // An answer under way, or one that is not decided on yet, may be this address.
        let asks = self.entry(service).is_some_and(|entry| {
            let given = |answer: &Result<Vec<Vip>, String>| answer.as_ref().is_ok_and(|ips| ips.contains(ip));
            entry.busy || entry.answer.as_ref().is_some_and(|(_, answer)| given(answer))
        });
        !asks && !self.is_returning(service) && self.pools().references(*ip) == 0
    }
}
