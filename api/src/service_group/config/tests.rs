use serde_json::{Value, json};

use super::*;

fn group(spec: Value) -> ServiceGroup {
    let object = json!({"apiVersion": "purelb.io/v2", "kind": "ServiceGroup",
        "metadata": {"name": "g", "namespace": "purelb-system"}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

fn read(object: ServiceGroup) -> Result<GroupConfig, ConfigProblem> {
    parse(&object, &RangeRules::default())
}

fn pool(pool: &str, subnet: &str) -> Value {
    json!({"pool": pool, "subnet": subnet})
}

#[test]
fn reads_ranges_in_order() {
    let spec = json!({"local": {
        "v4pools": [pool("192.0.2.20-192.0.2.30", "192.0.2.0/24"), pool("192.0.2.4", "192.0.2.0/24")],
        "v6pool": {"pool": "2001:db8::/112", "subnet": "2001:db8::/64", "aggregation": "/128"},
        "skipIPv6DAD": true,
    }});
    let config = read(group(spec)).unwrap();
    let Source::Ranges(ranges) = &config.source else { panic!("{config:?}") };
    let texts: Vec<String> = ranges.group.ranges().iter().map(|r| r.span().to_string()).collect();
    assert_eq!(texts, ["192.0.2.20-192.0.2.30", "192.0.2.4", "2001:db8::-2001:db8::ffff"]);
    assert!(ranges.skip_ipv6_dad);
    let facts = config.facts();
    assert_eq!((facts.name.as_str(), facts.pool), ("g", PoolType::Local));
    assert_eq!(facts.ranges[2].aggregation, Some(128));
}

#[test]
fn a_local_group_may_say_how_it_is_fenced() {
    let of = |kind: &str, policy: Option<&str>| {
        let mut set = json!({"v4pool": pool("192.0.2.20-192.0.2.30", "192.0.2.0/24")});
        if let Some(policy) = policy {
            set["fencePolicy"] = json!(policy);
        }
        read(group(json!({kind: set}))).map(|config| config.facts().fence_policy)
    };
    assert_eq!(of("local", None).unwrap(), None);
    assert_eq!(of("local", Some("Ride")).unwrap(), Some(FencePolicy::Ride));
    assert_eq!(of("local", Some("Strict")).unwrap(), Some(FencePolicy::Strict));
    assert_eq!(of("local", Some("ride")).unwrap_err().field, "spec.local.fencePolicy");
    assert_eq!(of("remote", Some("Ride")).unwrap_err().field, "spec.remote.fencePolicy");
}

#[test]
fn netbox_and_external_say_how_they_announce() {
    let netbox = read(group(json!({"netbox": {"url": "https://nb.example/", "tenant": "t"}}))).unwrap();
    assert_eq!(netbox.announce(), PoolType::Remote);
    assert!(netbox.facts().ranges.is_empty());
    let external = read(group(json!({"external": {"provider": "acme"}}))).unwrap();
    assert_eq!(external.announce(), PoolType::Local);
    let Source::External(e) = external.source else { panic!() };
    assert_eq!(e.socket, "/var/run/purelb/ipam.sock");
}

/// What admission also refuses is in the table run against the API server; these
/// are what only code sees, or what an object from before the rules may hold.
#[test]
fn names_the_field_that_is_wrong() {
    let cases = [
        (json!({}), "spec"),
        (json!({"local": {}}), "spec.local"),
        (json!({"local": {"v4pool": pool("192.0.2.9-192.0.2.1", "192.0.2.0/24")}}), "spec.local.v4pool.pool"),
        // Only addresses that no host can have.
        (json!({"local": {"v4pool": pool("192.0.2.0", "192.0.2.0/24")}}), "spec.local.v4pool.pool"),
        (
            json!({"remote": {"v6pools": [pool("2001:db8::/120", "2001:db8::/64"), pool("2001:db8::80", "2001:db8::/64")]}}),
            "spec.remote.v6pools[1].pool",
        ),
        (json!({"external": {"provider": "p", "announce": "both"}}), "spec.external.announce"),
    ];
    for (spec, field) in cases {
        let problem = read(group(spec.clone())).unwrap_err();
        assert_eq!(problem.field, field, "{spec}: {problem:?}");
        assert_eq!(problem.object.as_str(), "purelb-system/g");
    }
}

#[test]
fn a_netbox_says_how_long_the_prefixes_of_its_addresses_are() {
    for (text, length) in [("default", None), ("/24", Some(24)), ("/64", Some(64))] {
        let spec =
            json!({"netbox": {"url": "https://netbox.example.com", "tenant": "t", "aggregation": text}});
        let facts = parse(&group(spec), &RangeRules::default()).unwrap().facts();
        assert_eq!((facts.aggregation, facts.ranges.len()), (length, 0), "{text}");
    }
}
