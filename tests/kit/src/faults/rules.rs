//! What is to go wrong with which requests.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::embedded::{Target, Verb};

type Predicate = dyn Fn(&Target) -> bool + Send + Sync;

/// Which requests a fault is for. All, by default.
#[derive(Clone, Default)]
pub struct Matcher {
    verbs: Vec<Verb>,
    resources: Vec<String>,
    also: Option<Arc<Predicate>>,
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matcher {{ verbs: {:?}, resources: {:?} }}", self.verbs, self.resources)
    }
}

impl Matcher {
    pub fn all() -> Matcher {
        Matcher::default()
    }

    /// Requests about this resource, `leases` or `services/status`; several may be named.
    pub fn of(mut self, resource: &str) -> Self {
        self.resources.push(resource.to_string());
        self
    }

    /// Requests with this verb; several may be named.
    pub fn on(mut self, verb: Verb) -> Self {
        self.verbs.push(verb);
        self
    }

    /// Requests that change something.
    pub fn on_writes(mut self) -> Self {
        self.verbs.extend([Verb::Create, Verb::Update, Verb::Patch, Verb::Delete, Verb::DeleteCollection]);
        self
    }

    /// Requests this says yes to, too.
    pub fn when(mut self, also: impl Fn(&Target) -> bool + Send + Sync + 'static) -> Self {
        self.also = Some(Arc::new(also));
        self
    }

    pub(super) fn matches(&self, target: &Target) -> bool {
        (self.verbs.is_empty() || self.verbs.contains(&target.verb))
            && (self.resources.is_empty() || self.resources.contains(&target.resource()))
            && self.also.as_ref().is_none_or(|also| also(target))
    }
}

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Delay {
        fixed: Duration,
        jitter: Duration,
    },
    Answer {
        code: u16,
        retry_after: Option<u32>,
    },
    /// The connection breaks before the server hears of the request.
    Drop,
    /// The server does what is asked, and the connection breaks before it can say so.
    LoseAnswer,
    /// The request waits in the proxy, and goes on when the fault is over.
    Stall,
    /// The server does what is asked; its answer waits until the fault is over.
    StallAnswer,
    /// A watch opens, says that its version is too old, and ends.
    Stale,
}

/// A fault to inject.
#[derive(Debug, Clone)]
pub struct Fault {
    action: Action,
    matcher: Matcher,
    left: Option<u64>,
    probability: f64,
}

impl Fault {
    fn new(action: Action) -> Fault {
        Fault { action, matcher: Matcher::all(), left: None, probability: 1.0 }
    }

    /// Requests reach the server later.
    pub fn latency(fixed: Duration) -> Fault {
        Self::new(Action::Delay { fixed, jitter: Duration::ZERO })
    }

    /// Later by between `fixed` and `fixed + jitter`, evenly.
    pub fn latency_between(fixed: Duration, jitter: Duration) -> Fault {
        Self::new(Action::Delay { fixed, jitter })
    }

    /// Answered with this code, and the Status body that goes with it; the server does
    /// not hear of the request.
    pub fn answer(code: u16) -> Fault {
        Self::new(Action::Answer { code, retry_after: None })
    }

    /// 429, asking to wait.
    pub fn too_many_requests(retry_after: u32) -> Fault {
        Self::new(Action::Answer { code: 429, retry_after: Some(retry_after) })
    }

    /// The connection breaks before the server hears of the request.
    pub fn dropped() -> Fault {
        Self::new(Action::Drop)
    }

    /// The server does what is asked; the client never learns of it.
    pub fn lost_answer() -> Fault {
        Self::new(Action::LoseAnswer)
    }

    /// Accepted and not answered; goes on to the server when the fault is over, unless
    /// the client has left by then.
    pub fn stalled() -> Fault {
        Self::new(Action::Stall)
    }

    /// Done by the server at once, answered when the fault is over.
    pub fn stalled_answer() -> Fault {
        Self::new(Action::StallAnswer)
    }

    /// Watches open with a 410 in their stream, as a version that is too old gets.
    pub fn stale_watches() -> Fault {
        Self::new(Action::Stale).on(Verb::Watch)
    }

    /// Only for requests with this verb; several may be named.
    pub fn on(mut self, verb: Verb) -> Self {
        self.matcher = self.matcher.on(verb);
        self
    }

    /// Only for requests that change something.
    pub fn on_writes(mut self) -> Self {
        self.matcher = self.matcher.on_writes();
        self
    }

    /// Only for requests about this resource; several may be named.
    pub fn of(mut self, resource: &str) -> Self {
        self.matcher = self.matcher.of(resource);
        self
    }

