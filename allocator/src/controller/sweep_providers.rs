//! Now and then: what the books of providers say is given, and no Service holds. It gets
//! lost when a Service goes while no allocator runs, when giving it back fails for too
//! long, or when an answer does not arrive.
//!
//! ```text
//!   List ──▶ compared with the Services as they are THEN ──▶ suspects ──grace──▶ List again ──▶ given back
//! ```
//! In this order whatever was given after the list was made is not on it, and whatever
//! was given before is known here, or is still being asked for (`Allocations::orphans`).

use std::collections::{BTreeMap, BTreeSet};

use purelb_core::allocation::{GiveBack, ProviderListing};
use purelb_core::pools::GroupName;
use tokio::time::Instant;
use tracing::{debug, info};

use super::AllocationController;
use super::results::Done;
use crate::providers::ProviderError;

/// What a look at a provider's book came to; for the group's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sweep {
    Done,
    /// The provider does not say what it has given.
    NotListed,
    /// It is not known which cluster this is.
    Nameless,
    Failed(String),
}

#[derive(Debug, Default)]
pub(super) struct Sweeps {
    pub(super) at: Option<Instant>,
    under_way: BTreeSet<GroupName>,
    /// Orphans, and since when they are known.
    suspects: BTreeMap<GroupName, BTreeMap<ProviderListing, Instant>>,
}

impl Sweeps {
    /// At the latest then.
    pub(super) fn by(&mut self, at: Instant) {
        self.at = Some(self.at.map_or(at, |noted| noted.min(at)));
    }
}

impl AllocationController {
    /// Asks every provider what it has given.
    pub(super) fn sweep(&mut self) {
        self.sweeps.at = Some(Instant::now() + self.settings.sweep_interval);
        let provided: Vec<_> = self.groups.provided().map(|(n, c)| (n.clone(), c.clone())).collect();
        self.sweeps.suspects.retain(|name, _| provided.iter().any(|(provided, _)| provided == name));
        for (name, config) in provided {
            if self.cluster_uid.is_none() {
                self.note_sweep(&name, Sweep::Nameless);
                continue;
            }
            let Some(provider) = self.providers.of(&name, &config) else { continue };
            if !self.sweeps.under_way.insert(name.clone()) {
                continue;
            }
            let guard = self.writer.guard().clone();
            self.tasks.spawn(async move {
                let answer = provider.list(&guard, name.name()).await;
                Done::Listed { name, answer }
            });
        }
    }

    pub(super) fn listed(
        &mut self,
        name: GroupName,
        answer: Result<Option<Vec<ProviderListing>>, ProviderError>,
    ) {
        self.sweeps.under_way.remove(&name);
        let listed = match answer {
            Ok(Some(listed)) => listed,
            Ok(None) => return self.note_sweep(&name, Sweep::NotListed),
            Err(why) => {
                debug!(group = %name, %why, "a provider does not say what it has given");
                return self.note_sweep(&name, Sweep::Failed(why.to_string()));
            }
        };
        let now = Instant::now();
        let known = self.sweeps.suspects.remove(&name).unwrap_or_default();
        let mut suspects = BTreeMap::new();
        for orphan in self.book.orphans(listed) {
            let since = known.get(&orphan).copied().unwrap_or(now);
            if now < since + self.settings.sweep_grace {
                suspects.insert(orphan, since);
                continue;
            }
            let ProviderListing { service, ip } = orphan;
            info!(group = %name, %service, %ip, "a provider has it as given, and no Service holds it; giving it back");
            self.book.give_back(GiveBack { group: name.clone(), service, ip: Some(ip) });
        }
        if !suspects.is_empty() {
            self.sweeps.by(now + self.settings.sweep_grace);
        }
        self.sweeps.suspects.insert(name.clone(), suspects);
        self.note_sweep(&name, Sweep::Done);
    }

    fn note_sweep(&mut self, name: &GroupName, sweep: Sweep) {
        if self.groups.set_sweep(name, sweep) {
            self.touch_statuses();
        }
    }
}
