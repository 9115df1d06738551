//! Reading ownership out of a list of claims.

use std::collections::HashMap;
use std::time::Duration;

use purelb_core::Mono;
use purelb_wire::MacAddr;

use super::observer::SeenClaim;

/// One owner's claims in a row, up to the first of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    pub mac: MacAddr,
    pub host: Option<String>,
    pub first: Mono,
    pub last: Mono,
    pub claims: u64,
}

/// A time during which two owners claimed one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    pub macs: [MacAddr; 2],
    /// When the second of them first spoke against the first.
    pub from: Mono,
    /// When one of them last contradicted the other.
    pub to: Mono,
}

impl Duplicate {
    pub fn length(&self) -> Duration {
        self.to.since(self.from)
    }
}

pub(super) fn owners(claims: &[SeenClaim]) -> Vec<Holding> {
    let mut holdings: Vec<Holding> = Vec::new();
    for claim in claims {
        match holdings.last_mut() {
            Some(holding) if holding.mac == claim.mac => {
                holding.last = claim.at;
                holding.claims += 1;
            }
            _ => holdings.push(Holding {
                mac: claim.mac,
                host: claim.host.clone(),
                first: claim.at,
                last: claim.at,
                claims: 1,
            }),
        }
    }
    holdings
}

/// ```text
///   A A A B B B            a move
///   A A A B A B B          A spoke again after B had: two owners from the first B to
///         |-----|          the last contradiction
///   A A A B B B B B A A    B held for longer than the window: a move, and one back
/// ```
pub(super) fn duplicates(claims: &[SeenClaim], window: Duration) -> Vec<Duplicate> {
    let mut found: Vec<Duplicate> = Vec::new();
    let holdings = owners(claims);
    // Per owner, the last of its holdings so far.
    let mut before: HashMap<MacAddr, usize> = HashMap::new();
    for (now, holding) in holdings.iter().enumerate() {
        let Some(then) = before.insert(holding.mac, now) else {
            continue;
        };
        // Everybody who spoke between the two holdings of this owner contradicts it.
        for other in &holdings[then + 1..now] {
            // One that held for longer had taken over; this owner took it back.
            if holding.first.since(other.first) > window {
                continue;
            }
            let mut macs = [holding.mac, other.mac];
            macs.sort_unstable();
            match found.iter_mut().find(|d| d.macs == macs && other.first <= d.to + window) {
                Some(duplicate) => duplicate.to = duplicate.to.max(holding.first),
                None => found.push(Duplicate { macs, from: other.first, to: holding.first }),
            }
        }
    }
    found.sort_by_key(|duplicate| duplicate.from);
    found
}

#[cfg(test)]
mod tests;