    /// Only for requests this says yes to.
    pub fn when(mut self, also: impl Fn(&Target) -> bool + Send + Sync + 'static) -> Self {
        self.matcher = self.matcher.when(also);
        self
    }

    /// Only for the next `count` requests that match.
    pub fn times(mut self, count: u64) -> Self {
        self.left = Some(count);
        self
    }

    /// With this probability, drawn from the proxy's seeded numbers in the order of requests.
    pub fn with_probability(mut self, probability: f64) -> Self {
        self.probability = probability;
        self
    }
}

#[derive(Debug)]
struct Rule {
    id: u64,
    fault: Fault,
    hits: Arc<AtomicU64>,
    over: CancellationToken,
}

/// One decision about one request.
#[derive(Debug, Clone)]
pub(super) struct Decision {
    pub(super) action: Action,
    /// How long, where the action is a delay.
    pub(super) delay: Duration,
    /// Ends with the fault.
    pub(super) over: CancellationToken,
}

#[derive(Debug)]
struct Inner {
    rules: Vec<Rule>,
    next: u64,
    random: u64,
}

/// The faults of one proxy.
#[derive(Debug)]
pub(super) struct Rules(Mutex<Inner>);

impl Rules {
    pub(super) fn new(seed: u64) -> Arc<Rules> {
        Arc::new(Rules(Mutex::new(Inner { rules: Vec::new(), next: 0, random: seed })))
    }

    pub(super) fn add(self: &Arc<Self>, fault: Fault) -> Injected {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.next += 1;
        let id = inner.next;
        let (hits, over) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
        inner.rules.push(Rule { id, fault, hits: hits.clone(), over: over.clone() });
        Injected { rules: self.clone(), id, hits, _over: over.drop_guard() }
    }

    /// What is to happen to a request, in the order the faults were injected.
    pub(super) fn decide(&self, target: &Target) -> Vec<Decision> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { rules, random, .. } = &mut *inner;
        let mut decisions = Vec::new();
        for rule in rules.iter_mut().filter(|rule| rule.fault.matcher.matches(target)) {
            if rule.fault.left == Some(0) || unit(random) >= rule.fault.probability {
                continue;
            }
            if let Some(left) = &mut rule.fault.left {
                *left -= 1;
            }
            rule.hits.fetch_add(1, Ordering::Relaxed);
            let delay = match rule.fault.action {
                Action::Delay { fixed, jitter } => fixed + jitter.mul_f64(unit(random)),
                _ => Duration::ZERO,
            };
            decisions.push(Decision { action: rule.fault.action, delay, over: rule.over.clone() });
        }
        decisions
    }
}

/// The next number in [0, 1): SplitMix64, so that a seed means the same everywhere.
fn unit(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    (z >> 11) as f64 / (1_u64 << 53) as f64
}

/// A fault in force; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the fault ends when this is dropped"]
pub struct Injected {
    rules: Arc<Rules>,
    id: u64,
    hits: Arc<AtomicU64>,
    _over: tokio_util::sync::DropGuard,
}

impl Injected {
    /// How many requests it has met.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Ends the fault.
    pub fn end(self) {}
}

impl Drop for Injected {
    fn drop(&mut self) {
        let mut inner = self.rules.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.rules.retain(|rule| rule.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn leases(method: Method) -> Target {
        Target::of(&method, &"/apis/coordination.k8s.io/v1/namespaces/a/leases/b".parse().unwrap())
    }

    fn drawn(seed: u64) -> Vec<bool> {
        let rules = Rules::new(seed);
        let _fault = rules.add(Fault::answer(500).with_probability(0.3));
        (0..200).map(|_| !rules.decide(&leases(Method::GET)).is_empty()).collect()
    }

    #[test]
    fn a_seed_means_the_same_every_time() {
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
        let hits = drawn(7).iter().filter(|hit| **hit).count();
        assert!((30..90).contains(&hits), "{hits} of 200 at 0.3");
    }

    #[test]
    fn a_fault_meets_what_it_names_as_often_as_it_says() {
        let rules = Rules::new(0);
        let fault = rules.add(Fault::answer(409).on(Verb::Patch).of("leases").times(2));
        assert!(rules.decide(&leases(Method::GET)).is_empty());
        let met = (0..5).filter(|_| !rules.decide(&leases(Method::PATCH)).is_empty()).count();
        assert_eq!((met, fault.hits()), (2, 2));
        let all = rules.add(Fault::dropped().when(|target| target.name == "b"));
        assert_eq!(rules.decide(&leases(Method::GET)).len(), 1);
        all.end();
        assert!(rules.decide(&leases(Method::GET)).is_empty());
    }
}
