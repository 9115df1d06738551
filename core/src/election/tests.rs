//! The rule's vectors, and that a change costs only what it must. That the table is right
//! whatever happens to it is shown in [`model`].

mod model;

use std::collections::BTreeSet;

use super::*;

fn mk_node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn mk_vip(text: &str) -> Vip {
    text.parse().unwrap()
}

fn mk_set(names: &[&str]) -> BTreeSet<NodeName> {
    names.iter().map(|name| mk_node(name)).collect()
}

fn on(subnets: &[&str]) -> Candidacy {
    let subnets = subnets.iter().map(|net| net.parse().unwrap()).collect();
    Candidacy { subnets, eligible: true, declined: BTreeSet::new(), rank: Rank::First }
}

fn declining(subnets: &[&str], declined: &[&str]) -> Candidacy {
    Candidacy { declined: declined.iter().map(|ip| mk_vip(ip)).collect(), ..on(subnets) }
}

fn draining(subnets: &[&str]) -> Candidacy {
    Candidacy { eligible: false, ..on(subnets) }
}

fn last(subnets: &[&str]) -> Candidacy {
    Candidacy { rank: Rank::Last, ..on(subnets) }
}

const ALL: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// node-a, node-b and node-c, which contain every address.
fn mk_abc() -> Election {
    let mut election = Election::new();
    for name in ["node-a", "node-b", "node-c"] {
        election.upsert_member(mk_node(name), on(&ALL));
    }
    election
}

fn names(order: &[RankedCandidate]) -> Vec<&str> {
    order.iter().map(|ranked| ranked.node.as_str()).collect()
}

fn changes(election: &mut Election) -> Vec<(String, Option<String>, Option<String>)> {
    let text = |node: Option<NodeName>| node.map(String::from);
    let all = election.take_changes().into_iter();
    all.map(|c| (c.vip.to_string(), text(c.before), text(c.after))).collect()
}

fn moved(vip: &str, before: Option<&str>, after: Option<&str>) -> (String, Option<String>, Option<String>) {
    (vip.to_owned(), before.map(str::to_owned), after.map(str::to_owned))
}

#[test]
fn any_key_has_the_winner_other_implementations_give_it() {
    let nodes = ["test-node0", "test-node1", "test-node2"];
    for (key, winner) in
        [("test-key", "test-node0"), ("test-key-nodeXX", "test-node1"), ("test-key-foo", "test-node2")]
    {
        assert_eq!(nodes.into_iter().min_by_key(|node| score(node, key)), Some(winner), "{key}");
    }
}

#[test]
fn addresses_have_the_order_other_implementations_give_them() {
    let mut election = mk_abc();
    for (ip, order) in [
        ("192.168.1.100", ["node-c", "node-b", "node-a"]),
        ("192.168.1.101", ["node-c", "node-a", "node-b"]),
        ("192.168.1.102", ["node-c", "node-b", "node-a"]),
        ("fd00:1::f0", ["node-c", "node-b", "node-a"]),
        ("2001:db8::1", ["node-b", "node-a", "node-c"]),
        ("::ffff:192.168.1.101", ["node-c", "node-a", "node-b"]),
        ("FD00:1:0:0:0:0:0:00F0", ["node-c", "node-b", "node-a"]),
    ] {
        let vip = mk_vip(ip);
        assert_eq!(names(&election.order(vip)), order, "{ip}, not tracked");
        assert_eq!(election.elect(vip).unwrap(), election.order(vip)[0]);
        assert_eq!(election.winner(vip), None, "only a tracked VIP has a standing winner");
        election.track(vip, &Restriction::None);
        assert_eq!(election.winner(vip).unwrap().as_str(), order[0], "{ip}, tracked");
        assert_eq!(names(&election.order_without(vip, &[mk_node(order[0])])), order[1..]);
        election.untrack(vip);
    }
}

#[test]
fn the_widest_and_the_narrowest_subnet_make_equal_candidates() {
    let mut election = Election::new();
    election.upsert_member(mk_node("node-a"), on(&["192.168.1.101/32"]));
    election.upsert_member(mk_node("node-c"), on(&["192.168.7.7/16", "192.168.1.0/24"]));
    election.upsert_member(mk_node("node-b"), on(&["192.168.2.0/24", "::/0"]));
    let vip = mk_vip("192.168.1.101");
    assert_eq!(names(&election.order(vip)), ["node-c", "node-a"]);
    assert_eq!(election.candidates(vip), 2);
}

