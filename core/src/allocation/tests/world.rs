//! A cluster in memory: Services whose owners edit them, and an adapter that carries
//! out every decision at once.

use std::collections::{BTreeMap, BTreeSet};

use crate::allocation::*;
use crate::facts::PoolType;
use crate::ids::{Family, ObjectKey, Vip};
use crate::pools::{
    Families, Group, GroupName, PoolText, Port, Protocol, Range, RangeRules, SharingKey, SharingTerms,
};

pub(super) const SYSTEM: &str = "purelb-system";

pub(super) fn vip(text: &str) -> Vip {
    text.parse().unwrap()
}

pub(super) fn name(group: &str) -> GroupName {
    GroupName::of(SYSTEM, group).unwrap()
}

/// A local group; `pools` as (pool, subnet), the family is read from the text.
pub(super) fn mk_group(group: &str, created: i64, pools: &[(&str, &str)]) -> GroupSpec {
    let ranges = pools
        .iter()
        .enumerate()
        .map(|(i, (pool, subnet))| {
            let (family, field) = if pool.contains(':') {
                (Family::V6, format!("spec.local.v6pools[{i}]"))
            } else {
                (Family::V4, format!("spec.local.v4pools[{i}]"))
            };
            let text = PoolText { pool, subnet, aggregation: "default" };
            Range::parse(&field, text, family, &RangeRules::default()).unwrap()
        })
        .collect();
    let group = Group::new(name(group), created, ranges).unwrap();
    GroupSpec {
        name: group.name().clone(),
        created,
        announce: PoolType::Local,
        skip_ipv6_dad: false,
        source: GroupSource::Ranges { group, multi_pool: false, balance_pools: false },
        namespaces: BTreeSet::new(),
        namespace_default: false,
        enforce_namespaces: false,
    }
}

pub(super) fn mk_provider(group: &str) -> GroupSpec {
    GroupSpec { source: GroupSource::Provider, announce: PoolType::Remote, ..mk_group(group, 1, &[]) }
}

pub(super) fn multi(mut spec: GroupSpec) -> GroupSpec {
    if let GroupSource::Ranges { multi_pool, .. } = &mut spec.source {
        *multi_pool = true;
    }
    spec
}

pub(super) fn balanced(mut spec: GroupSpec) -> GroupSpec {
    if let GroupSource::Ranges { balance_pools, .. } = &mut spec.source {
        *balance_pools = true;
    }
    spec
}

pub(super) fn for_namespaces(mut spec: GroupSpec, namespaces: &[&str]) -> GroupSpec {
    spec.namespaces = namespaces.iter().map(ToString::to_string).collect();
    spec
}

pub(super) fn enforced(mut spec: GroupSpec, namespaces: &[&str]) -> GroupSpec {
    spec.enforce_namespaces = true;
    for_namespaces(spec, namespaces)
}

pub(super) fn mk_service(key: &str) -> ServiceAsk {
    ServiceAsk {
        key: ObjectKey::new(key).unwrap(),
        uid: format!("uid of {key}"),
        created: 0,
        whose: ServiceOwner::Ours,
        marked: false,
        held: Vec::new(),
        from: None,
        pool_type: None,
        skip_ipv6_dad: false,
        group: None,
        explicit: Ok(Vec::new()),
        deprecated_field: false,
        families: Families::One(Family::V4),
        terms: SharingTerms { sharing: None, ports: [Port::new(Protocol::Tcp, 80)].into(), pods: None },
        multi_pool: None,
        re_evaluate: false,
        told: None,
    }
}

pub(super) fn sharing(mut ask: ServiceAsk, key: &str, port: u16) -> ServiceAsk {
    ask.terms = SharingTerms::shared(SharingKey::new(key).unwrap(), [Port::new(Protocol::Tcp, port)]);
    ask
}

pub(super) fn asking_for(mut ask: ServiceAsk, ips: &[&str]) -> ServiceAsk {
    ask.explicit = Ok(ips.iter().map(|ip| vip(ip)).collect());
    ask
}

pub(super) fn of_group(mut ask: ServiceAsk, group: &str) -> ServiceAsk {
    ask.group = Some(group.to_owned());
    ask
}

/// What a provider would do.
pub(super) type Provider = Box<dyn FnMut(&ProviderQuestion) -> Result<Vec<Vip>, String>>;

pub(super) struct World {
    pub(super) book: Allocations,
    pub(super) objects: BTreeMap<ObjectKey, ServiceAsk>,
    /// `event kind: service`, in order.
    pub(super) events: Vec<String>,
    pub(super) writes: usize,
    /// How often a Service was looked at.
    pub(super) decisions: usize,
    pub(super) provider: Provider,
}

