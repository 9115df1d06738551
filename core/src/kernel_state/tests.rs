use super::*;

fn mk_link(index: u32, name: &str) -> LinkFacts {
    LinkFacts {
        index: IfIndex(index),
        name: IfName::new(name).unwrap(),
        loopback: name == "lo",
        up: true,
        carrier: true,
        mac: None,
        ours: false,
    }
}

fn mk_address(index: u32, net: &str) -> AddrFacts {
    AddrFacts {
        index: IfIndex(index),
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

fn mk_kernel() -> KernelState {
    let mut kernel = KernelState::default();
    kernel.replace(KernelDump {
        links: ["lo", "eth0", "eth1", "kube-lb0"]
            .iter()
            .zip(1..)
            .map(|(name, index)| mk_link(index, name))
            .collect(),
        addresses: vec![mk_address(2, "192.168.1.10/24"), mk_address(3, "10.0.0.10/24")],
        default_routes: vec![
            DefaultRoute { family: Family::V4, metric: 100, index: IfIndex(2), gateway: None },
            DefaultRoute { family: Family::V4, metric: 200, index: IfIndex(4), gateway: None },
            DefaultRoute { family: Family::V6, metric: 1024, index: IfIndex(3), gateway: None },
        ],
    });
    kernel
}

fn selected(kernel: &KernelState, config: &AgentConfig) -> Vec<String> {
    kernel.selected(config).iter().map(|i| kernel.name_of(*i).unwrap().to_string()).collect()
}

#[test]
fn default_takes_the_lowest_metric_of_each_family() {
    assert_eq!(selected(&mk_kernel(), &AgentConfig::default()), ["eth0", "eth1"]);
}

#[test]
fn a_pattern_is_unanchored_and_never_takes_loopback_or_dummy() {
    let pattern =
        |p: &str| AgentConfig { auto: AutoInterface::Pattern(p.to_owned()), ..AgentConfig::default() };
    assert_eq!(selected(&mk_kernel(), &pattern("th1")), ["eth1"]);
    assert_eq!(selected(&mk_kernel(), &pattern(".*")), ["eth0", "eth1"]);
    assert_eq!(selected(&mk_kernel(), &pattern("(")), [""; 0]);
}

#[test]
fn a_list_adds_by_exact_name() {
    let config = AgentConfig {
        auto: AutoInterface::None,
        interfaces: BTreeSet::from([IfName::new("eth1").unwrap(), IfName::new("eth9").unwrap()]),
        ..AgentConfig::default()
    };
    assert_eq!(selected(&mk_kernel(), &config), ["eth1"]);
}

#[test]
fn a_link_takes_its_addresses_along() {
    let mut kernel = mk_kernel();
    let vip: Vip = "192.168.1.10".parse().unwrap();
    assert_eq!(kernel.of_vip(vip).count(), 1);
    kernel.remove_link(IfIndex(2));
    assert_eq!(kernel.of_vip(vip).count(), 0);
    assert_eq!(kernel.others().count() + kernel.ours().count(), 1);
}

#[test]
fn one_address_with_two_prefix_lengths_is_two_addresses() {
    let mut kernel = mk_kernel();
    kernel.set_address(mk_address(2, "192.168.1.10/32"));
    let vip: Vip = "192.168.1.10".parse().unwrap();
    assert_eq!(kernel.of_vip(vip).count(), 2);
    kernel.remove_address((IfIndex(2), "192.168.1.10/24".parse().unwrap()));
    assert_eq!(kernel.of_vip(vip).map(|a| a.net.prefix_len()).collect::<Vec<_>>(), [32]);
}
