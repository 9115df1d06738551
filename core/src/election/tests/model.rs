//! The table against the rule written down naively: everything is recomputed by sorting
//! all members, after every step of random histories.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

use super::super::*;

const NODES: [&str; 7] = [
    "a",
    "b",
    "node-c",
    "node-d",
    "ip-10-0-12-34.eu-central-1.compute.internal",
    "a-node-with-a-name-of-exactly-sixty-three-bytes-which-is-a-bloc",
    "#",
];

const NETS: [&str; 18] = [
    "0.0.0.0/0",
    "10.0.0.0/8",
    "10.0.0.0/16",
    "10.0.0.7/24",
    "10.0.0.0/24",
    "10.0.1.0/24",
    "10.0.0.1/32",
    "11.0.0.0/32",
    "::ffff:10.0.0.0/104",
    "::/0",
    "fd00::/16",
    "fd00::5/48",
    "fd00::/64",
    "fd00::1/128",
    "fd00:1::/32",
    "::ffff:0:0/95",
    "::ffff:0:0/96",
    "ff00::/8",
];

const VIPS: [&str; 14] = [
    "0.0.0.0",
    "10.0.0.0",
    "10.0.0.1",
    "10.0.0.255",
    "10.0.1.0",
    "10.1.0.5",
    "11.0.0.0",
    "255.255.255.255",
    "::1",
    "::fffe:102:304",
    "fd00::1",
    "fd00::ffff:0:0:1",
    "fd00:1::1",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
];

#[derive(Clone, Debug)]
enum Op {
    Members(Vec<MemberChange>),
    Track(Vip, Restriction),
    Untrack(Vip),
    TakeChanges,
}

fn any_node() -> impl Strategy<Value = NodeName> {
    select(&NODES[..]).prop_map(|name| NodeName::new(name).unwrap())
}

fn any_vip() -> impl Strategy<Value = Vip> {
    select(&VIPS[..]).prop_map(|ip| ip.parse().unwrap())
}

fn any_set() -> impl Strategy<Value = BTreeSet<NodeName>> {
    subsequence(&NODES[..], 0..=NODES.len())
        .prop_map(|names| names.iter().map(|name| NodeName::new(name).unwrap()).collect())
}

fn any_restriction() -> impl Strategy<Value = Restriction> {
    prop_oneof![
        3 => Just(Restriction::None),
        2 => any_set().prop_map(Restriction::Nodes),
        2 => any_set().prop_map(Restriction::Prefer),
        1 => (any_set(), any_set()).prop_map(|(only, prefer)| Restriction::Both { only, prefer }),
    ]
}

fn any_member_change() -> impl Strategy<Value = MemberChange> {
    let declined = prop_oneof![
        3 => Just(BTreeSet::new()),
        1 => prop::collection::btree_set(any_vip(), 0..4),
    ];
    let rank = prop_oneof![4 => Just(Rank::First), 1 => Just(Rank::Last)];
    let candidacy = (vec(select(&NETS[..]), 0..5), prop::bool::weighted(0.85), declined, rank);
    prop_oneof![
        3 => (any_node(), candidacy).prop_map(|(node, (nets, eligible, declined, rank))| {
            let subnets = nets.iter().map(|net| net.parse().unwrap()).collect();
            MemberChange::Upsert(node, Candidacy { subnets, eligible, declined, rank })
        }),
        1 => any_node().prop_map(MemberChange::Remove),
    ]
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => any_member_change().prop_map(|change| Op::Members(vec![change])),
        1 => vec(any_member_change(), 0..6).prop_map(Op::Members),
        4 => (any_vip(), any_restriction()).prop_map(|(vip, restriction)| Op::Track(vip, restriction)),
        1 => any_vip().prop_map(Op::Untrack),
        3 => Just(Op::TakeChanges),
    ]
}

#[derive(Default)]
struct Model {
    members: BTreeMap<NodeName, Candidacy>,
    tracked: BTreeMap<Vip, Restriction>,
    taken: BTreeMap<Vip, NodeName>,
}

/// The plain sentence of the rule: a subnet contains a VIP, an IPv4 one also in its mapped form.
fn contains(net: &IpNet, vip: Vip) -> bool {
    match vip.ip() {
        IpAddr::V4(v4) => {
            let mapped = IpAddr::V6(v4.to_ipv6_mapped());
            net.contains(&vip.ip()) || (net.prefix_len() >= 96 && net.contains(&mapped))
        }
        v6 @ IpAddr::V6(_) => net.contains(&v6),
    }
}

impl Model {
    fn change(&mut self, change: MemberChange) {
        match change {
            MemberChange::Upsert(node, candidacy) => {
                self.members.insert(node, candidacy);
            }
            MemberChange::Remove(node) => {
                self.members.remove(&node);
            }
        }
    }

    fn order(&self, vip: Vip, restriction: &Restriction) -> Vec<RankedCandidate> {
        let (only, prefer) = match restriction {
            Restriction::None => (None, None),
            Restriction::Nodes(only) => (Some(only), None),
            Restriction::Prefer(prefer) => (None, Some(prefer)),
            Restriction::Both { only, prefer } => (Some(only), Some(prefer)),
        };
        let mut order = Vec::new();
        for (node, candidacy) in &self.members {
            let stands = candidacy.eligible && candidacy.subnets.iter().any(|net| contains(net, vip));
            let stands = stands && !candidacy.declined.contains(&vip);
            if stands && only.is_none_or(|set| set.contains(node)) {
                let preferred = prefer.is_none_or(|set| set.contains(node));
                order.push(RankedCandidate {
                    node: node.clone(),
                    score: score(node.as_str(), &vip.to_string()),
                    tier: if preferred { CandidateTier::First } else { CandidateTier::Fallback },
                    rank: candidacy.rank,
                });
            }
        }
        order.sort_by_key(|ranked| (ranked.rank, ranked.tier, ranked.score));
        order
    }

