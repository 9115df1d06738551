use super::world::*;
use crate::facts::*;
use crate::ids::*;
use crate::messages::*;
use crate::reason::*;

const IP: &str = "192.168.1.100";

fn drain() -> Input {
    Input::Command(Command::Drain { since: "2026-01-01T00:00:00Z".to_owned(), force: false })
}

/// 10.100.0.7 of a remote pool, on the dummy interface.
fn remote_world() -> World {
    let ranges = vec![RangeFacts::whole("10.100.0.0/24".parse().unwrap(), Some(32))];
    let group = GroupFacts::of_ranges("default", PoolType::Remote, ranges);
    World::of_groups(vec![group]).listed(vec![mk_service("a", &["10.100.0.7"])], vec![])
}

#[test]
fn a_stop_ends_although_the_kernel_keeps_an_address_and_leaves_the_lease_to_expire() {
    let mut world = World::new().listed(vec![mk_service("a", &[IP])], vec![]);
    world.apply_error = passing("Operation not permitted");
    let since = "2026-01-01T00:00:00Z".to_owned();
    world.feed(Input::Command(Command::Shutdown { mode: ShutdownMode::Graceful, since }));
    let before = world.log.len();
    world.ms(12_000);
    assert!(world.exited, "within the time the service manager gives it");
    assert!(world.lease.is_some(), "a deleted Lease would let others take what is still here");
    let left = Effect::LeftBehind(vec![format!("{IP}/24").parse().unwrap()]);
    assert!(world.log.contains(&left));
    let removals = world.log[before..].iter().filter(|e| matches!(e, Effect::Apply { .. })).count();
    assert!(removals < 40, "asked {removals} times: the kernel is not asked without a pause");
}

#[test]
fn a_stop_ends_although_the_kernel_keeps_what_every_node_has_and_deletes_the_lease() {
    let mut world = remote_world();
    world.apply_error = passing("Operation not permitted");
    let since = "2026-01-01T00:00:00Z".to_owned();
    world.feed(Input::Command(Command::Shutdown { mode: ShutdownMode::Now, since }));
    world.ms(6_000);
    assert!(world.exited && world.lease.is_none());
    assert!(world.log.iter().any(|e| matches!(e, Effect::LeftBehind(_))));
}

#[test]
fn a_refused_removal_is_tried_again_with_pauses() {
    let mut world = World::new().listed(vec![mk_service("a", &[IP])], vec![]);
    world.apply_error = passing("Operation not permitted");
    let before = world.log.len();
    world.feed(Input::Services(FactsUpdate::All(vec![])));
    world.pass(std::time::Duration::from_millis(3_000));
    let tries = world.log[before..]
        .iter()
        .filter(|e| matches!(e, Effect::Apply { op: KernelChange::Remove { .. }, .. }))
        .count();
    assert!((3..10).contains(&tries), "{tries} tries in three seconds");
    assert_eq!(world.reason(IP), Reason::NoService);
    world.apply_error = None;
    world.ms(2_000);
    assert!(!world.holds(IP));
}

#[test]
fn what_a_drained_node_kept_comes_back_after_a_fence() {
    let mut world = World::new().listed(vec![mk_service("a", &[IP])], vec![]);
    world.feed(drain());
    assert_eq!(world.reason(IP), Reason::Draining { held: true });
    world.api = None;
    world.ms(9_000);
    assert!(!world.holds(IP), "fenced");
    world.api = Some(Ok(()));
    world.ms(6_000);
    assert!(world.holds(IP), "nobody else can have it");
    assert_eq!(world.reason(IP), Reason::Draining { held: true });
}

/// Undrained while the fence has it off the interface: nobody else can have it before the
/// Lease says that we take part again.
#[test]
fn what_a_drained_node_kept_comes_back_though_it_is_undrained_meanwhile() {
    let mut world = World::new().listed(vec![mk_service("a", &[IP])], vec![]);
    world.feed(drain());
    world.api = None;
    world.ms(9_000);
    assert!(!world.holds(IP), "fenced");
    world.feed(Input::Command(Command::Undrain));
    world.api = Some(Ok(()));
    world.ms(6_000);
    assert!(world.holds(IP), "{:?}", world.reason(IP));
    assert_eq!(world.reason(IP).name(), "Announcing");
}

/// The same while the kernel refuses: every look comes to the same end.
#[test]
fn undrained_while_the_kernel_refuses_what_was_kept() {
    let mut world = World::new().listed(vec![mk_service("a", &[IP])], vec![]);
    world.feed(drain());
    world.apply_error = passing("Operation not permitted");
    world.feed(Input::AddressGone { index: ETH0, net: format!("{IP}/24").parse().unwrap() });
    assert_eq!(world.reason(IP).name(), "ApplyFailed");
    world.api = None;
    world.feed(Input::Command(Command::Undrain));
    assert_eq!(world.reason(IP).name(), "ApplyFailed", "the Lease still says that we drain");
    world.apply_error = None;
    world.ms(1_000);
    assert!(world.holds(IP));
}

