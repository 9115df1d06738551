//! What happened, in words: every number and every claim is computed from what the
//! client and the kernels saw, so that the sentence below a table agrees with the table.

use std::net::IpAddr;
use std::time::Duration;

use purelb_core::Mono;
use purelb_kit::lab::{Span, Timeline};

use crate::screen::Row;

/// One step of the show: the tables before and after it, and who held what in between.
#[derive(Debug)]
pub struct Step<'a> {
    /// The node it is about, and the addresses that node had when the step began (or,
    /// when it comes back, when it ended).
    pub node: &'a str,
    pub its: &'a [IpAddr],
    pub before: &'a [Row],
    pub after: &'a [Row],
    pub timelines: &'a [Timeline],
    pub from: Mono,
    pub took: Duration,
}

impl Step<'_> {
    pub fn drained(&self) -> String {
        let elsewhere = self.its().filter(|row| !row.on.is_empty() && !self.on(row)).count();
        format!(
            "{} had {}; {elsewhere} of them are on other nodes now, {:.2} s after the command. {} {}",
            self.node,
            addresses(self.its.len()),
            self.took.as_secs_f64(),
            self.on_the_way(),
            self.client_lost()
        )
    }

    pub fn returned(&self) -> String {
        format!(
            "{} has {} again. {} {}",
            self.node,
            addresses(self.its.len()),
            self.on_the_way(),
            self.client_lost()
        )
    }

    /// `lease` is how long the others had to wait for it, by its own Lease.
    pub fn power_lost(&self, lease: Duration) -> String {
        let elsewhere = self.its().filter(|row| !row.on.is_empty() && !self.on(row)).count();
        format!(
            "Nobody could be asked: its Lease is good for {:.0} s, and the others wait for its end. {:.1} s after the plug \
             was pulled {elsewhere} of its {} were on other nodes. {} {}",
            lease.as_secs_f64(),
            self.took.as_secs_f64(),
            addresses(self.its.len()),
            lost("The client lost", &self.counts(|ip| self.its.contains(&ip)), "probes to these"),
            lost(
                "Of the addresses of the other nodes it lost",
                &self.counts(|ip| !self.its.contains(&ip)),
                "probes"
            ),
        )
    }

    fn its(&self) -> impl Iterator<Item = &Row> {
        self.after.iter().filter(|row| self.its.contains(&row.vip))
    }

    fn on(&self, row: &Row) -> bool {
        row.on.iter().any(|node| node == self.node)
    }

    /// How its addresses moved.
    fn on_the_way(&self) -> String {
        let of = |spans: fn(&Timeline) -> Vec<Span>| {
            let its = self.timelines.iter().filter(|t| self.its.contains(&t.vip));
            its.flat_map(spans).filter(|s| s.to > self.from).map(|s| s.length()).max().unwrap_or_default()
        };
        let nobody = of(|t| t.no_owner().cloned().collect());
        let both = of(|t| t.two_owners().cloned().collect());
        let nobody = match nobody {
            Duration::ZERO => "none of them was without an owner for a moment".to_owned(),
            time => format!("one of them was without an owner for {}", millis(time)),
        };
        format!("On the way {nobody}; old and new owner had one together for {} at most.", millis(both))
    }

    fn client_lost(&self) -> String {
        lost("The client lost", &self.counts(|_| true), "probes")
    }

    /// Lost and sent in this step.
    fn counts(&self, wanted: impl Fn(IpAddr) -> bool) -> (u64, u64) {
        let sum =
            |rows: &[Row], of: fn(&Row) -> u64| rows.iter().filter(|r| wanted(r.vip)).map(of).sum::<u64>();
        let during = |of: fn(&Row) -> u64| sum(self.after, of).saturating_sub(sum(self.before, of));
        (during(|r| r.lost), during(|r| r.sent))
    }
}

fn lost(subject: &str, (lost, sent): &(u64, u64), what: &str) -> String {
    match lost {
        0 => format!("{subject} none of {sent} {what}."),
        lost => format!("{subject} {lost} of {sent} {what}."),
    }
}

/// The whole show: how often two nodes had an address at once, while all were alive and
/// after one was not.
pub fn together(timelines: &[Timeline], power_lost: Mono) -> String {
    let (before, after): (Vec<_>, Vec<_>) =
        timelines.iter().flat_map(Timeline::two_owners).partition(|span| span.to <= power_lost);
    let words = |spans: &[&Span]| {
        let longest = spans.iter().map(|s| s.length()).max().unwrap_or_default();
        match spans.len() {
            0 => "never".to_owned(),
            1 => format!("once, for {}", millis(longest)),
            n => format!("{n} times, for {} at most", millis(longest)),
        }
    };
    format!(
        "Two nodes had an address together: while all of them lived (handovers) {}; from the power loss on {}.",
        words(&before),
        words(&after)
    )
}

fn addresses(count: usize) -> String {
    if count == 1 { "1 address".to_owned() } else { format!("{count} addresses") }
}

fn millis(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests;
