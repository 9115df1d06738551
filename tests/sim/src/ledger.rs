//! What the checks did: how often each rule was judged, how often it was waived and
//! why, and for how much of the simulated time it was in force. A rule that is waived
//! most of the time guards nothing, and nobody would see it otherwise.

use std::collections::BTreeMap;

/// Rules whose hold on the world is measured by sampling it.
pub const RULES: [Rule; 11] = [
    Rule::Fence,
    Rule::Lifetime,
    Rule::SecondOwner,
    Rule::Overlap,
    Rule::Gap,
    Rule::Vacancy,
    Rule::PutBack,
    Rule::Flap,
    Rule::Mark,
    Rule::Early,
    Rule::Taken,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// R2: at the renew deadline everything is off the node.
    Fence,
    /// R3: no lifetime reaches past the fence.
    Lifetime,
    /// R2: who takes an address that another has is, or just was, its winner.
    SecondOwner,
    /// R1, R7: of two holders one is soon gone.
    Overlap,
    /// R7: no address loses its last holder while somebody is able to have it.
    Gap,
    /// R1: an address that somebody able could have is not without a holder for long.
    Vacancy,
    /// R6: what is taken away by hand comes back.
    PutBack,
    /// R8: nothing comes to a link that flaps.
    Flap,
    /// R12: nothing is taken early without a witness, answers before and silence after.
    Early,
    /// R12: what a machine had that is gone is soon somebody's.
    Taken,
    /// R4, R9: only what is ours is touched, only what the kernel shows is announced.
    Mark,
}

impl Rule {
    pub fn name(self) -> &'static str {
        match self {
            Self::Fence => "R2 fence",
            Self::Lifetime => "R3 lifetime",
            Self::SecondOwner => "R2 second owner",
            Self::Overlap => "R7 overlap",
            Self::Gap => "R7 gap",
            Self::Vacancy => "R1 vacancy",
            Self::PutBack => "R6 put back",
            Self::Flap => "R8 flap",
            Self::Early => "R12 early",
            Self::Taken => "R12 bar",
            Self::Mark => "R4/R9 mark",
        }
    }
}

/// Samples in which a rule had something to say, and those in which it was not waived.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    pub of: u64,
    pub held: u64,
}

impl Share {
    fn add(&mut self, held: bool) {
        self.of += 1;
        self.held += u64::from(held);
    }

    fn merge(&mut self, other: Self) {
        self.of += other.of;
        self.held += other.held;
    }

    /// `None`: never had anything to say.
    pub fn percent(self) -> Option<f64> {
        (self.of > 0).then(|| 100.0 * self.held as f64 / self.of as f64)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Ledger {
    judged: BTreeMap<Rule, u64>,
    waived: BTreeMap<(Rule, &'static str), u64>,
    /// While faults and changes happen, and over the whole run.
    active: BTreeMap<Rule, Share>,
    all: BTreeMap<Rule, Share>,
    /// Why a rule was not in force, in samples.
    why: BTreeMap<(Rule, &'static str), u64>,
}

impl Ledger {
    pub fn judged(&mut self, rule: Rule) {
        *self.judged.entry(rule).or_default() += 1;
    }

    pub fn waived(&mut self, rule: Rule, why: &'static str) {
        *self.waived.entry((rule, why)).or_default() += 1;
    }

    /// One look at one thing the rule is about. `waiver`: why it would not count now.
    pub fn sample(&mut self, rule: Rule, active: bool, waiver: Option<&'static str>) {
        self.all.entry(rule).or_default().add(waiver.is_none());
        if active {
            self.active.entry(rule).or_default().add(waiver.is_none());
        }
        if let Some(why) = waiver {
            *self.why.entry((rule, why)).or_default() += 1;
        }
    }

    pub fn merge(&mut self, other: Self) {
        for (rule, n) in other.judged {
            *self.judged.entry(rule).or_default() += n;
        }
        for (key, n) in other.waived {
            *self.waived.entry(key).or_default() += n;
        }
        for (rule, share) in other.active {
            self.active.entry(rule).or_default().merge(share);
        }
        for (rule, share) in other.all {
            self.all.entry(rule).or_default().merge(share);
        }
        for (key, n) in other.why {
            *self.why.entry(key).or_default() += n;
        }
    }

    pub fn share(&self, rule: Rule) -> Share {
        self.all.get(&rule).copied().unwrap_or_default()
    }

    pub fn active_share(&self, rule: Rule) -> Share {
        self.active.get(&rule).copied().unwrap_or_default()
    }

    /// One line per rule: its shares, how often it was judged, every excuse with how
    /// often it was used and how much of the time it stood.
    pub fn describe(&self) -> Vec<String> {
        let text = |share: Share| share.percent().map_or("-".to_owned(), |p| format!("{p:.1} %"));
        RULES
            .into_iter()
            .map(|rule| {
                let of = self.share(rule).of.max(1) as f64;
                let reasons: std::collections::BTreeSet<&str> =
                    self.waived.keys().chain(self.why.keys()).filter(|k| k.0 == rule).map(|k| k.1).collect();
                let excuses: Vec<String> = reasons
                    .into_iter()
                    .map(|why| {
                        let stood = self.why.get(&(rule, why)).copied().unwrap_or(0) as f64;
                        let used = self.waived.get(&(rule, why)).copied().unwrap_or(0);
                        format!("{why} {:.1} % ({used})", 100.0 * stood / of)
                    })
                    .collect();
                format!(
                    "{:<15} in force {:>7}, amid faults {:>7}, judged {:>9}; waived: {}",
                    rule.name(),
                    text(self.share(rule)),
                    text(self.active_share(rule)),
                    self.judged.get(&rule).copied().unwrap_or(0),
                    if excuses.is_empty() { "never".to_owned() } else { excuses.join(", ") },
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_excuses_add_up_over_runs() {
        let (mut a, mut b) = (Ledger::default(), Ledger::default());
        a.sample(Rule::Gap, true, None);
        a.sample(Rule::Gap, false, Some("trouble"));
        b.sample(Rule::Gap, true, Some("trouble"));
        b.sample(Rule::Gap, false, None);
        b.judged(Rule::Gap);
        b.waived(Rule::Gap, "trouble");
        a.merge(b);
        assert_eq!(a.share(Rule::Gap).percent(), Some(50.0));
        assert_eq!(a.active_share(Rule::Gap).percent(), Some(50.0));
        assert_eq!(a.share(Rule::Fence).percent(), None);
        let line = a.describe().into_iter().find(|l| l.starts_with("R7 gap")).unwrap();
        assert!(line.contains("trouble 50.0 % (1)") && line.contains("judged         1"), "{line}");
    }
}