#[test]
fn a_draining_member_is_out_and_its_subnet_shows_zero() {
    let mut election = mk_abc();
    let vip = mk_vip("192.168.1.100");
    election.track(vip, &Restriction::None);
    election.take_changes();
    election.upsert_member(mk_node("node-c"), draining(&["10.0.0.9/24"]));
    assert_eq!(changes(&mut election), [moved("192.168.1.100", Some("node-c"), Some("node-b"))]);
    assert_eq!(names(&election.order(vip)), ["node-b", "node-a"]);
    let counts = election.candidates_by_subnet();
    assert_eq!(counts[&"10.0.0.0/24".parse().unwrap()], 0);
    assert_eq!(counts[&"0.0.0.0/0".parse().unwrap()], 2);
    assert_eq!(counts.len(), 3);
}

#[test]
fn a_restriction_to_nodes_leaves_nobody_else() {
    let mut election = mk_abc();
    let vip = mk_vip("192.168.1.100");
    election.track(vip, &Restriction::Nodes(mk_set(&["node-a", "not-a-member"])));
    assert_eq!(election.winner(vip), Some(&mk_node("node-a")));
    assert_eq!(names(&election.order(vip)), ["node-a"]);
    election.remove_member(&mk_node("node-a"));
    assert_eq!(election.winner(vip), None);
    assert_eq!(election.candidates(vip), 0);
    election.upsert_member(mk_node("not-a-member"), on(&ALL));
    assert_eq!(election.winner(vip), Some(&mk_node("not-a-member")));
}

#[test]
fn a_preference_falls_back_while_no_preferred_node_stands() {
    let mut election = mk_abc();
    let vip = mk_vip("192.168.1.100");
    election.track(vip, &Restriction::Prefer(mk_set(&["node-a"])));
    let standing = election.standing(vip).unwrap();
    assert_eq!((standing.node.as_str(), standing.tier), ("node-a", CandidateTier::First));
    assert_eq!(names(&election.order(vip)), ["node-a", "node-c", "node-b"]);

    election.upsert_member(mk_node("node-a"), draining(&ALL));
    let standing = election.standing(vip).unwrap();
    assert_eq!((standing.node.as_str(), standing.tier), ("node-c", CandidateTier::Fallback));

    election.upsert_member(mk_node("node-a"), on(&ALL));
    assert_eq!(election.standing(vip).unwrap().tier, CandidateTier::First);
    let both = Restriction::Both { only: mk_set(&["node-a", "node-b"]), prefer: mk_set(&["node-b"]) };
    assert_eq!(names(&election.order_under(vip, &both)), ["node-b", "node-a"]);
    assert_eq!(names(&election.order(vip)), ["node-a", "node-c", "node-b"], "a question changes nothing");
}

#[test]
fn changes_are_net_and_sorted_by_address() {
    let mut election = mk_abc();
    for ip in ["2001:db8::1", "192.168.1.101", "192.168.1.100"] {
        election.track(mk_vip(ip), &Restriction::None);
    }
    let appeared = [
        moved("192.168.1.100", None, Some("node-c")),
        moved("192.168.1.101", None, Some("node-c")),
        moved("2001:db8::1", None, Some("node-b")),
    ];
    assert_eq!(changes(&mut election), appeared);
    assert_eq!(changes(&mut election), []);

    election.remove_member(&mk_node("node-c"));
    election.upsert_member(mk_node("node-c"), on(&ALL));
    assert_eq!(changes(&mut election), [], "a winner that came back has not changed");

    election.remove_member(&mk_node("node-c"));
    election.untrack(mk_vip("192.168.1.100"));
    let left = [
        moved("192.168.1.100", Some("node-c"), None),
        moved("192.168.1.101", Some("node-c"), Some("node-a")),
    ];
    assert_eq!(changes(&mut election), left);
    assert_eq!(election.won_by(&mk_node("node-a")).collect::<Vec<_>>(), [mk_vip("192.168.1.101")]);
    assert_eq!(election.won_by(&mk_node("node-c")).count(), 0);
}