    fn winners(&self) -> BTreeMap<Vip, NodeName> {
        let winner = |(vip, restriction): (&Vip, &Restriction)| {
            let first = self.order(*vip, restriction).into_iter().next()?;
            Some((*vip, first.node))
        };
        self.tracked.iter().filter_map(winner).collect()
    }

    fn take_changes(&mut self) -> Vec<WinnerChange> {
        let now = self.winners();
        let before = std::mem::replace(&mut self.taken, now);
        let vips: BTreeSet<Vip> = before.keys().chain(self.taken.keys()).copied().collect();
        let changes = vips.into_iter().map(|vip| WinnerChange {
            vip,
            before: before.get(&vip).cloned(),
            after: self.taken.get(&vip).cloned(),
        });
        changes.filter(|change| change.before != change.after).collect()
    }

    fn by_subnet(&self) -> BTreeMap<IpNet, usize> {
        let mut members: BTreeMap<IpNet, BTreeSet<(&NodeName, bool)>> = BTreeMap::new();
        for (node, candidacy) in &self.members {
            for net in subnet_table::clean(candidacy.subnets.iter().copied()) {
                members.entry(net).or_default().insert((node, candidacy.eligible));
            }
        }
        let count = |(net, set): (IpNet, BTreeSet<(&NodeName, bool)>)| {
            (net, set.iter().filter(|(_, eligible)| *eligible).count())
        };
        members.into_iter().map(count).collect()
    }
}

/// Everything one can ask, compared.
fn check(election: &Election, model: &Model, out: &NodeName, what_if: &Restriction) {
    let winners = model.winners();
    for ip in VIPS {
        let vip: Vip = ip.parse().unwrap();
        let restriction = model.tracked.get(&vip).cloned().unwrap_or_default();
        let order = model.order(vip, &restriction);
        assert_eq!(election.order(vip), order, "order of {vip}");
        assert_eq!(election.elect(vip), order.first().cloned(), "{vip} from nothing");
        assert_eq!(election.candidates(vip), order.len(), "candidates of {vip}");
        let willing = Model {
            members: model
                .members
                .iter()
                .map(|(n, c)| (n.clone(), Candidacy { declined: BTreeSet::new(), ..c.clone() }))
                .collect(),
            ..Model::default()
        };
        let declined = order.is_empty() && !willing.order(vip, &restriction).is_empty();
        assert_eq!(election.all_declined(vip), declined, "all declined {vip}");
        assert_eq!(election.winner(vip), winners.get(&vip), "winner of {vip}");
        let standing = order.first().filter(|_| model.tracked.contains_key(&vip));
        assert_eq!(election.standing(vip).as_ref(), standing, "standing of {vip}");
        let rest: Vec<RankedCandidate> = order.into_iter().filter(|ranked| ranked.node != *out).collect();
        assert_eq!(election.order_without(vip, std::slice::from_ref(out)), rest);
        assert_eq!(election.order_under(vip, what_if), model.order(vip, what_if));
    }
    let tracked: Vec<(Vip, Option<&NodeName>)> = election.tracked().collect();
    let expected: Vec<(Vip, Option<&NodeName>)> =
        model.tracked.keys().map(|vip| (*vip, winners.get(vip))).collect();
    assert_eq!(tracked, expected);
    let won = winners.iter().filter(|(_, winner)| *winner == out);
    assert_eq!(election.won_by(out).collect::<Vec<_>>(), won.map(|(vip, _)| *vip).collect::<Vec<_>>());
    assert_eq!(election.candidates_by_subnet(), model.by_subnet());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_table_equals_the_naive_rule_after_every_step(
        ops in vec(any_op(), 1..60),
        outs in vec(any::<Index>(), 60),
        what_if in any_restriction(),
    ) {
        let mut election = Election::new();
        let mut model = Model::default();
        for (op, out) in ops.into_iter().zip(outs) {
            match op {
                Op::Members(mut changes) => {
                    for change in &changes {
                        model.change(change.clone());
                    }
                    match changes.pop() {
                        Some(MemberChange::Upsert(node, candidacy)) if changes.is_empty() => {
                            election.upsert_member(node, candidacy);
                        }
                        Some(MemberChange::Remove(node)) if changes.is_empty() => {
                            election.remove_member(&node);
                        }
                        last => election.apply(changes.into_iter().chain(last)),
                    }
                }
                Op::Track(vip, restriction) => {
                    election.track(vip, &restriction);
                    model.tracked.insert(vip, restriction);
                }
                Op::Untrack(vip) => {
                    election.untrack(vip);
                    model.tracked.remove(&vip);
                }
                Op::TakeChanges => prop_assert_eq!(election.take_changes(), model.take_changes()),
            }
            let out = NodeName::new(NODES[out.index(NODES.len())]).unwrap();
            check(&election, &model, &out, &what_if);
        }
        prop_assert_eq!(election.take_changes(), model.take_changes());

        // Nothing is left behind when everybody is gone.
        election.apply(model.members.into_keys().map(MemberChange::Remove));
        for vip in model.tracked.into_keys() {
            election.untrack(vip);
        }
        election.take_changes();
        prop_assert_eq!((election.field.nodes.in_use(), election.sets.len(), election.before.len()), (0, 0, 0));
        prop_assert_eq!(election.field.declined(), 0);
    }
}
