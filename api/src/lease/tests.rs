use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn nets(texts: &[&str]) -> BTreeSet<IpNet> {
    texts.iter().map(|t| t.parse().unwrap()).collect()
}

fn vips(texts: &[&str]) -> BTreeSet<Vip> {
    texts.iter().map(|t| t.parse().unwrap()).collect()
}

fn content() -> LeaseContent {
    LeaseContent {
        instance: InstanceId::new("0b1c").unwrap(),
        duration: Duration::from_secs(10),
        subnets: nets(&["10.0.0.0/24", "2001:db8::/64"]),
        draining: None,
        rank: Rank::Last,
        announced: vips(&["10.0.0.5"]).into(),
        declined: vips(&["10.0.0.6", "2001:db8::6"]),
        macs: BTreeSet::from([[2, 0, 0, 0, 0, 0x1f], [2, 0, 0, 0, 0, 1]]),
        node_uid: "u-1".into(),
    }
}

fn node() -> NodeName {
    NodeName::new("n1").unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn what_is_written_is_read() {
    let now = at("2026-01-02T03:04:05.678901Z");
    let value = create("purelb-system", &node(), &content(), Some("10.0.0.1:7473"), now);
    assert_eq!(value["metadata"]["name"], "purelb-node-n1");
    assert_eq!(value["metadata"]["annotations"][names::SUBNETS], "10.0.0.0/24,2001:db8::/64");
    assert_eq!(value["spec"]["renewTime"], "2026-01-02T03:04:05.678901Z");
    assert!(value["metadata"]["annotations"].get(names::DRAINING).is_none());
    let lease: Lease = serde_json::from_value(value).unwrap();
    let owner = &lease.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str(), owner.controller), ("Node", "u-1", Some(false)));
    let read = facts(&lease).unwrap();
    let expected = LeaseFacts {
        node: node(),
        instance: Some(content().instance),
        duration_seconds: 10,
        renewal: renewal_mark(&MicroTime(now)),
        subnets: content().subnets,
        draining: None,
        announced: Some((*content().announced).clone()),
        declined: Some(content().declined),
        rank: Some(Rank::Last),
        macs: Some(content().macs),
        control_endpoint: Some("10.0.0.1:7473".into()),
    };
    assert_eq!(read, expected);
}

#[test]
fn a_patch_names_its_version_and_removes_what_is_over() {
    let patch = patch(&node(), &content(), None, at("2026-01-02T03:04:05Z"), "77");
    assert_eq!(patch["metadata"]["resourceVersion"], "77");
    assert!(patch["metadata"]["annotations"][names::DRAINING].is_null());
    assert!(patch["metadata"]["annotations"].as_object().unwrap().contains_key(names::DRAINING));
}

#[test]
fn two_renewals_have_two_marks() {
    let (a, b) = (at("2026-01-02T03:04:05.000001Z"), at("2026-01-02T03:04:05.000002Z"));
    assert_ne!(renewal_mark(&MicroTime(a)), renewal_mark(&MicroTime(b)));
}

#[test]
fn an_older_format_is_a_member_that_knows_no_handoffs() {
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": "purelb-node-n1", "annotations": {names::SUBNETS: "10.0.0.0/24", names::INSTANCE: "x"}},
        "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 10, "renewTime": "2026-01-02T03:04:05.000000Z"},
    }))
    .unwrap();
    let read = facts(&lease).unwrap();
    assert_eq!((read.announced, read.draining, read.control_endpoint), (None, None, None));
    assert_eq!(read.declined, None, "nor that an address can be declined");
    assert_eq!(read.macs, None, "nor does it ask segments");
}

#[test]
fn other_leases_are_not_ours() {
    let lease = |name: &str, holder: Value| -> Lease {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"holderIdentity": holder}}))
            .unwrap()
    };
    assert!(matches!(facts(&lease("kube-scheduler", json!("n1"))), Err(LeaseProblem::NotANodes(_))));
    assert!(matches!(facts(&lease("purelb-node-", json!(""))), Err(LeaseProblem::NotANodes(_))));
    assert!(matches!(facts(&lease("purelb-node-n1", json!("n2"))), Err(LeaseProblem::HeldByAnother { .. })));
    assert!(matches!(facts(&lease("purelb-node-n1", json!(null))), Err(LeaseProblem::HeldByAnother { .. })));
}

#[test]
fn subnets_are_masked_sorted_as_text_and_once() {
    assert_eq!(
        encode_subnets(&nets(&["9.0.0.7/8", "10.0.0.1/24", "10.0.0.2/24", "2001:db8::1/64"])),
        "10.0.0.0/24,2001:db8::/64,9.0.0.0/8"
    );
    let read = decode_subnets(
        " 10.0.0.9/24, ,nonsense,10.0.0.0/33,10.0.0.1,::ffff:10.1.0.0/112,::ffff:10.2.0.0/90,2001:db8::5/64",
    );
    assert_eq!(read, nets(&["10.0.0.0/24", "10.1.0.0/16", "2001:db8::/64"]));
    let many: String = (0..300).map(|i| format!("10.{}.{}.0/24,", i / 256, i % 256)).collect();
    assert_eq!(decode_subnets(&many).len(), MOST_SUBNETS);
}