/// The last address of this prefix is an IPv4-mapped one: as a VIP it would be an IPv4
/// address, and the walk over the prefix would run backwards and panic.
#[test]
fn a_prefix_that_ends_in_the_mapped_range_is_walked() {
    let mut election = Election::new();
    let inside = mk_vip("::fffe:1:2");
    election.track(inside, &Restriction::None);
    election.track(mk_vip("1.0.0.2"), &Restriction::None);
    election.upsert_member(mk_node("node-a"), on(&["::ffff:0:0/95"]));
    assert_eq!(election.winner(inside), Some(&mk_node("node-a")));
    assert_eq!(election.winner(mk_vip("1.0.0.2")), None);
    election.upsert_member(mk_node("node-b"), on(&["::ffff:1.0.0.0/120"]));
    assert_eq!(election.winner(mk_vip("1.0.0.2")), Some(&mk_node("node-b")));
}

/// 30 nodes on one subnet, 40 VIPs in it and 7 elsewhere.
fn mk_cluster() -> Election {
    let mut election = Election::new();
    for n in 0..30 {
        election.upsert_member(mk_node(&format!("node-{n}")), on(&["10.0.0.0/24"]));
    }
    for n in 0..40 {
        election.track(mk_vip(&format!("10.0.0.{n}")), &Restriction::None);
    }
    for n in 0..7 {
        election.track(mk_vip(&format!("10.9.0.{n}")), &Restriction::None);
    }
    election
}

#[test]
fn a_change_hashes_only_what_it_can_change() {
    let mut election = mk_cluster();
    assert_eq!(election.hashes(), 30 * 40, "every candidate of every VIP, once");
    let cost = |election: &mut Election, change: &dyn Fn(&mut Election)| {
        let before = election.hashes();
        change(election);
        election.hashes() - before
    };

    let joined = cost(&mut election, &|e| {
        e.upsert_member(mk_node("new"), on(&["10.0.0.0/24"]));
    });
    assert_eq!(joined, 40, "a join is hashed once per VIP of its subnet");
    let again = cost(&mut election, &|e| {
        e.upsert_member(mk_node("new"), on(&["10.0.0.1/24"]));
    });
    assert_eq!(again, 0, "the same subnet again");
    let wider = cost(&mut election, &|e| {
        e.upsert_member(mk_node("new"), on(&["10.0.0.0/8", "10.0.0.0/24"]));
    });
    assert_eq!(wider, 7, "only VIPs that its old subnets did not contain");
    let narrower = cost(&mut election, &|e| {
        e.upsert_member(mk_node("new"), on(&["10.0.0.0/8"]));
    });
    assert_eq!(narrower, 0, "another of its subnets still contains them");

    let won = election.won_by(&mk_node("node-3")).count() as u64;
    assert!(won > 0, "node-3 wins something here, else the next line shows nothing");
    let left = cost(&mut election, &|e| e.remove_member(&mk_node("node-3")));
    assert_eq!(left, won * 30, "only VIPs it was winning, over those that are left");

    let only = Restriction::Nodes(mk_set(&["node-1", "node-2"]));
    let restricted = cost(&mut election, &|e| e.track(mk_vip("10.0.0.1"), &only));
    assert_eq!(restricted, 2, "only those the restriction names");
    let again = cost(&mut election, &|e| e.track(mk_vip("10.0.0.1"), &only));
    assert_eq!(again, 0, "the same restriction again");

    let prefer = Restriction::Prefer(mk_set(&["node-1", "node-2"]));
    let preferring = cost(&mut election, &|e| e.track(mk_vip("10.0.0.1"), &prefer));
    assert_eq!(preferring, 2, "the fallback is not hashed while a preferred node stands");
    let joined = cost(&mut election, &|e| {
        e.upsert_member(mk_node("late"), on(&["10.0.0.1/32"]));
    });
    assert_eq!(joined, 0, "nor is a newcomer that could only be fallback");
}

