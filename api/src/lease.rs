//! A node's Lease: what its annotations say, read and written.
//!
//! ```text
//! metadata.name              purelb-node-<node>
//! metadata.annotations       purelb.io/subnets           10.0.0.0/24,2001:db8::/64
//!                            purelb.io/instance          <uuid of this run>
//!                            purelb.io/draining          2026-01-02T03:04:05Z       (while draining)
//!                                                        or: excluded               (by the Node's label)
//!                            purelb.io/rank              first, or: last            (the Node is not well)
//!                            purelb.io/announced         10.0.0.5,10.0.0.7-10.0.0.9
//!                            purelb.io/declined          10.0.0.6                   (left to the next in line)
//!                            purelb.io/hardware-addresses 02:00:00:00:00:01,02:00:00:00:00:02
//!                            purelb.io/control-endpoint  node1.example:7473         (if it listens)
//! spec                       holderIdentity, leaseDurationSeconds, renewTime
//! ```
//! Anyone with the right to patch Leases can write anything here: a reader takes
//! what it understands, up to fixed bounds, and drops the rest.

use std::collections::BTreeSet;
use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt;
use purelb_core::facts::{LeaseFacts, Rank};
use purelb_core::messages::LeaseContent;
use purelb_core::pools::Span;
use purelb_core::segment::HardwareAddr;
use purelb_core::{InstanceId, NodeName, Vip};
use serde_json::{Value, json};
use thiserror::Error;

use crate::names;

/// As many subnets as a reader keeps.
pub const MOST_SUBNETS: usize = 256;
/// As many announced addresses as a reader keeps: above what one node can hold.
pub const MOST_ANNOUNCED: usize = 16_384;
/// All annotations of an object together may have 256 KiB; a write past that would
/// be refused, and with it the renewal. Addresses that do not fit confirm no
/// handoff: there the deadline decides.
pub const LONGEST_ANNOUNCED: usize = 128 << 10;
/// The same for declined addresses; one that does not fit is not declined.
pub const LONGEST_DECLINED: usize = 64 << 10;

/// As many hardware addresses as a reader keeps: above what one node serves on.
pub const MOST_MACS: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LeaseProblem {
    #[error("Lease {0:?} is not a node's Lease")]
    NotANodes(String),
    #[error("the Lease of node {node} is held by {holder:?}")]
    HeldByAnother { node: NodeName, holder: String },
}

/// What a Lease says.
pub fn facts(lease: &Lease) -> Result<LeaseFacts, LeaseProblem> {
    let name = lease.name_any();
    let node = names::node_of_lease(&name).ok_or(LeaseProblem::NotANodes(name))?;
    let spec = lease.spec.as_ref();
    let holder = spec.and_then(|s| s.holder_identity.clone()).unwrap_or_default();
    if holder != node.as_str() {
        return Err(LeaseProblem::HeldByAnother { node, holder: holder.chars().take(64).collect() });
    }
    let get = |key: &str| lease.annotations().get(key).map(String::as_str);
    Ok(LeaseFacts {
        instance: get(names::INSTANCE).and_then(|t| InstanceId::new(t).ok()),
        duration_seconds: spec.and_then(|s| s.lease_duration_seconds).unwrap_or_default().into(),
        renewal: spec.and_then(|s| s.renew_time.as_ref()).map(renewal_mark).unwrap_or_default(),
        subnets: get(names::SUBNETS).map(decode_subnets).unwrap_or_default(),
        // Whatever it says, whoever wrote it wants no addresses there.
        draining: get(names::DRAINING).map(|t| t.chars().take(64).collect()),
        rank: get(names::RANK).map(decode_rank),
        announced: get(names::ANNOUNCED).map(decode_announced),
        declined: get(names::DECLINED).map(decode_announced),
        macs: get(names::HARDWARE_ADDRESSES).map(decode_macs),
        control_endpoint: get(names::CONTROL_ENDPOINT).filter(|t| is_endpoint(t)).map(str::to_owned),
        node,
    })
}

