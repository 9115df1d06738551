//! What a prober found: sent, lost, gaps, and who answered when.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use purelb_core::Mono;

/// One probe, as the prober noted it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// Index into the probed VIPs.
    pub(super) vip: u32,
    pub(super) sent: Mono,
    /// When the answer came and the index of who gave it.
    pub(super) answer: Option<(Mono, u32)>,
}

/// How well the prober itself kept time. Loss with a large lag may be this machine's
/// fault, loss with a small lag is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// The furthest a probe was sent behind its schedule.
    pub worst: Duration,
    /// Probes sent more than 5 ms behind schedule.
    pub late: u64,
    /// Places in the schedule passed over, since the prober did not get to run, or (TCP)
    /// had too many connections open. Nothing was sent for them.
    pub skipped: u64,
}

#[derive(Clone, Debug)]
pub struct Report {
    pub vips: BTreeMap<IpAddr, VipReport>,
    pub lag: Lag,
    pub timeout: Duration,
}

/// The probes of one VIP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VipReport {
    pub sent: u64,
    /// Answered within the timeout.
    pub answered: u64,
    /// Not answered within the timeout.
    pub lost: u64,
    /// Of the lost, those answered after the timeout.
    pub late: u64,
    /// Too young to be lost. Zero once the prober has stopped.
    pub in_flight: u64,
    /// The longest time between two answers that follow one another: what a client
    /// sees of an outage. `None` with fewer than two answers. Silence before the first
    /// answer and after the last is not a gap; see [`losses`](Self::losses).
    pub longest_gap: Option<Gap>,
    pub longest_round_trip: Duration,
    /// Who answered, in order of appearance.
    pub turns: Vec<Turn>,
    /// Runs of lost probes, in order.
    pub losses: Vec<Loss>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    pub from: Mono,
    pub to: Mono,
}

impl Gap {
    pub fn length(&self) -> Duration {
        self.to.since(self.from)
    }
}

/// Answers in a row from one node, by the order in which probes were sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    pub node: String,
    pub answers: u64,
    /// When the first of them came.
    pub first: Mono,
    pub last: Mono,
}

/// Probes lost in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    pub probes: u64,
    /// When the first of them was sent.
    pub first: Mono,
    pub last: Mono,
}

impl VipReport {
    /// How many probes each node answered.
    pub fn answers_by_node(&self) -> BTreeMap<&str, u64> {
        let mut counts = BTreeMap::new();
        for turn in &self.turns {
            *counts.entry(turn.node.as_str()).or_default() += turn.answers;
        }
        counts
    }

    /// Who answered last.
    pub fn owner(&self) -> Option<&str> {
        self.turns.last().map(|turn| turn.node.as_str())
    }

    pub fn gap(&self) -> Duration {
        self.longest_gap.map(|gap| gap.length()).unwrap_or_default()
    }
}

impl Report {
    pub(super) fn of(
        vips: &[IpAddr],
        nodes: &[String],
        records: &[Record],
        lag: Lag,
        timeout: Duration,
        now: Mono,
    ) -> Self {
        let mut tallies: Vec<Tally> = vips.iter().map(|_| Tally::default()).collect();
        for record in records {
            tallies[record.vip as usize].add(record, nodes, timeout, now);
        }
        let vips = vips.iter().copied().zip(tallies.into_iter().map(Tally::finish)).collect();
        Self { vips, lag, timeout }
    }

    /// The report on one VIP.
    ///
    /// # Panics
    /// If it was not probed.
    pub fn vip(&self, vip: IpAddr) -> &VipReport {
        self.vips.get(&vip).unwrap_or_else(|| panic!("{vip} was not probed, only {:?}", self.vips.keys()))
    }

    pub fn sent(&self) -> u64 {
        self.vips.values().map(|vip| vip.sent).sum()
    }

    pub fn lost(&self) -> u64 {
        self.vips.values().map(|vip| vip.lost).sum()
    }

    /// The longest gap of any VIP.
    pub fn gap(&self) -> Duration {
        self.vips.values().map(VipReport::gap).max().unwrap_or_default()
    }
}

#[derive(Default)]
struct Tally {
    report: VipReport,
    arrivals: Vec<Mono>,
    losing: bool,
}

impl Tally {
    fn add(&mut self, record: &Record, nodes: &[String], timeout: Duration, now: Mono) {
        let report = &mut self.report;
        report.sent += 1;
        let in_time = record.answer.filter(|(at, _)| at.since(record.sent) <= timeout);
        let Some((at, node)) = in_time else {
            if record.answer.is_none() && now.since(record.sent) <= timeout {
                report.in_flight += 1;
                return;
            }
            report.lost += 1;
            report.late += u64::from(record.answer.is_some());
            match report.losses.last_mut() {
                Some(loss) if self.losing => {
                    loss.probes += 1;
                    loss.last = record.sent;
                }
                _ => report.losses.push(Loss { probes: 1, first: record.sent, last: record.sent }),
            }
            self.losing = true;
            return;
        };
        self.losing = false;
        report.answered += 1;
        report.longest_round_trip = report.longest_round_trip.max(at.since(record.sent));
        self.arrivals.push(at);
        let node = &nodes[node as usize];
        match report.turns.last_mut() {
            Some(turn) if turn.node == *node => {
                turn.answers += 1;
                turn.last = turn.last.max(at);
            }
            _ => report.turns.push(Turn { node: node.clone(), answers: 1, first: at, last: at }),
        }
    }

    fn finish(mut self) -> VipReport {
        // Answers may overtake one another; a gap is silence, whoever comes next.
        self.arrivals.sort_unstable();
        let gaps = self.arrivals.windows(2).map(|pair| Gap { from: pair[0], to: pair[1] });
        self.report.longest_gap = gaps.max_by_key(Gap::length);
        self.report
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (vip, report) in &self.vips {
            writeln!(f, "{vip}: {report}")?;
        }
        let Lag { worst, late, skipped } = self.lag;
        write!(f, "prober: worst lag {worst:.1?}, {late} late, {skipped} skipped")
    }
}

impl fmt::Display for VipReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sent, {} lost, longest gap {:.1?}, answered by", self.sent, self.lost, self.gap())?;
        for turn in &self.turns {
            write!(f, " {} ({} from {} to {})", turn.node, turn.answers, turn.first, turn.last)?;
        }
        if self.turns.is_empty() {
            write!(f, " nobody")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
