use super::world::*;
use crate::config::EngineConfig;
use crate::facts::*;
use crate::ids::InstanceId;
use crate::messages::*;
use crate::reason::*;

fn stop(mode: ShutdownMode) -> Input {
    Input::Command(Command::Shutdown { mode, since: "2026-01-01T00:00:00Z".to_owned() })
}

#[test]
fn a_graceful_stop_hands_over_withdraws_deletes_and_ends() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("me", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.feed(stop(ShutdownMode::Graceful));
    assert!(world.holds(&ip) && !world.exited);
    assert!(world.lease.as_ref().unwrap().draining.is_some());
    world.peer("peer", &[&ip]);
    world.ms(300);
    assert!(!world.holds(&ip));
    assert!(world.exited && world.lease.is_none());
    let confirmed = world.log.iter().position(|e| *e == Effect::Relist(Source::Kernel)).unwrap();
    let deleted = world.log.iter().position(|e| *e == Effect::DeleteLease).unwrap();
    assert!(confirmed < deleted, "the Lease goes after the kernel was asked");
}

#[test]
fn a_lone_node_stops_at_once() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    world.feed(stop(ShutdownMode::Graceful));
    assert!(world.exited && !world.holds("192.168.1.100") && world.lease.is_none());
}

#[test]
fn a_second_request_withdraws_now() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("me", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.feed(stop(ShutdownMode::Graceful));
    assert!(world.holds(&ip));
    world.feed(stop(ShutdownMode::Now));
    assert!(!world.holds(&ip) && world.exited);
}

#[test]
fn a_stop_while_the_api_is_away_ends_in_bounded_time() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("me", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.api = None;
    world.feed(stop(ShutdownMode::Graceful));
    world.ms(10_000);
    assert!(!world.holds(&ip) && world.exited);
}

#[test]
fn leaving_for_a_successor_touches_nothing() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    let before = world.log.len();
    world.feed(stop(ShutdownMode::Leave));
    assert_eq!(world.log[before..], [Effect::Exit]);
    assert!(world.holds("192.168.1.100") && world.lease.is_some());
}

#[test]
fn a_new_process_adopts_what_the_old_one_left() {
    let mut old = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    old.ms(3_400);
    let config = EngineConfig::new(node("me"), InstanceId::new("two").unwrap());
    let mut new = World::with(config);
    new.kernel = old.kernel.clone();
    let mut lease = mk_peer("me", 7, &["192.168.1.100"]);
    lease.instance = Some(InstanceId::new("one").unwrap());
    new.list_all_but_services(vec![lease]);
    assert_eq!(new.lease.as_ref().unwrap().announced.len(), 1, "our word stands while we look around");
    let extended = new.log.iter().any(|e| matches!(e, Effect::Apply { op: KernelChange::Put(_), .. }));
    assert!(extended, "kept alive before the picture is whole");
    new.feed(Input::Services(FactsUpdate::All(vec![mk_service("a", &["192.168.1.100"])])));
    assert_eq!(new.reason("192.168.1.100"), Reason::Announcing { interface: ifname("eth0") });
    assert!(!new.log.iter().any(|e| matches!(e, Effect::Apply { op: KernelChange::Remove { .. }, .. })));
}

#[test]
fn a_link_that_flaps_while_the_api_is_awaited_has_to_prove_itself() {
    let mut world = World::new();
    world.feed(Input::Kernel(world.dump()));
    for carrier in [false, true, false, true] {
        world.ms(500);
        world.feed(Input::Link(FactsUpdate::Set(LinkFacts { carrier, ..mk_link(ETH0, "eth0") })));
    }
    let mut world = world.listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    world.ms(1_000);
    assert!(!world.holds("192.168.1.100"), "two steady seconds are not over");
    world.ms(1_500);
    assert!(world.holds("192.168.1.100"), "{:?}", world.reason("192.168.1.100"));
}

#[test]
fn what_is_gone_by_the_end_of_a_step_is_not_kept_alive() {
    let old = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    let mut new = World::with(EngineConfig::new(node("me"), InstanceId::new("two").unwrap()));
    new.kernel = old.kernel.clone();
    new.api = None;
    let mut lease = mk_peer("me", 7, &["192.168.1.100"]);
    lease.instance = Some(InstanceId::new("one").unwrap());
    new.list_all_but_services(vec![lease]);
    let seq = new.log.iter().find_map(|e| match e {
        Effect::WriteLease(write) => Some(write.seq),
        _ => None,
    });
    let result = Ok(LeaseRenewal { renewal: "own-1".to_owned() });
    let written = Input::LeaseWritten { seq: seq.unwrap(), sent_at: new.now, result };
    let gone = Input::AddressGone { index: ETH0, net: "192.168.1.100/24".parse().unwrap() };
    let effects = new.engine.step_all(new.now, [written, gone]);
    assert!(!effects.iter().any(|e| matches!(e, Effect::Apply { .. })), "{effects:#?}");
}