/// The text by which a renewal is recognised; only ever compared for equality.
pub fn renewal_mark(time: &MicroTime) -> String {
    time.0.to_string()
}

/// A new Lease.
pub fn create(
    namespace: &str,
    node: &NodeName,
    content: &LeaseContent,
    endpoint: Option<&str>,
    now: Timestamp,
) -> Value {
    let mut lease = body(node, content, endpoint, now);
    lease["apiVersion"] = json!("coordination.k8s.io/v1");
    lease["kind"] = json!("Lease");
    lease["metadata"]["name"] = json!(names::lease_name(node));
    lease["metadata"]["namespace"] = json!(namespace);
    // In a patch a null removes; in a new object it has no place.
    if let Some(annotations) = lease["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|_, v| !v.is_null());
    }
    lease
}

/// A merge patch that renews a Lease, or takes one over. It names the version it was
/// made for: if anybody wrote in between (another instance above all), the server
/// answers with a conflict instead of mixing the two.
pub fn patch(
    node: &NodeName,
    content: &LeaseContent,
    endpoint: Option<&str>,
    now: Timestamp,
    resource_version: &str,
) -> Value {
    let mut patch = body(node, content, endpoint, now);
    patch["metadata"]["resourceVersion"] = json!(resource_version);
    patch
}

fn body(node: &NodeName, content: &LeaseContent, endpoint: Option<&str>, now: Timestamp) -> Value {
    let (name_key, name) = names::LABEL_NAME;
    let (component_key, component) = names::LABEL_COMPONENT;
    json!({
        "metadata": {
            "labels": {name_key: name, component_key: component},
            "annotations": {
                names::SUBNETS: encode_subnets(&content.subnets),
                names::INSTANCE: content.instance,
                names::DRAINING: content.draining,
                names::RANK: encode_rank(content.rank),
                names::ANNOUNCED: encode_announced(&content.announced),
                names::DECLINED: encode_declined(&content.declined),
                names::HARDWARE_ADDRESSES: encode_macs(&content.macs),
                names::CONTROL_ENDPOINT: endpoint,
            },
            "ownerReferences": [{
                "apiVersion": "v1",
                "kind": "Node",
                "name": node,
                "uid": content.node_uid,
                "controller": false,
                "blockOwnerDeletion": false,
            }],
        },
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": content.duration.as_secs(),
            "renewTime": MicroTime(now),
        },
    })
}

fn encode_rank(rank: Rank) -> &'static str {
    match rank {
        Rank::First => "first",
        Rank::Last => "last",
    }
}

/// A word that we do not know is from somebody who knows ranks; all that counts is
/// whether it says that it is last.
fn decode_rank(text: &str) -> Rank {
    if text == "last" { Rank::Last } else { Rank::First }
}

/// Masked, once each, sorted as text.
pub fn encode_subnets(subnets: &BTreeSet<IpNet>) -> String {
    let texts: BTreeSet<String> = subnets.iter().map(|net| net.trunc().to_string()).collect();
    texts.into_iter().take(MOST_SUBNETS).collect::<Vec<_>>().join(",")
}

/// What is a prefix, masked; the first [`MOST_SUBNETS`] of them.
pub fn decode_subnets(text: &str) -> BTreeSet<IpNet> {
    let entries = text.split(',').filter_map(|entry| subnet(entry.trim()));
    let mut found = BTreeSet::new();
    for net in entries {
        found.insert(net);
        if found.len() == MOST_SUBNETS {
            break;
        }
    }
    found
}

/// An IPv4 prefix written as IPv6 is the IPv4 prefix, as with addresses.
fn subnet(text: &str) -> Option<IpNet> {
    let net = text.parse::<IpNet>().ok()?;
    let unmapped = match (net.addr().to_canonical(), net) {
        (IpAddr::V4(ip), IpNet::V6(mapped)) => {
            let length = mapped.prefix_len().checked_sub(96)?;
            IpNet::V4(Ipv4Net::new(ip, length).ok()?)
        }
        _ => net,
    };
    Some(unmapped.trunc())
}

