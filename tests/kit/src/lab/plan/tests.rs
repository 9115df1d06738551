use super::*;

fn mk_wishes(segments: &[(&str, &[&str])], hosts: &[(Role, &str, &[&str])]) -> Wishes {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    Wishes {
        segments: segments.iter().map(|(name, nets)| ((*name).to_owned(), owned(nets))).collect(),
        hosts: hosts
            .iter()
            .map(|(role, name, segments)| (*role, (*name).to_owned(), owned(segments)))
            .collect(),
    }
}

fn refusal(wishes: &Wishes) -> String {
    format!("{:#}", Plan::draw(wishes).unwrap_err())
}

fn b_gateways(plan: &Plan) -> Vec<IpAddr> {
    plan.hosts[1].ports[0].gateways.clone()
}

#[test]
fn every_host_gets_its_own_addresses() {
    let lan: (&str, &[&str]) = ("lan", &["192.0.2.0/24", "2001:db8:1::/64"]);
    let back: (&str, &[&str]) = ("back", &["198.51.100.0/28"]);
    let plan = Plan::draw(&mk_wishes(
        &[lan, back],
        &[
            (Role::Node, "a", &["lan"]),
            (Role::Node, "b", &["lan", "back"]),
            (Role::Client, "c", &["lan"]),
            (Role::Router, "r", &["lan"]),
        ],
    ))
    .unwrap();
    let r = &plan.hosts[3].ports[0];
    assert_eq!(b_gateways(&plan), r.addresses.iter().map(IpNet::addr).collect::<Vec<_>>());
    assert!(r.gateways.is_empty() && plan.hosts[3].management.is_none());
    let b = &plan.hosts[1];
    assert_eq!(b.ports[0].addresses, ["192.0.2.12/24".parse().unwrap(), "2001:db8:1::c/64".parse().unwrap()]);
    assert_eq!((b.ports[1].dev.as_str(), b.ports[1].bridge_port.as_str()), ("eth1", "p1s1"));
    assert_eq!(b.ports[1].addresses, ["198.51.100.12/28".parse().unwrap()]);
    assert!(plan.hosts[2].management.is_none());
    let macs: BTreeSet<_> = plan.hosts.iter().flat_map(|host| &host.ports).map(|port| port.mac).collect();
    assert_eq!(macs.len(), 5);
    assert!(macs.iter().all(|mac| mac.is_unicast()));
}

#[test]
fn interface_names_fit_also_in_a_large_lab() {
    let names: Vec<_> = (0..1000).map(|n| format!("n{n}")).collect();
    let hosts: Vec<(Role, &str, &[&str])> =
        names.iter().map(|name| (Role::Node, name.as_str(), &["lan"] as &[&str])).collect();
    let plan = Plan::draw(&mk_wishes(&[("lan", &["172.20.0.0/16"])], &hosts)).unwrap();
    for host in &plan.hosts {
        let port = &host.ports[0];
        assert!(port.bridge_port.len() <= 15 && port.bridge_port != "br");
        assert!(host.management.as_ref().unwrap().bridge_port.len() <= 15);
    }
}

#[test]
fn mistakes_are_named() {
    let lan: (&str, &[&str]) = ("lan", &["192.0.2.0/24"]);
    let cases = [
        (mk_wishes(&[lan], &[(Role::Node, "a", &["wan"])]), "no segment wan"),
        (mk_wishes(&[lan, lan], &[]), "two segments"),
        (mk_wishes(&[lan], &[(Role::Node, "a", &[]), (Role::Client, "a", &[])]), "two hosts"),
        (mk_wishes(&[("lan", &["192.0.2.1/24"])], &[]), "192.0.2.0/24"),
        (mk_wishes(&[("lan", &["10.250.3.0/24"])], &[]), "management network"),
        (mk_wishes(&[("lan", &["192.0.2.0/29"])], &[(Role::Node, "a", &["lan"])]), "too small"),
        (mk_wishes(&[lan], &[(Role::Node, "Node A", &[])]), "not a good name"),
        (mk_wishes(&[lan], &[(Role::Node, "a", &["lan", "lan"])]), "named twice"),
        (mk_wishes(&[lan], &[(Role::Router, "r", &["lan"]), (Role::Router, "q", &["lan"])]), "two routers"),
    ];
    for (wishes, expected) in cases {
        let text = refusal(&wishes);
        assert!(text.contains(expected), "{text}");
    }
}