#[test]
fn a_batch_decides_each_vip_once() {
    let mut election = mk_cluster();
    let before = election.hashes();
    let rest = (1..30).map(|n| MemberChange::Remove(mk_node(&format!("node-{n}"))));
    election.apply(rest);
    assert!(election.hashes() - before <= 40, "one candidate is left for 40 VIPs");
    assert_eq!(election.won_by(&mk_node("node-0")).count(), 40);

    // It goes, comes, goes again, and another one comes: 40 VIPs with one candidate.
    let before = election.hashes();
    let (last, other) = (mk_node("node-0"), mk_node("other"));
    election.apply([
        MemberChange::Remove(last.clone()),
        MemberChange::Upsert(last.clone(), on(&["10.0.0.0/24"])),
        MemberChange::Remove(last),
        MemberChange::Upsert(other.clone(), on(&["10.0.0.0/24"])),
    ]);
    assert_eq!(election.hashes() - before, 40);
    assert_eq!(election.won_by(&other).count(), 40);
}

#[test]
fn equal_sets_are_kept_once_and_forgotten_with_their_last_vip() {
    let mut election = Election::new();
    let only = Restriction::Nodes(mk_set(&["x", "y"]));
    let prefer = Restriction::Prefer(mk_set(&["x", "y"]));
    election.track(mk_vip("10.0.0.1"), &only);
    election.track(mk_vip("10.0.0.2"), &prefer);
    assert_eq!((election.sets.len(), election.field.nodes.in_use()), (1, 2));
    election.track(mk_vip("10.0.0.2"), &Restriction::Nodes(mk_set(&["y", "z"])));
    assert_eq!((election.sets.len(), election.field.nodes.in_use()), (2, 3));
    election.untrack(mk_vip("10.0.0.1"));
    election.untrack(mk_vip("10.0.0.2"));
    assert_eq!((election.sets.len(), election.field.nodes.in_use()), (0, 0));
}

#[test]
fn who_declines_an_address_leaves_it_to_the_next_and_gets_it_back() {
    let mut election = mk_abc();
    let vip = mk_vip("192.168.1.101");
    for other in [vip, mk_vip("192.168.1.100")] {
        election.track(other, &Restriction::None);
    }
    election.take_changes();
    election.upsert_member(mk_node("node-c"), declining(&ALL, &["192.168.1.101"]));
    assert_eq!(changes(&mut election), [moved("192.168.1.101", Some("node-c"), Some("node-a"))]);
    assert_eq!(names(&election.order(vip)), ["node-a", "node-b"]);
    assert_eq!(election.candidates(vip), 2);
    for name in ["node-a", "node-b"] {
        election.upsert_member(mk_node(name), declining(&ALL, &["192.168.1.101"]));
    }
    assert_eq!(election.winner(vip), None);
    assert!(election.all_declined(vip) && !election.all_declined(mk_vip("192.168.1.100")));
    election.upsert_member(mk_node("node-c"), on(&ALL));
    assert_eq!(changes(&mut election), [moved("192.168.1.101", Some("node-a"), Some("node-c"))]);
}

#[test]
fn whoever_ranks_last_wins_only_among_the_last() {
    let mut election = mk_abc();
    let vip = mk_vip("192.168.1.100");
    election.track(vip, &Restriction::None);
    let order: Vec<NodeName> = election.order(vip).into_iter().map(|r| r.node).collect();
    election.upsert_member(order[0].clone(), last(&ALL));
    assert_eq!(election.winner(vip), Some(&order[1]));
    let behind = [&order[1], &order[2], &order[0]].map(Clone::clone);
    assert_eq!(election.order(vip).into_iter().map(|r| r.node).collect::<Vec<_>>(), behind);
    // Everybody is: it is as if nobody were.
    for node in &order[1..] {
        election.upsert_member(node.clone(), last(&ALL));
    }
    assert_eq!(election.winner(vip), Some(&order[0]));
    // Preferred or not, an endpoint does not make up for it; alone, it still serves.
    election.upsert_member(order[1].clone(), on(&ALL));
    election.track(vip, &Restriction::Prefer([order[0].clone()].into()));
    assert_eq!(election.winner(vip), Some(&order[1]));
    election.track(vip, &Restriction::Nodes([order[0].clone()].into()));
    assert_eq!(election.winner(vip), Some(&order[0]));
}
