//! Connections that were refused, told without letting whoever connects fill the journal.
//!
//! One line per source, kind of reason and minute, with how many were kept back. Sources, and
//! the kinds of one source, are counted up to a bound; all beyond it are one.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::audit;

const LOG_INTERVAL: Duration = Duration::from_secs(60);
const MOST_SOURCES: usize = 64;
const MOST_KINDS: usize = 8;
/// Stands for all sources that are too many to be told apart.
const OTHER_SOURCES: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

#[derive(Debug, Default)]
pub struct RefusalLog(Mutex<RefusalCounts>);

impl RefusalLog {
    pub fn turned_away(&self, from: SocketAddr, why: &dyn Display) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match counts.refused(Instant::now(), from.ip().to_canonical(), &kind_of(&why.to_string())) {
            Some(0) => audit::log_refused_connection(&from, why),
            Some(kept) => {
                audit::log_refused_connection(&from, &format!("{why} ({kept} more like it were not logged)"))
            }
            None => {}
        }
    }
}

/// What comes before the particulars: times and names, which differ each time.
fn kind_of(why: &str) -> String {
    why.splitn(3, ':').take(2).collect::<Vec<_>>().join(":")
}

#[derive(Debug)]
struct RefusalCount {
    quiet_until: Instant,
    kept_back: u64,
}

type CountsByKind = BTreeMap<String, RefusalCount>;

#[derive(Debug, Default)]
struct RefusalCounts(BTreeMap<IpAddr, CountsByKind>);

impl RefusalCounts {
    /// Some: to be logged, with how many were kept back before it.
    fn refused(&mut self, now: Instant, from: IpAddr, kind: &str) -> Option<u64> {
        let mut from = from;
        if !self.0.contains_key(&from) && self.0.len() >= MOST_SOURCES {
            let speaks = |line: &RefusalCount| now < line.quiet_until || line.kept_back > 0;
            self.0.retain(|_, kinds| kinds.values().any(speaks));
            if self.0.len() >= MOST_SOURCES {
                from = OTHER_SOURCES;
            }
        }
        let kinds = self.0.entry(from).or_default();
        let full = kinds.len() >= MOST_KINDS && !kinds.contains_key(kind);
        let kind = if full { "" } else { kind };
        let line = kinds.entry(kind.to_owned()).or_insert(RefusalCount { quiet_until: now, kept_back: 0 });
        if now < line.quiet_until {
            line.kept_back += 1;
            return None;
        }
        line.quiet_until = now + LOG_INTERVAL;
        Some(std::mem::take(&mut line.kept_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(n: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(0xc000_0200 + n))
    }

    #[test]
    fn one_line_per_source_and_minute() {
        let (mut counts, start) = (RefusalCounts::default(), Instant::now());
        assert_eq!(counts.refused(start, ip(1), "late"), Some(0));
        for _ in 0..1000 {
            assert_eq!(counts.refused(start + LOG_INTERVAL / 2, ip(1), "late"), None);
        }
        assert_eq!(counts.refused(start + LOG_INTERVAL / 2, ip(2), "late"), Some(0), "another source");
        assert_eq!(counts.refused(start + LOG_INTERVAL, ip(1), "late"), Some(1000), "none is forgotten");
        assert_eq!(counts.refused(start + LOG_INTERVAL * 3, ip(1), "late"), Some(0));
    }

    #[test]
    fn another_reason_is_told_and_their_number_is_bounded() {
        let (mut counts, start) = (RefusalCounts::default(), Instant::now());
        let kind = kind_of("invalid peer certificate: certificate expired: verified at time 1 (UNIX)");
        assert_eq!(kind, "invalid peer certificate: certificate expired");
        assert_eq!(counts.refused(start, ip(1), "invalid peer certificate: UnknownIssuer"), Some(0));
        assert_eq!(counts.refused(start, ip(1), &kind), Some(0));
        assert_eq!(counts.refused(start, ip(1), &kind), None);
        let told = (0..1000).filter(|n| counts.refused(start, ip(2), &n.to_string()).is_some()).count();
        assert_eq!(told, MOST_KINDS + 1);
    }

    #[test]
    fn a_thousand_sources_are_bounded() {
        let (mut counts, start) = (RefusalCounts::default(), Instant::now());
        let said = (0..1000).filter(|n| counts.refused(start, ip(*n), "late").is_some()).count();
        assert_eq!(said, MOST_SOURCES + 1, "each of the first, and one for all others");
        assert!(counts.0.len() <= MOST_SOURCES + 1);
        assert_eq!(counts.refused(start + LOG_INTERVAL, ip(5000), "late"), Some(0), "places are free again");
    }
}