#[test]
fn announced_runs_are_short_and_bounded() {
    let set =
        vips(&["10.0.0.5", "10.0.0.7", "10.0.0.8", "10.0.0.10", "10.0.0.11", "10.0.0.12", "2001:db8::1"]);
    assert_eq!(encode_announced(&set), "10.0.0.5,10.0.0.7,10.0.0.8,10.0.0.10-10.0.0.12,2001:db8::1");
    assert_eq!(encode_announced(&BTreeSet::new()), "");
    assert_eq!(decode_announced(""), BTreeSet::new());
    assert_eq!(decode_announced("10.0.0.0/24,x,::ffff:10.0.0.1, 10.0.0.2 "), vips(&["10.0.0.1", "10.0.0.2"]));
    assert_eq!(decode_announced("::-ffff::").len(), MOST_ANNOUNCED);
    let scattered: BTreeSet<Vip> =
        (0..20_000u128).map(|i| Vip::new(IpAddr::V6(Ipv6Addr::from(u128::MAX - i * 7919)))).collect();
    let text = encode_announced(&scattered);
    assert!(text.len() <= LONGEST_ANNOUNCED && text.len() > LONGEST_ANNOUNCED - 50, "{}", text.len());
    assert!(decode_announced(&text).is_subset(&scattered));
    let text = encode_declined(&scattered);
    assert!(text.len() <= LONGEST_DECLINED && text.len() > LONGEST_DECLINED - 50, "{}", text.len());
    // With the subnets, within what a server takes.
    const { assert!(LONGEST_ANNOUNCED + LONGEST_DECLINED < 200 << 10) };
}

#[test]
fn hardware_addresses_are_bounded_and_one_hosts() {
    assert_eq!(encode_macs(&content().macs), "02:00:00:00:00:01,02:00:00:00:00:1f");
    let read = decode_macs(
        "02:00:00:00:00:1F, 02:00:00:00:00:01,,02:0:0:0:0:2,02:00:00:00:00,02:00:00:00:00:03:04,+2:00:00:00:00:05",
    );
    assert_eq!(read, content().macs);
    assert_eq!(decode_macs("ff:ff:ff:ff:ff:ff,00:00:00:00:00:00,33:33:00:00:00:01"), BTreeSet::new());
    let many: String = (0..100).map(|i| format!("02:00:00:00:00:{i:02x},")).collect();
    assert_eq!(decode_macs(&many).len(), MOST_MACS);
}

#[test]
fn endpoints_are_host_and_port() {
    for good in ["10.0.0.1:7473", "[2001:db8::1]:7473", "node-1.example.com:1"] {
        assert!(is_endpoint(good), "{good}");
    }
    for bad in [
        "",
        "10.0.0.1",
        "host:",
        "host:0",
        "host:99999",
        ":80",
        "a b:80",
        "2001:db8::1:80:",
        "http://h:80",
        "h..x:80",
    ] {
        assert!(!is_endpoint(bad), "{bad}");
    }
}

fn any_vip() -> impl Strategy<Value = Vip> {
    prop_oneof![
        // Close together, so that runs happen.
        (0u32..60).prop_map(|n| Vip::new(IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n)))),
        (0u128..60).prop_map(|n| Vip::new(IpAddr::V6(Ipv6Addr::from((0x2001_0db8u128 << 96) + n)))),
        any::<u128>().prop_map(|n| Vip::new(IpAddr::V6(Ipv6Addr::from(n)))),
        any::<u32>().prop_map(|n| Vip::new(IpAddr::V4(Ipv4Addr::from(n)))),
    ]
}

proptest! {
    #[test]
    fn announced_round_trips(set in prop::collection::btree_set(any_vip(), 0..100)) {
        prop_assert_eq!(&decode_announced(&encode_announced(&set)), &set);
        prop_assert_eq!(decode_announced(&encode_declined(&set)), set);
    }

    #[test]
    fn subnets_round_trip_and_do_not_depend_on_the_host_part(
        list in prop::collection::vec((any::<u32>(), 0u8..=32, any::<u128>(), 0u8..=128), 0..50)
    ) {
        let set: BTreeSet<IpNet> = list.iter().flat_map(|(a, n, b, m)| {
            [IpNet::new(IpAddr::V4(Ipv4Addr::from(*a)), *n).unwrap(), IpNet::new(IpAddr::V6(Ipv6Addr::from(*b)), *m).unwrap()]
        }).filter(|net| net.addr().to_canonical() == net.addr() && net.network().to_canonical() == net.network()).collect();
        let masked: BTreeSet<IpNet> = set.iter().map(IpNet::trunc).collect();
        let text = encode_subnets(&set);
        prop_assert_eq!(decode_subnets(&text), masked);
        prop_assert_eq!(encode_subnets(&decode_subnets(&text)), text);
    }

    #[test]
    fn any_text_is_taken(text in ".{0,300}", listy in "[0-9a-f:./,\\- ]{0,300}") {
        for t in [&text, &listy] {
            prop_assert!(decode_subnets(t).len() <= MOST_SUBNETS);
            prop_assert!(decode_announced(t).len() <= MOST_ANNOUNCED);
            is_endpoint(t);
        }
    }
}

#[test]
fn a_rank_is_last_only_if_it_says_so() {
    let rank = |text: Option<&str>| {
        let now = at("2026-01-02T03:04:05Z");
        let mut value = create("purelb-system", &node(), &content(), None, now);
        value["metadata"]["annotations"][names::RANK] = json!(text);
        facts(&serde_json::from_value(value).unwrap()).unwrap().rank
    };
    assert_eq!(rank(Some("last")), Some(Rank::Last));
    assert_eq!(rank(Some("first")), Some(Rank::First));
    assert_eq!(rank(Some("")), Some(Rank::First));
}
