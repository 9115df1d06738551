//! How long addresses live in the kernel: the fenced ones, and the remote ones.

use std::time::Duration;

use super::world::*;
use crate::config::EngineConfig;
use crate::facts::*;
use crate::ids::*;
use crate::messages::*;
use crate::reason::*;

const REMOTE: &str = "10.100.0.7";
const LOCAL: &str = "192.168.1.100";

fn mk_remote() -> ServiceFacts {
    mk_service("a", &[REMOTE])
}

/// A world in which 10.100.0.0/24 is remote.
fn remote_world() -> World {
    let ranges = vec![RangeFacts::whole("10.100.0.0/24".parse().unwrap(), None)];
    World::of_groups(vec![GroupFacts::of_ranges("default", PoolType::Remote, ranges)])
}

/// An LBNodeAgent that gives remote addresses a lifetime.
fn mk_agent(valid: Option<u32>) -> Input {
    let dummy_address = AddressOptions { valid, preferred: None, no_prefix_route: false };
    Input::Agents(FactsUpdate::Set(AgentFacts {
        key: ObjectKey::of("purelb-system", "default").unwrap(),
        selector: Selector::default(),
        config: Ok(AgentConfig {
            auto: AutoInterface::Pattern("eth0".to_owned()),
            dummy_address,
            ..AgentConfig::default()
        }),
    }))
}

fn puts(world: &World, from: usize, ip: &str) -> Vec<AddressSpec> {
    let put = |e: &Effect| match e {
        Effect::Apply { op: KernelChange::Put(spec), .. } if spec.net.addr() == vip(ip).ip() => {
            Some(spec.clone())
        }
        _ => None,
    };
    world.log[from..].iter().filter_map(put).collect()
}

#[test]
fn a_remote_address_with_a_lifetime_keeps_its_route_and_has_no_fence() {
    let mut world = remote_world().listed(vec![], vec![]);
    world.feed(mk_agent(Some(60)));
    world.feed(Input::Services(FactsUpdate::Set(mk_remote())));
    world.ms(120_000);
    let all = puts(&world, 0, REMOTE);
    let as_configured = |s: &AddressSpec| !s.no_prefix_route && s.until.is_none() && s.valid == Some(60);
    assert!(all.iter().all(as_configured), "{all:#?}");
    assert!(
        (6..=8).contains(&all.len()),
        "given anew every third of it, not with every renewal: {}",
        all.len()
    );
}

#[test]
fn what_is_on_its_way_out_is_not_kept_alive() {
    let mut world = World::new().listed(vec![], vec![mk_peer("peer", 1, &[])]);
    let ip = world.address_won_by("me", "peer");
    world.feed(Input::Services(FactsUpdate::Set(mk_service("a", &[&ip]))));
    world.peer("peer", &[]);
    assert!(world.holds(&ip));
    world.busy = true;
    world.feed(Input::Link(FactsUpdate::Set(LinkFacts { carrier: false, ..mk_link(ETH0, "eth0") })));
    let before = world.log.len();
    world.feed(Input::Link(FactsUpdate::Set(mk_link(ETH0, "eth0"))));
    world.ms(3_400);
    let kept = puts(&world, before, &ip);
    assert!(kept.is_empty(), "the kernel would remove it and then add it again: {kept:#?}");
}

#[test]
fn an_outage_of_the_api_does_not_end_a_remote_address_with_a_lifetime() {
    let mut world = remote_world().listed(vec![], vec![]);
    world.feed(mk_agent(Some(60)));
    world.feed(Input::Services(FactsUpdate::Set(mk_remote())));
    world.ms(3_400);
    world.api = None;
    let mut given = world.now;
    for _ in 0..300 {
        let before = world.log.len();
        world.ms(1_000);
        if !puts(&world, before, REMOTE).is_empty() {
            given = world.now;
        }
        assert!(world.now.since(given) < Duration::from_secs(40), "it runs out");
    }
    assert!(!world.log.iter().any(|e| matches!(e, Effect::Apply { op: KernelChange::Remove { .. }, .. })));
}

#[test]
fn a_remote_address_follows_a_changed_lifetime() {
    let mut world = remote_world().listed(vec![mk_remote()], vec![]);
    assert_eq!(world.spec(REMOTE).valid, None);
    world.feed(mk_agent(Some(60)));
    assert_eq!(world.spec(REMOTE).valid, Some(60));
    world.feed(mk_agent(None));
    world.ms(21_000);
    assert_eq!(world.spec(REMOTE).valid, None);
    let before = world.log.len();
    world.ms(120_000);
    assert!(puts(&world, before, REMOTE).is_empty(), "for ever needs no upkeep");
}

