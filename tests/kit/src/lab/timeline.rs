//! One address over time: who held it, when two did, when nobody did.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use purelb_core::Mono;

use super::watch::{AddressEvent, Holders};

/// A stretch of time in which the set of owners did not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: Mono,
    pub to: Mono,
    /// Sorted by name; empty if nobody held the address.
    pub owners: Vec<String>,
}

impl Span {
    pub fn length(&self) -> Duration {
        self.to.since(self.from)
    }
}

/// The owners of one address, from the begin of the watch until now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    pub vip: IpAddr,
    /// In order, without holes. Two that follow one another differ in their owners.
    pub spans: Vec<Span>,
}

impl Timeline {
    pub(super) fn of(vip: IpAddr, from: Mono, until: Mono, events: &[AddressEvent]) -> Self {
        let mut holders = Holders::default();
        let mut spans: Vec<Span> = Vec::new();
        let mut since = from;
        let mut close = |at: Mono, owners: Vec<String>| {
            match spans.last_mut() {
                Some(last) if last.owners == owners => last.to = at,
                _ => spans.push(Span { from: since, to: at, owners }),
            }
            since = at;
        };
        for event in events {
            let before = holders.hosts();
            holders.apply(event);
            // What was there at the begin is no change. An overlap of no length that can
            // be measured is kept nevertheless: the order of events is the kernel's.
            if holders.hosts() != before && event.at > from {
                close(event.at, before);
            }
        }
        close(until, holders.hosts());
        Self { vip, spans }
    }

    /// Stretches with more than one owner.
    pub fn two_owners(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter().filter(|span| span.owners.len() > 1)
    }

    /// Stretches without an owner, once there had been one.
    pub fn no_owner(&self) -> impl Iterator<Item = &Span> {
        let first = self.spans.iter().position(|span| !span.owners.is_empty()).unwrap_or(self.spans.len());
        self.spans[first..].iter().filter(|span| span.owners.is_empty())
    }

    pub fn two_owner_time(&self) -> Duration {
        self.two_owners().map(Span::length).sum()
    }

    pub fn no_owner_time(&self) -> Duration {
        self.no_owner().map(Span::length).sum()
    }

    /// Who holds it now.
    pub fn owners(&self) -> &[String] {
        self.spans.last().map_or(&[], |span| &span.owners)
    }

    /// When this host held it first.
    pub fn first_held_by(&self, host: &str) -> Option<Mono> {
        self.spans.iter().find(|span| span.owners.iter().any(|owner| owner == host)).map(|span| span.from)
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.vip)?;
        for span in &self.spans {
            let owners = if span.owners.is_empty() { "nobody".into() } else { span.owners.join("+") };
            write!(f, " {owners} for {:.1?};", span.length())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