#[test]
fn what_a_drained_node_kept_stays_with_the_peer_that_has_it_by_then() {
    let mut world = World::new().listed(vec![mk_service("a", &[IP])], vec![]);
    world.feed(drain());
    world.api = None;
    world.ms(9_000);
    // It was undrained, took the address, and drains again.
    let peer = |world: &World| LeaseFacts {
        draining: Some("then".to_owned()),
        ..mk_peer("peer", world.now.as_nanos(), &[IP])
    };
    world.feed(Input::Nodes(FactsUpdate::Set(mk_node("peer"))));
    world.api = Some(Ok(()));
    for _ in 0..6 {
        world.feed(Input::Leases(FactsUpdate::Set(peer(&world))));
        world.ms(1_000);
        assert!(!world.holds(IP), "a second owner");
    }
}

/// Renamed while no daemon ran: told by its mark.
#[test]
fn the_dummy_interface_of_an_earlier_run_goes_though_its_name_was_another() {
    let mut world = remote_world();
    let old = LinkFacts { ours: true, ..mk_link(OTHER_DUMMY, "lb-old") };
    let mut dump = world.dump();
    dump.links.push(old);
    let left = mk_address(OTHER_DUMMY, "198.51.100.7/32");
    dump.addresses.push(AddrFacts { ours: true, ..left });
    world.feed(Input::Kernel(dump));
    world.ms(100);
    let fenced =
        |e: &Effect| matches!(e, Effect::Apply { op: KernelChange::Put(s), .. } if s.index == OTHER_DUMMY);
    assert!(!world.log.iter().any(fenced), "it is no local address");
    let name = ifname("lb-old");
    let gone = |e: &Effect| matches!(e, Effect::Apply { op: KernelChange::RemoveDummy { name: n }, .. } if *n == name);
    assert!(world.log.iter().any(gone), "{:#?}", world.log);
}

#[test]
fn a_dummy_interface_with_another_name_replaces_the_one_before() {
    let mut world = remote_world();
    let config = AgentConfig {
        auto: AutoInterface::Pattern("eth0".to_owned()),
        dummy: ifname("lb-new"),
        ..AgentConfig::default()
    };
    let key = ObjectKey::of("purelb-system", "default").unwrap();
    let agent = AgentFacts { key, selector: Selector::default(), config: Ok(config) };
    world.feed(Input::Agents(FactsUpdate::Set(agent)));
    world.ms(2_000);
    assert_eq!(world.spec("10.100.0.7").index, OTHER_DUMMY);
    let at = |op: &KernelChange| {
        world.log.iter().position(|e| matches!(e, Effect::Apply { op: o, .. } if o == op))
    };
    let gone = at(&KernelChange::RemoveDummy { name: ifname("kube-lb0") }).expect("the old link goes");
    let emptied = KernelChange::Remove { index: DUMMY, net: "10.100.0.7/32".parse().unwrap() };
    assert!(at(&emptied).is_some_and(|at| at < gone), "after its last address");
}

#[test]
fn a_slot_goes_with_its_address_and_only_its_writer_or_the_speaker_takes_it_off() {
    let slot = |name: &str| AnnouncingSlot { node: node(name), interface: ifname("eth0") };
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let slots = [("192.168.1.60", "me"), ("192.168.1.61", "peer"), ("192.168.1.62", "gone")];
    let service = ServiceFacts {
        slots: slots.iter().map(|(ip, n)| (vip(ip), slot(n))).collect(),
        ..mk_service("a", &[])
    };
    world.feed(Input::Services(FactsUpdate::Set(service.clone())));
    let cleared = |world: &World| -> Vec<(Vip, NodeName)> {
        let all = world.log.iter().filter_map(|e| match e {
            Effect::ClearSlot { vip, node, .. } => Some((*vip, node.clone())),
            _ => None,
        });
        all.collect()
    };
    let [mine, of_gone] = [(vip("192.168.1.60"), node("me")), (vip("192.168.1.62"), node("gone"))];
    assert_eq!(cleared(&world), [mine.clone(), of_gone], "me is the first by name, so it speaks");
    world.ms(1_100);
    assert_eq!(cleared(&world).len(), 4, "asked for again while it is there");
    world.log.clear();
    world.feed(Input::Services(FactsUpdate::Set(ServiceFacts { slots: Default::default(), ..service })));
    world.ms(3_000);
    assert!(cleared(&world).is_empty());
}

#[test]
fn the_slot_of_an_address_that_no_node_can_have_goes() {
    let mut world = World::new().listed(vec![mk_service("a", &[IP])], vec![]);
    let slot = AnnouncingSlot { node: node("me"), interface: ifname("eth0") };
    let service = ServiceFacts { slots: [(vip(IP), slot)].into(), ..mk_service("a", &[IP]) };
    world.feed(Input::Services(FactsUpdate::Set(service)));
    let clears = |world: &World| world.log.iter().any(|e| matches!(e, Effect::ClearSlot { .. }));
    world.ms(2_000);
    assert!(!clears(&world), "it announces it");
    world.feed(Input::AddressGone { index: ETH0, net: "192.168.1.10/24".parse().unwrap() });
    world.ms(2_000);
    assert!(clears(&world));
}