/// What an earlier run with `kernel_fence = false` and `validLifetime: 0` left.
#[test]
fn what_was_left_for_ever_is_adopted_and_fenced() {
    for listed_late in [false, true] {
        let mut world = World::with(EngineConfig::new(node("me"), InstanceId::new("two").unwrap()));
        let left = AddressSpec {
            index: ETH0,
            net: "192.168.1.100/24".parse().unwrap(),
            until: None,
            valid: None,
            preferred: None,
            no_prefix_route: true,
            no_dad: true,
        };
        world.kernel.insert((left.index, left.net), left);
        let lease =
            LeaseFacts { instance: Some(InstanceId::new("one").unwrap()), ..mk_peer("me", 7, &[LOCAL]) };
        world.list_all_but_services(vec![lease]);
        if listed_late {
            world.ms(4_000);
            assert!(world.spec(LOCAL).until.is_some(), "also before the picture is whole");
        }
        world.feed(Input::Services(FactsUpdate::All(vec![mk_service("a", &[LOCAL])])));
        world.ms(4_000);
        assert_eq!(world.reason(LOCAL), Reason::Announcing { interface: ifname("eth0") });
        assert!(world.spec(LOCAL).until.is_some(), "no longer for ever");
        assert!(
            !world.log.iter().any(|e| matches!(e, Effect::Apply { op: KernelChange::Remove { .. }, .. }))
        );
    }
}

#[test]
fn without_the_fence_what_is_for_ever_stays_so() {
    let config = EngineConfig {
        kernel_fence: false,
        ..EngineConfig::new(node("me"), InstanceId::new("one").unwrap())
    };
    let mut world = World::with(config).listed(vec![mk_service("a", &[LOCAL])], vec![]);
    let local_address = AddressOptions { valid: None, preferred: None, no_prefix_route: true };
    world.feed(Input::Agents(FactsUpdate::Set(AgentFacts {
        key: ObjectKey::of("purelb-system", "default").unwrap(),
        selector: Selector::default(),
        config: Ok(AgentConfig {
            auto: AutoInterface::Pattern("eth0".to_owned()),
            local_address,
            ..AgentConfig::default()
        }),
    })));
    world.ms(4_000);
    let before = world.log.len();
    world.ms(20_000);
    assert!(puts(&world, before, LOCAL).is_empty(), "nothing to give anew");
}

#[test]
fn a_failed_refresh_does_not_wait_for_the_next_renewal() {
    let mut world = World::new().listed(vec![mk_service("a", &[LOCAL])], vec![]);
    world.ms(3_000);
    world.apply_error = passing("Resource temporarily unavailable (os error 11)");
    world.ms(400);
    world.apply_error = None;
    let (before, until) = (world.log.len(), world.spec(LOCAL).until);
    world.ms(300);
    let again = puts(&world, before, LOCAL);
    assert_eq!(again.len(), 1, "once it worked: {again:#?}");
    assert!(again[0].until > until, "with what the last renewal allows");
    let before = world.log.len();
    world.ms(2_500);
    assert!(puts(&world, before, LOCAL).is_empty(), "then it is at rest");
}

#[test]
fn a_refresh_that_keeps_failing_ends_with_the_fence() {
    let mut world = World::new().listed(vec![mk_service("a", &[LOCAL])], vec![]);
    world.ms(3_000);
    world.apply_error = passing("no");
    world.ms(400);
    world.api = None;
    world.ms(8_000);
    world.apply_error = None;
    world.ms(20_000);
    assert!(!world.holds(LOCAL));
    let before = world.log.len();
    world.ms(20_000);
    assert!(puts(&world, before, LOCAL).is_empty(), "nothing is given to what has no time");
}

/// Neither faster than the kernel can answer, nor less than soon.
#[test]
fn a_removal_that_fails_is_tried_again_at_a_measured_pace() {
    let mut world = World::new().listed(vec![mk_service("a", &[LOCAL])], vec![]);
    world.apply_error = passing("no");
    let before = world.log.len();
    world.feed(Input::Services(FactsUpdate::All(vec![])));
    world.ms(1_000);
    let tries = world.log[before..]
        .iter()
        .filter(|e| matches!(e, Effect::Apply { op: KernelChange::Remove { .. }, .. }));
    assert!((2..=5).contains(&tries.count()));
    world.apply_error = None;
    world.ms(2_000);
    assert!(!world.holds(LOCAL));
}
