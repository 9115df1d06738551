use super::*;
use crate::facts::{AddrFacts, AutoInterface, DefaultRoute, LinkFacts};
use crate::ids::IfIndex;

fn ms(millis: u64) -> Mono {
    Mono::from_millis(millis)
}

fn mk_link(carrier: bool) -> LinkFacts {
    LinkFacts {
        index: IfIndex(2),
        name: IfName::new("eth0").unwrap(),
        loopback: false,
        up: true,
        carrier,
        mac: None,
        ours: false,
    }
}

fn mk_address(net: &str) -> AddrFacts {
    AddrFacts {
        index: IfIndex(2),
        net: net.parse().unwrap(),
        ours: false,
        link_local: false,
        tentative: false,
        dad_failed: false,
        deprecated: false,
        permanent: true,
        no_prefix_route: false,
    }
}

fn mk_config() -> AgentConfig {
    AgentConfig { auto: AutoInterface::Pattern("eth0".to_owned()), ..AgentConfig::default() }
}

fn mk_world() -> (KernelState, LocalSubnets) {
    let mut kernel = KernelState::default();
    kernel.set_link(mk_link(true));
    kernel.set_address(mk_address("192.168.1.10/24"));
    let mut subnets = LocalSubnets::new(Duration::from_secs(2));
    subnets.update(ms(0), &kernel, Some(&mk_config()));
    (kernel, subnets)
}

fn advertised(subnets: &LocalSubnets, now: Mono) -> Vec<String> {
    subnets.advertised(now).iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_there_at_the_start_counts_at_once() {
    let (_, subnets) = mk_world();
    assert_eq!(advertised(&subnets, ms(0)), ["192.168.1.0/24"]);
    assert_eq!(subnets.deadline(ms(0)), None);
}

#[test]
fn a_carrier_is_lost_at_once_and_regained_after_two_stable_seconds() {
    let (mut kernel, mut subnets) = mk_world();
    kernel.set_link(mk_link(false));
    subnets.update(ms(1000), &kernel, Some(&mk_config()));
    assert_eq!(advertised(&subnets, ms(1000)), [""; 0]);
    kernel.set_link(mk_link(true));
    subnets.update(ms(1100), &kernel, Some(&mk_config()));
    assert_eq!(subnets.deadline(ms(1100)), Some(ms(3100)));
    assert_eq!(advertised(&subnets, ms(3099)), [""; 0]);
    assert_eq!(advertised(&subnets, ms(3100)), ["192.168.1.0/24"]);
}

#[test]
fn each_flap_starts_the_wait_anew() {
    let (mut kernel, mut subnets) = mk_world();
    for flap in 0..10 {
        for (offset, carrier) in [(0, false), (250, true)] {
            kernel.set_link(mk_link(carrier));
            subnets.update(ms(1000 + flap * 500 + offset), &kernel, Some(&mk_config()));
            assert_eq!(advertised(&subnets, ms(1000 + flap * 500 + offset)), [""; 0]);
        }
    }
    assert_eq!(advertised(&subnets, ms(7749)), [""; 0]);
    assert_eq!(advertised(&subnets, ms(7750)), ["192.168.1.0/24"]);
}

#[test]
fn addresses_that_do_not_count() {
    let odd: [fn(&mut AddrFacts); 5] = [
        |a| a.ours = true,
        |a| a.link_local = true,
        |a| a.tentative = true,
        |a| a.dad_failed = true,
        |a| a.deprecated = true,
    ];
    for (i, change) in odd.iter().enumerate() {
        let (mut kernel, _) = mk_world();
        let mut address = mk_address("fd00:1::10/64");
        change(&mut address);
        kernel.set_address(address);
        let mut subnets = LocalSubnets::new(Duration::ZERO);
        subnets.update(ms(0), &kernel, Some(&mk_config()));
        assert_eq!(advertised(&subnets, ms(0)), ["192.168.1.0/24"], "case {i}");
    }
}

#[test]
fn no_configuration_means_no_subnet() {
    let (kernel, mut subnets) = mk_world();
    subnets.update(ms(10), &kernel, None);
    assert_eq!(advertised(&subnets, ms(10)), [""; 0]);
}

/// Deleted and made anew: what the links show has been stable all the while.
#[test]
fn configuration_that_comes_back_counts_at_once() {
    let (kernel, mut subnets) = mk_world();
    subnets.update(ms(10_000), &kernel, None);
    assert_eq!(advertised(&subnets, ms(10_000)), [""; 0]);
    subnets.update(ms(10_050), &kernel, Some(&mk_config()));
    assert_eq!(advertised(&subnets, ms(10_050)), ["192.168.1.0/24"]);
    assert_eq!(subnets.deadline(ms(10_050)), None);
}

#[test]
fn a_link_proves_itself_whatever_the_configuration_does() {
    let (mut kernel, mut subnets) = mk_world();
    kernel.set_link(mk_link(false));
    subnets.update(ms(10_000), &kernel, None);
    kernel.set_link(mk_link(true));
    subnets.update(ms(10_500), &kernel, None);
    subnets.update(ms(11_000), &kernel, Some(&mk_config()));
    assert_eq!(advertised(&subnets, ms(12_499)), [""; 0]);
    assert_eq!(advertised(&subnets, ms(12_500)), ["192.168.1.0/24"]);
}

#[test]
fn a_default_route_that_flaps_has_to_be_stable_as_well() {
    let (mut kernel, _) = mk_world();
    let route = DefaultRoute { family: Family::V4, metric: 0, index: IfIndex(2), gateway: None };
    kernel.set_default_routes(vec![route]);
    let config = AgentConfig::default();
    let mut subnets = LocalSubnets::new(Duration::from_secs(2));
    subnets.update(ms(0), &kernel, Some(&config));
    assert_eq!(advertised(&subnets, ms(0)), ["192.168.1.0/24"]);
    kernel.set_default_routes(vec![]);
    subnets.update(ms(5_000), &kernel, Some(&config));
    assert_eq!(advertised(&subnets, ms(5_000)), [""; 0]);
    kernel.set_default_routes(vec![route]);
    subnets.update(ms(5_100), &kernel, Some(&config));
    assert_eq!(subnets.deadline(ms(5_100)), Some(ms(7_100)));
    assert_eq!(advertised(&subnets, ms(7_099)), [""; 0]);
    assert_eq!(advertised(&subnets, ms(7_100)), ["192.168.1.0/24"]);
    // By its name it is selected without the route.
    let named = AgentConfig { interfaces: [IfName::new("eth0").unwrap()].into(), ..config };
    kernel.set_default_routes(vec![]);
    subnets.update(ms(9_000), &kernel, Some(&named));
    assert_eq!(advertised(&subnets, ms(9_000)), ["192.168.1.0/24"]);
}

#[test]
fn a_vip_goes_to_the_most_specific_subnet() {
    let (mut kernel, mut subnets) = mk_world();
    kernel.set_address(mk_address("192.168.1.130/25"));
    subnets.update(ms(0), &kernel, Some(&mk_config()));
    let vip: Vip = "192.168.1.200".parse().unwrap();
    assert_eq!(
        subnets.locate(ms(0), vip).unwrap().1.to_string(),
        "192.168.1.0/24",
        "the other is not stable yet"
    );
    assert_eq!(subnets.locate(ms(2000), vip).unwrap().1.to_string(), "192.168.1.128/25");
    assert_eq!(subnets.locate(ms(2000), "10.0.0.1".parse().unwrap()), None);
}