impl World {
    pub(super) fn new(groups: Vec<GroupSpec>) -> Self {
        let mut book = Allocations::new(SYSTEM, "default").unwrap();
        book.set_groups(groups, BTreeMap::new());
        let provider: Provider = Box::new(|_| Err("there is no provider".into()));
        Self { book, objects: BTreeMap::new(), events: Vec::new(), writes: 0, decisions: 0, provider }
    }

    /// The allocator starts again and sees what is there.
    pub(super) fn restart(&mut self) {
        let groups: Vec<GroupSpec> = self.book.groups().values().cloned().collect();
        self.book = Allocations::new(SYSTEM, "default").unwrap();
        self.book.set_groups(groups, BTreeMap::new());
        for ask in self.objects.values() {
            self.book.observe(ask.clone());
        }
    }

    pub(super) fn set_groups(&mut self, groups: Vec<GroupSpec>) {
        self.book.set_groups(groups, BTreeMap::new());
        self.rest();
    }

    pub(super) fn put(&mut self, ask: ServiceAsk) {
        self.objects.insert(ask.key.clone(), ask.clone());
        self.book.observe(ask);
    }

    /// Creates or replaces a Service and waits until all is at rest.
    pub(super) fn apply(&mut self, ask: ServiceAsk) {
        self.put(ask);
        self.rest();
    }

    pub(super) fn edit(&mut self, key: &str, edit: impl FnOnce(&mut ServiceAsk)) {
        let mut ask = self.get(key).clone();
        edit(&mut ask);
        self.apply(ask);
    }

    pub(super) fn delete(&mut self, key: &str) {
        let key = ObjectKey::new(key).unwrap();
        self.objects.remove(&key);
        self.book.forget(&key);
        self.rest();
    }

    pub(super) fn get(&self, key: &str) -> &ServiceAsk {
        self.objects.get(&ObjectKey::new(key).unwrap()).unwrap()
    }

    /// Its addresses, joined by a comma.
    pub(super) fn ips(&self, key: &str) -> String {
        self.get(key).held.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// Reason of its condition, with a `!` if it does not hold.
    pub(super) fn told(&self, key: &str) -> String {
        match &self.get(key).told {
            None => String::new(),
            Some(told) => format!("{}{}", if told.holds { "" } else { "!" }, told.reason),
        }
    }

    pub(super) fn message(&self, key: &str) -> String {
        self.get(key).told.clone().map(|told| told.message).unwrap_or_default()
    }

    /// Carries out decisions until nothing is left to do.
    pub(super) fn rest(&mut self) {
        for _ in 0..10_000 {
            let Some(key) = self.book.take_next() else {
                self.check();
                return;
            };
            self.decisions += 1;
            match self.book.decide(&key) {
                Decision::Nothing => {}
                Decision::Write(change) => self.write(&key, &change),
                Decision::Ask(question) => {
                    self.book.busy(&key);
                    let answer = (self.provider)(&question);
                    self.book.answer(&key, question, answer);
                    self.book.settled(&key, WriteCertainty::Known);
                }
            }
        }
        panic!("does not come to rest: {:?}", self.events);
    }

    fn write(&mut self, key: &ObjectKey, change: &Change) {
        self.book.busy(key);
        self.writes += 1;
        let ask = self.objects.get_mut(key).unwrap();
        match &change.marks {
            Some(ServiceMarks::Set { group, pool, skip_ipv6_dad }) => {
                (ask.marked, ask.from, ask.pool_type) = (true, Some(group.clone()), Some(*pool));
                ask.skip_ipv6_dad = *skip_ipv6_dad;
            }
            Some(ServiceMarks::Clear) => {
                (ask.marked, ask.from, ask.pool_type, ask.skip_ipv6_dad) = (false, None, None, false);
            }
            None => {}
        }
        if change.evaluated {
            ask.re_evaluate = false;
        }
        // The adapter writes annotations first; the watch shows that state, too.
        self.book.observe(ask.clone());
        if let Some(ingress) = &change.ingress {
            ask.held.clone_from(ingress);
        }
        if let Some(told) = &change.told {
            ask.told = Some(told.clone());
        }
        self.events.extend(change.notes.iter().map(|note| format!("{}: {key}", note.kind.as_str())));
        self.book.observe(ask.clone());
        self.book.settled(key, WriteCertainty::Known);
    }

    /// No address is with two Services that did not agree, and the ledger says what
    /// the Services show.
    fn check(&self) {
        let conflicts: Vec<_> = self.book.pools().conflicts().collect();
        assert!(conflicts.is_empty(), "{conflicts:?}");
        for ask in self.objects.values() {
            let held: BTreeSet<Vip> = self.book.pools().addresses_of(&ask.key).collect();
            assert_eq!(held, ask.held.iter().copied().collect(), "{}", ask.key);
        }
    }
}
