use super::super::plan::{Plan, Role, Wishes};
use super::*;

fn mk_hosts() -> Vec<HostPlan> {
    let wishes = Wishes {
        segments: vec![("lan".into(), vec!["192.0.2.0/24".into()])],
        hosts: vec![
            (Role::Node, "a".into(), vec!["lan".into()]),
            (Role::Client, "c".into(), vec!["lan".into()]),
        ],
    };
    Plan::draw(&wishes).unwrap().hosts
}

#[test]
fn a_cut_drops_both_ways() {
    let mut faults = Faults::default();
    faults.cut(0, Cut::Api);
    faults.cut(0, Cut::segment("lan"));
    let script = faults.script(&mk_hosts()).unwrap();
    for rule in [
        "iifname \"m0\" ip daddr 10.250.0.1 drop",
        "oifname \"m0\" ip saddr 10.250.0.1 drop",
        "iifname \"p0s0\" drop",
        "oifname \"p0s0\" drop",
    ] {
        assert!(script.contains(rule), "{rule} not in\n{script}");
    }
}

#[test]
fn healed_is_as_never_cut() {
    let mut faults = Faults::default();
    let clean = faults.script(&mk_hosts()).unwrap();
    faults.cut(0, Cut::Management);
    faults.cut(1, Cut::discovery("lan"));
    faults.cut(1, Cut::echo("lan"));
    faults.set_loss(1, "lan", 12.5).unwrap();
    faults.set_discovery_loss(1, "lan", 20.0).unwrap();
    faults.mute("lan", 0, 1);
    let script = faults.script(&mk_hosts()).unwrap();
    for rule in [
        "mod 10000 < 1250 drop",
        "iifname \"p1s0\" ether type arp numgen random mod 10000 < 2000 drop",
        "iifname \"p0s0\" oifname \"p1s0\" drop",
    ] {
        assert!(script.contains(rule), "{rule} not in\n{script}");
    }
    assert!(!script.contains("oifname \"p1s0\" ether type arp numgen"), "a frame is lost once:\n{script}");
    faults.heal(0, &Cut::Management);
    faults.heal_all(1);
    faults.unmute("lan");
    assert_eq!(faults.script(&mk_hosts()).unwrap(), clean);
}

#[test]
fn what_cannot_be_cut_is_refused() {
    for (host, cut, word) in [(1, Cut::Api, "no node"), (0, Cut::segment("wan"), "only on: lan")] {
        let mut faults = Faults::default();
        faults.cut(host, cut);
        let text = format!("{:#}", faults.script(&mk_hosts()).unwrap_err());
        assert!(text.contains(word), "{text}");
    }
    assert!(Faults::default().set_loss(0, "lan", 101.0).is_err());
}
