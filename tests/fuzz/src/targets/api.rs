use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use purelb_api::service::Classes;
use purelb_api::{LBNodeAgent, ServiceGroup, addresses, slots};
use purelb_core::Family;
use purelb_core::facts::LeaseFacts;
use purelb_core::pools::RangeRules;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::text;

/// Reads an object, and once more after it was printed: both have to say the same.
fn read_twice<K, F>(data: &[u8], read: impl Fn(&K) -> F) -> Option<F>
where
    K: DeserializeOwned + Serialize,
    F: Debug + PartialEq,
{
    let object: K = serde_json::from_slice(data).ok()?;
    let found = read(&object);
    let printed = serde_json::to_vec(&object).expect("objects can be printed");
    let again: K = serde_json::from_slice(&printed).expect("what was printed can be read");
    assert_eq!(read(&again), found);
    Some(found)
}

/// Bounded, of one family, and written and read again as the same.
pub fn announcing_slots(data: &[u8]) {
    for family in [Family::V4, Family::V6] {
        let found = slots::decode(text(data), family);
        assert!(found.len() <= slots::MOST_SLOTS);
        assert!(found.keys().all(|vip| vip.family() == family));
        let written = slots::encode(&found);
        assert_eq!(slots::decode(&written, family), found);
        assert_eq!(slots::merge(text(data), family, &BTreeMap::new()), written);
        if let Some((vip, slot)) = found.first_key_value() {
            let left = slots::without(&written, *vip, &slot.node).expect("it is there");
            assert_eq!(slots::decode(&left, family).len(), found.len() - 1);
        }
    }
}

/// At most one address per family.
pub fn requested_addresses(data: &[u8]) {
    let Ok(found) = addresses::parse(text(data)) else { return };
    assert!(matches!(found.as_slice(), [_] | [_, _]));
    assert!(found.is_sorted_by(|a, b| a.family() < b.family()));
    let written = found.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    assert_eq!(addresses::parse(&written), Ok(found));
}

/// Bounded, masked, and written and read again as the same.
pub fn lease_subnets(data: &[u8]) {
    let found = purelb_api::lease::decode_subnets(text(data));
    assert!(found.len() <= purelb_api::lease::MOST_SUBNETS);
    assert!(found.iter().all(|net| net.trunc() == *net));
    assert_eq!(purelb_api::lease::decode_subnets(&purelb_api::lease::encode_subnets(&found)), found);
}

/// Bounded, and written and read again as the same, as far as there is room.
pub fn lease_announced(data: &[u8]) {
    let found = purelb_api::lease::decode_announced(text(data));
    assert!(found.len() <= purelb_api::lease::MOST_ANNOUNCED);
    let written = purelb_api::lease::encode_announced(&found);
    assert!(written.len() <= purelb_api::lease::LONGEST_ANNOUNCED);
    let again = purelb_api::lease::decode_announced(&written);
    assert!(again.is_subset(&found));
    let room = purelb_api::lease::LONGEST_ANNOUNCED - written.len();
    assert!(again == found || room < 100, "{} of {}", again.len(), found.len());
}

pub fn lease(data: &[u8]) {
    // A time finer than microseconds is written with microseconds, as the API server stores it.
    let read = |lease: &Lease| {
        purelb_api::lease::facts(lease).map(|facts| LeaseFacts { renewal: String::new(), ..facts })
    };
    let Some(Ok(facts)) = read_twice(data, read) else { return };
    assert!(facts.subnets.len() <= purelb_api::lease::MOST_SUBNETS);
    for vips in [&facts.announced, &facts.declined].into_iter().flatten() {
        assert!(vips.len() <= purelb_api::lease::MOST_ANNOUNCED);
    }
    assert!(facts.draining.is_none_or(|since| since.chars().count() <= 64));
}

pub fn service(data: &[u8]) {
    let read = |service: &Service| purelb_api::service::facts(service, &Classes::default());
    let Some(Some(facts)) = read_twice(data, read) else { return };
    assert!(facts.slots.len() <= 2 * slots::MOST_SLOTS);
}

/// A group that passes gives ranges that lie in their subnets.
pub fn service_group(data: &[u8]) {
    let read = |object: &ServiceGroup| {
        let _ = purelb_api::service_group::retained(object);
        purelb_api::service_group::parse(object, &RangeRules::default())
    };
    let Some(Ok(config)) = read_twice(data, read) else { return };
    for range in config.facts().ranges {
        assert!(range.subnet.contains(&range.first) && range.subnet.contains(&range.last));
    }
}

pub fn node_agent(data: &[u8]) {
    let Some(facts) = read_twice(data, |agent: &LBNodeAgent| purelb_api::node_agent::facts(agent)) else {
        return;
    };
    if let Ok(config) = facts.config {
        assert!((1..=10).contains(&config.garp.count));
        assert!(!config.interfaces.contains(&config.dummy));
    }
}

pub fn node(data: &[u8]) {
    read_twice(data, |node: &Node| purelb_api::node::facts(node));
}

pub fn endpoint_slice(data: &[u8]) {
    read_twice(data, |slice: &EndpointSlice| purelb_api::endpoints::facts(slice));
}