#[test]
fn a_process_with_shorter_timers_is_believed_for_as_long_as_the_one_before() {
    let mut world = World::with(EngineConfig::new(node("me"), InstanceId::new("two").unwrap()));
    let mut lease = mk_peer("me", 7, &[]);
    lease.duration_seconds = 60;
    lease.instance = Some(InstanceId::new("one").unwrap());
    world.list_all_but_services(vec![lease]);
    let said = |world: &World| world.lease.as_ref().unwrap().duration.as_secs();
    assert_eq!(said(&world), 60, "what the other left in the kernel may live for so long");
    world.ms(59_000);
    assert_eq!(said(&world), 60);
    world.ms(5_000);
    assert_eq!(said(&world), 10);
}

#[test]
fn a_lease_found_at_the_start_counts_for_our_own_duration_at_least() {
    // Somebody's edit: its holder counts on what it wrote itself.
    let mut edited = mk_peer("peer", 1, &[]);
    edited.duration_seconds = -5;
    let mut world = World::new().listed(vec![], vec![edited]);
    let ip = world.address_won_by("peer", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.ms(9_900);
    assert!(!world.holds(&ip));
    world.ms(4_000);
    assert!(world.holds(&ip), "{:?}", world.reason(&ip));
}

#[test]
fn taken_by_another_instance_it_stays_out_until_that_one_is_gone() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    let mut other = mk_peer("me", 99, &[]);
    other.instance = Some(InstanceId::new("other").unwrap());
    world.feed(Input::Leases(FactsUpdate::Set(other)));
    assert!(!world.holds("192.168.1.100"));
    assert!(matches!(world.reason("192.168.1.100"), Reason::Fenced { cause: FenceCause::Taken { .. } }));
    world.ms(9_000);
    assert!(!world.holds("192.168.1.100"));
    world.ms(2_000);
    assert!(world.holds("192.168.1.100"), "the other's Lease ran out");
}

#[test]
fn a_bad_agent_keeps_the_last_good_one_and_says_so() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    let key = crate::ObjectKey::of("purelb-system", "default").unwrap();
    let problem = ConfigProblem { object: key.clone(), field: "spec.x".to_owned(), message: "no".to_owned() };
    let bad = AgentFacts { key, selector: Selector::default(), config: Err(problem) };
    world.feed(Input::Agents(FactsUpdate::Set(bad)));
    assert!(world.holds("192.168.1.100"));
    assert_eq!(world.events(EventKind::ConfigError), 1);
    assert_eq!(world.engine.snapshot(world.now).problems.len(), 1);
}

/// An LBNodeAgent for other nodes.
fn elsewhere() -> Input {
    let key = crate::ObjectKey::of("purelb-system", "default").unwrap();
    let match_labels = [("role".to_owned(), "edge".to_owned())].into();
    let selector = Selector { match_labels, ..Selector::default() };
    Input::Agents(FactsUpdate::All(vec![AgentFacts { key, selector, config: Ok(AgentConfig::default()) }]))
}

fn default_route() -> Input {
    Input::DefaultRoutes(vec![DefaultRoute {
        family: crate::Family::V4,
        metric: 0,
        index: ETH0,
        gateway: None,
    }])
}

#[test]
fn no_agent_for_this_node_means_candidate_for_nothing() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    world.feed(elsewhere());
    assert!(world.lease.as_ref().unwrap().subnets.is_empty());
    assert_eq!(world.reason("192.168.1.100"), Reason::Pending { missing: PendingCause::Successor });
    world.ms(5_000);
    assert!(!world.holds("192.168.1.100"), "nobody came for it");
    assert_eq!(world.reason("192.168.1.100"), Reason::NotSelected);
}

#[test]
fn no_agent_at_all_means_the_defaults() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    world.feed(default_route());
    world.feed(Input::Agents(FactsUpdate::All(vec![])));
    world.ms(2_100);
    assert_eq!(world.reason("192.168.1.100"), Reason::Announcing { interface: ifname("eth0") });
}

/// `kubectl replace --force`: deleted, and made anew a moment later.
#[test]
fn an_agent_made_anew_does_not_cost_the_delay_of_a_link() {
    let mut world = World::new().listed(vec![mk_service("a", &["192.168.1.100"])], vec![]);
    world.ms(5_000);
    let anew = world.agent();
    for (away, held) in [(50, true), (6_000, false)] {
        let before = world.log.len();
        world.feed(elsewhere());
        world.ms(away);
        assert_eq!(world.holds("192.168.1.100"), held);
        world.configure(anew.clone());
        assert!(world.holds("192.168.1.100"), "{:?}", world.reason("192.168.1.100"));
        let removed = |e: &Effect| matches!(e, Effect::Apply { op: KernelChange::Remove { .. }, .. });
        assert_eq!(world.log[before..].iter().any(removed), !held, "it does not blink");
    }
}