/// Addresses in order, three or more in a row as `from-to`.
pub fn encode_announced(vips: &BTreeSet<Vip>) -> String {
    encode_vips(vips, LONGEST_ANNOUNCED)
}

/// In the same words; [`decode_announced`] reads both.
pub fn encode_declined(vips: &BTreeSet<Vip>) -> String {
    encode_vips(vips, LONGEST_DECLINED)
}

fn encode_vips(vips: &BTreeSet<Vip>, longest: usize) -> String {
    let mut runs: Vec<(Vip, Vip)> = Vec::new();
    for vip in vips.iter().copied() {
        match runs.last_mut() {
            Some((_, last)) if follows(*last, vip) => *last = vip,
            _ => runs.push((vip, vip)),
        }
    }
    let mut text = String::new();
    for (first, last) in runs {
        let entry = if first == last {
            first.to_string()
        } else if follows(first, last) {
            format!("{first},{last}")
        } else {
            format!("{first}-{last}")
        };
        if text.len() + entry.len() + 1 > longest {
            break;
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&entry);
    }
    text
}

fn follows(a: Vip, b: Vip) -> bool {
    next(a.ip()) == Some(b.ip())
}

fn next(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).checked_add(1).map(|n| IpAddr::V4(Ipv4Addr::from(n))),
        IpAddr::V6(ip) => u128::from(ip).checked_add(1).map(|n| IpAddr::V6(Ipv6Addr::from(n))),
    }
}

/// The first [`MOST_ANNOUNCED`] addresses; what is none is dropped.
pub fn decode_announced(text: &str) -> BTreeSet<Vip> {
    let mut found = BTreeSet::new();
    for entry in text.split(',') {
        let room = MOST_ANNOUNCED - found.len();
        if room == 0 {
            break;
        }
        let entry = entry.trim();
        // A prefix is not in our vocabulary here.
        if entry.contains('/') {
            continue;
        }
        let Ok(span) = entry.parse::<Span>() else { continue };
        let addresses = iter::successors(Some(span.first()), |ip| next(*ip).filter(|n| *n <= span.last()));
        found.extend(addresses.take(room).map(Vip::new));
    }
    found
}

/// Sorted, as six pairs of hex digits each.
fn encode_macs(macs: &BTreeSet<HardwareAddr>) -> String {
    let text = |mac: &HardwareAddr| mac.map(|byte| format!("{byte:02x}")).join(":");
    macs.iter().take(MOST_MACS).map(text).collect::<Vec<_>>().join(",")
}

/// The first [`MOST_MACS`] of a host's own; what is none is dropped.
fn decode_macs(text: &str) -> BTreeSet<HardwareAddr> {
    text.split(',').filter_map(|entry| mac(entry.trim())).take(MOST_MACS).collect()
}

fn mac(text: &str) -> Option<HardwareAddr> {
    let mut bytes = text.split(':').map(|pair| {
        let hex = pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit());
        hex.then(|| u8::from_str_radix(pair, 16).ok()).flatten()
    });
    let mut mac = HardwareAddr::default();
    for byte in &mut mac {
        *byte = bytes.next()??;
    }
    // Nobody's, or everybody's.
    let one_host = mac != HardwareAddr::default() && mac[0] & 1 == 0;
    (bytes.next().is_none() && one_host).then_some(mac)
}

/// `host:port`, the host a name or an address (IPv6 in brackets).
fn is_endpoint(text: &str) -> bool {
    if text.parse::<SocketAddr>().is_ok_and(|a| a.port() != 0) {
        return true;
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let label =
        |l: &str| !l.is_empty() && l.len() <= 63 && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    host.len() <= 253 && host.split('.').all(label) && port.parse::<u16>().is_ok_and(|p| p != 0)
}

#[cfg(test)]
mod tests;
