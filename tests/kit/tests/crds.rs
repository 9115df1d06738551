//! The custom resources on the real API server: what it accepts, what it refuses and
//! in which words, and that our own reading agrees with it.

use anyhow::{Context, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, CustomResourceExt, Resource};
use purelb_api::{LBNodeAgent, ServiceGroup, node_agent, service_group};
use purelb_core::pools::RangeRules;
use purelb_kit::controlplane::{ControlPlane, manifests};
use serde_json::{Value, json};

const NAMESPACE: &str = "purelb-system";

/// Who refuses a sample.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    Good,
    /// Refused at admission with these words, and by our reading.
    Bad(&'static str),
    /// A bound only the server needs; our reading would cope.
    BadOnlyThere(&'static str),
    /// Beyond what rules can express: accepted, then refused by our reading, which
    /// names this field.
    BadOnlyHere(&'static str),
}
use Verdict::{Bad, BadOnlyHere, BadOnlyThere, Good};

fn v4(pool: &str, subnet: &str) -> Value {
    json!({"local": {"v4pool": {"pool": pool, "subnet": subnet}}})
}

fn v6(pool: &str, subnet: &str) -> Value {
    json!({"local": {"v6pool": {"pool": pool, "subnet": subnet}}})
}

fn aggregated(family: &str, aggregation: &str) -> Value {
    let (pool, subnet) = if family == "v4pool" {
        ("192.0.2.0/28", "192.0.2.0/24")
    } else {
        ("2001:db8::/120", "2001:db8::/64")
    };
    json!({"remote": {family: {"pool": pool, "subnet": subnet, "aggregation": aggregation}}})
}

fn pool() -> Value {
    json!({"pool": "192.0.2.0/28", "subnet": "192.0.2.0/24"})
}

fn with(mut spec: Value, more: Value) -> Value {
    let (Value::Object(spec_map), Value::Object(more)) = (&mut spec, more) else { unreachable!("objects") };
    spec_map.extend(more);
    spec
}

#[rustfmt::skip]
fn group_samples() -> Vec<(&'static str, Value, Verdict)> {
    let good = || v4("192.0.2.0/28", "192.0.2.0/24");
    let set = |more: Value| json!({"local": with(json!({"v4pool": pool()}), more)});
    vec![
        ("prefix", good(), Good),
        ("prefix with host bits", v4("192.0.2.5/28", "192.0.2.0/24"), Good),
        ("range", v4("192.0.2.10-192.0.2.20", "192.0.2.0/24"), Good),
        ("range with spaces", v4("192.0.2.10 - 192.0.2.20", "192.0.2.0/24"), Good),
        ("one address", v4("192.0.2.10", "192.0.2.0/24"), Good),
        ("pool equals subnet", v4("192.0.2.0/24", "192.0.2.0/24"), Good),
        ("IPv6 prefix", v6("2001:db8::/64", "2001:db8::/64"), Good),
        ("IPv6 range", v6("2001:db8::10-2001:db8::ff", "2001:db8::/64"), Good),
        ("IPv6 in full", v6("2001:0db8:0000:0000:0000:0000:0000:0001-2001:0db8:0000:0000:0000:0000:0000:ffff", "2001:db8::/64"), Good),
        ("dual stack, remote", json!({"remote": {"v4pool": pool(), "v6pool": {"pool": "2001:db8::1", "subnet": "2001:db8::/64", "aggregation": "/128"}}}), Good),
        ("several ranges", json!({"local": {"v4pools": [pool(), {"pool": "198.51.100.7", "subnet": "198.51.100.0/24"}], "multiPool": true}}), Good),
        ("netbox", json!({"netbox": {"url": "https://netbox.example/", "tenant": "lab"}}), Good),
        ("netbox with a Secret", json!({"netbox": {"url": "http://netbox:8000", "tenant": "lab", "tokenSecret": {"name": "purelb-netbox"}}}), Good),
        ("external", json!({"external": {"provider": "acme"}}), Good),
        ("external, remote", json!({"external": {"provider": "acme", "announce": "remote", "socket": "/run/acme.sock"}}), Good),
        ("namespaces", with(good(), json!({"namespaces": ["a", "team-b"], "namespaceDefault": true, "enforceNamespaces": true})), Good),
        ("aggregation default", aggregated("v4pool", "default"), Good),
        ("aggregation /8", aggregated("v4pool", "/8"), Good),
        ("aggregation /32", aggregated("v4pool", "/32"), Good),
        ("aggregation /128", aggregated("v6pool", "/128"), Good),
        ("null is as if not written", json!({"local": {"v4pool": pool(), "v4pools": null}, "remote": null}), Good),

        ("nothing", json!({}), Bad("exactly one of local")),
        ("two sources", with(good(), json!({"remote": {"v4pool": pool()}})), Bad("exactly one of local")),
        ("all sources", with(good(), json!({"netbox": {"url": "https://n/", "tenant": "t"}, "external": {"provider": "p"}})), Bad("exactly one of local")),
        ("no pool", json!({"local": {}}), Bad("at least one of v4pool")),
        ("one and several", set(json!({"v4pools": [pool()]})), Bad("v4pool and v4pools exclude")),
        ("one and several, IPv6", json!({"local": {"v6pool": {"pool": "2001:db8::1", "subnet": "2001:db8::/64"}, "v6pools": [{"pool": "2001:db8::2", "subnet": "2001:db8::/64"}]}}), Bad("v6pool and v6pools exclude")),
        ("multi and balance", set(json!({"multiPool": true, "balancePools": true})), Bad("multiPool and balancePools exclude")),
        ("pool outside subnet", v4("192.0.3.0/28", "192.0.2.0/24"), Bad("inside subnet")),
        ("pool wider than subnet", v4("192.0.0.0/16", "192.0.2.0/24"), Bad("inside subnet")),
        ("range leaves subnet", v4("192.0.2.250-192.0.3.2", "192.0.2.0/24"), Bad("inside subnet")),
        ("address outside subnet", v6("2001:db9::1", "2001:db8::/64"), Bad("inside subnet")),
        ("IPv6 pool in v4pool", v4("2001:db8::/120", "192.0.2.0/24"), Bad("pool must be an IPv4")),
        ("IPv4 pool in v6pool", v6("192.0.2.0/28", "2001:db8::/64"), Bad("pool must be an IPv6")),
        ("IPv6 subnet in v4pool", v4("192.0.2.0/28", "2001:db8::/64"), Bad("subnet must be an IPv4")),
        ("mixed range", v4("192.0.2.1-2001:db8::1", "192.0.2.0/24"), Bad("pool must be an IPv4")),
        ("mapped address", v6("::ffff:192.0.2.1", "2001:db8::/64"), Bad("pool must be an IPv6")),
        ("three ends", v4("192.0.2.1-192.0.2.2-192.0.2.3", "192.0.2.0/24"), Bad("pool must be an IPv4")),
        ("half a range", v4("192.0.2.1-", "192.0.2.0/24"), Bad("pool must be an IPv4")),
        ("words", v4("some addresses", "192.0.2.0/24"), Bad("pool must be an IPv4")),
        ("prefix too long", v4("192.0.2.0/33", "192.0.2.0/24"), Bad("pool must be an IPv4")),
        ("subnet without length", v4("192.0.2.1", "192.0.2.0"), Bad("subnet must be an IPv4")),
        ("bad one among several", json!({"local": {"v4pools": [pool(), {"pool": "10.0.0.1", "subnet": "192.0.2.0/24"}]}}), Bad("inside subnet")),
        ("aggregation too long for IPv4", aggregated("v4pool", "/33"), Bad("from /8 to /32")),
        ("aggregation too long for IPv6", aggregated("v6pool", "/129"), Bad("from /8 to /128")),
        ("aggregation too short", aggregated("v4pool", "/7"), Bad("from /8 to /32")),
        ("aggregation without slash", aggregated("v4pool", "24"), Bad("from /8 to /32")),
        ("namespaceDefault alone", with(good(), json!({"namespaceDefault": true})), Bad("namespaceDefault needs")),
        ("enforceNamespaces on an empty list", with(good(), json!({"enforceNamespaces": true, "namespaces": []})), Bad("enforceNamespaces needs")),
        ("netbox without http", json!({"netbox": {"url": "ftp://netbox/", "tenant": "t"}}), Bad("http or https")),
        ("netbox without host", json!({"netbox": {"url": "https:///x", "tenant": "t"}}), Bad("http or https")),
        ("netbox aggregation", json!({"netbox": {"url": "https://n/", "tenant": "t", "aggregation": "/200"}}), Bad("from /8 to /128")),
        ("netbox without tenant", json!({"netbox": {"url": "https://n/"}}), Bad("tenant: Required")),
        ("external without provider", json!({"external": {}}), Bad("provider: Required")),
        ("external announce", json!({"external": {"provider": "p", "announce": "both"}}), Bad("Unsupported value")),
        ("external socket relative", json!({"external": {"provider": "p", "socket": "ipam.sock"}}), Bad("should match")),
        ("pool missing", json!({"local": {"v4pool": {"subnet": "192.0.2.0/24"}}}), Bad("pool: Required")),
        ("number for text", json!({"local": {"v4pool": {"pool": 5, "subnet": "192.0.2.0/24"}}}), Bad("must be of type string")),

        ("namespace that cannot exist", with(good(), json!({"namespaces": ["Not_A_Name"]})), BadOnlyThere("should match")),
        ("namespace twice", with(good(), json!({"namespaces": ["a", "a"]})), BadOnlyThere("Duplicate value")),
        ("129 ranges", json!({"local": {"v4pools": (0..129).map(|i| json!({"pool": format!("10.0.{i}.1"), "subnet": "10.0.0.0/16"})).collect::<Vec<_>>()}}), BadOnlyThere("must have at most 128 items")),

        ("128 ranges", json!({"local": {"v4pools": (0..128).map(|i| json!({"pool": format!("10.0.{i}.1-10.0.{i}.200"), "subnet": "10.0.0.0/16"})).collect::<Vec<_>>()}}), Good),
        ("range backwards", v4("192.0.2.20-192.0.2.10", "192.0.2.0/24"), BadOnlyHere("spec.local.v4pool.pool")),
        ("only the network address", v4("192.0.2.0", "192.0.2.0/24"), BadOnlyHere("spec.local.v4pool.pool")),
        ("ranges overlap", json!({"local": {"v4pools": [pool(), pool()]}}), BadOnlyHere("spec.local.v4pools[1].pool")),
    ]
}

#[rustfmt::skip]
fn agent_samples() -> Vec<(&'static str, Value, Verdict)> {
    let local = |local: Value| json!({"local": local});
    let garp = |garp: Value| json!({"local": {"garpConfig": garp}});
    let address = |which: &str, a: Value| json!({"local": {"addressConfig": {which: a}}});
    let select = |e: Value| json!({"nodeSelector": {"matchExpressions": [e]}});
    vec![
        ("empty", json!({}), Good),
        ("pattern", local(json!({"localInterface": "^(en|eth).*"})), Good),
        ("list only", local(json!({"localInterface": "none", "interfaces": ["eth1", "bond0.100"]})), Good),
        ("older garp", garp(json!({"enabled": true, "count": 10, "intervalMs": 100, "delayMs": 5000})), Good),
        ("newer garp", garp(json!({"interval": "500ms", "initialDelay": "0s", "verifyBeforeSend": false})), Good),
        ("bare seconds", garp(json!({"interval": "1.5", "intervalMs": 1500, "initialDelay": "2", "refresh": "300"})), Good),
        ("refresh off", garp(json!({"refresh": "0"})), Good),
        ("refresh", garp(json!({"refresh": "1h30m"})), Good),
        ("both spellings, same", garp(json!({"interval": "0.5s", "intervalMs": 500})), Good),
        ("lifetimes", address("localInterface", json!({"validLifetime": 300, "preferredLifetime": 300, "noPrefixRoute": true})), Good),
        ("permanent", address("dummyInterface", json!({"validLifetime": 0, "preferredLifetime": 0})), Good),
        ("selector", json!({"nodeSelector": {"matchLabels": {"zone": "a"}, "matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}}), Good),

        ("broken pattern", local(json!({"localInterface": "eth["})), Bad("missing closing ]")),
        ("interface too long", local(json!({"interfaces": ["an-interface-name"]})), Bad("may not be more than 15")),
        ("interface with a space", local(json!({"interfaces": ["eth 0"]})), Bad("should match")),
        ("dummy with a slash", local(json!({"dummyInterface": "kube/lb"})), Bad("should match")),
        ("count 0", garp(json!({"count": 0})), Bad("greater than or equal to 1")),
        ("count 11", garp(json!({"count": 11})), Bad("less than or equal to 10")),
        ("intervalMs 99", garp(json!({"intervalMs": 99})), Bad("greater than or equal to 100")),
        ("delayMs 5001", garp(json!({"delayMs": 5001})), Bad("less than or equal to 5000")),
        ("interval 99ms", garp(json!({"interval": "99ms"})), Bad("from 100ms to 5s")),
        ("interval 6s", garp(json!({"interval": "6s"})), Bad("from 100ms to 5s")),
        ("interval in words", garp(json!({"interval": "500 ms"})), Bad("should match")),
        ("interval without unit", garp(json!({"interval": "500"})), Bad("from 100ms to 5s")),
        ("refresh too often", garp(json!({"refresh": "9s"})), Bad("0 (off) or from 10s to 24h")),
        ("refresh too seldom", garp(json!({"refresh": "25h"})), Bad("0 (off) or from 10s to 24h")),
        ("initialDelay 6s", garp(json!({"initialDelay": "6s"})), Bad("at most 5s")),
        ("spellings disagree", garp(json!({"interval": "1s", "intervalMs": 500})), Bad("say different things")),
        ("delays disagree", garp(json!({"initialDelay": "1s", "delayMs": 0})), Bad("say different things")),
        ("preferred longer than valid", address("localInterface", json!({"validLifetime": 100, "preferredLifetime": 101})), Bad("may not be longer")),
        ("preferred longer than the default", address("localInterface", json!({"preferredLifetime": 301})), Bad("may not be longer")),
        ("negative lifetime", address("dummyInterface", json!({"validLifetime": -1})), Bad("greater than or equal to 0")),
        ("In without values", select(json!({"key": "a", "operator": "In"})), Bad("need values")),
        ("Exists with values", select(json!({"key": "a", "operator": "Exists", "values": ["x"]})), Bad("take none")),
        ("unknown operator", select(json!({"key": "a", "operator": "Gt", "values": ["1"]})), Bad("Unsupported value")),

        ("interface twice", local(json!({"interfaces": ["eth0", "eth0"]})), BadOnlyThere("Duplicate value")),
        ("dummy in the list", local(json!({"interfaces": ["kube-lb0"]})), BadOnlyHere("spec.local.interfaces")),
    ]
}

/// Ours: the field that is wrong, `None` if all is well.
type Reading = fn(Value) -> Option<String>;

fn read_group(object: Value) -> Option<String> {
    match serde_json::from_value::<ServiceGroup>(object) {
        Ok(object) => service_group::parse(&object, &RangeRules::default()).err().map(|p| p.field),
        Err(e) => Some(e.to_string()),
    }
}

fn read_agent(object: Value) -> Option<String> {
    match serde_json::from_value::<LBNodeAgent>(object) {
        Ok(object) => node_agent::facts(&object).config.err().map(|p| p.field),
        Err(e) => Some(e.to_string()),
    }
}

/// Tries one sample; words if it went otherwise than it should.
async fn try_sample(
    api: &Api<DynamicObject>,
    raw: &Value,
    verdict: Verdict,
    ours: Reading,
) -> Result<(), String> {
    let object: DynamicObject = serde_json::from_value(raw.clone()).map_err(|e| e.to_string())?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let answer = api.create(&dry, &object).await;
    let read_raw = ours(raw.clone());
    let accepted = |answer: kube::Result<DynamicObject>| match answer {
        // What the server filled in must read as well.
        Ok(stored) => Ok(ours(serde_json::to_value(stored).map_err(|e| e.to_string())?)),
        Err(e) => Err(format!("refused: {e}")),
    };
    let refused = |answer: kube::Result<DynamicObject>, words: &str| match answer {
        Ok(_) => Err("accepted".to_owned()),
        Err(kube::Error::Api(s)) if s.code == 422 && s.message.contains(words) => Ok(()),
        Err(e) => Err(format!("refused, but not with {words:?}: {e}")),
    };
    match verdict {
        Good => match accepted(answer)? {
            None => Ok(()),
            Some(field) => Err(format!("our reading refuses it: {field}")),
        },
        Bad(words) => {
            refused(answer, words)?;
            read_raw.map(drop).ok_or_else(|| "our reading takes it".to_owned())
        }
        BadOnlyThere(words) => refused(answer, words),
        BadOnlyHere(field) => match accepted(answer)? {
            Some(found) if found == field => Ok(()),
            other => Err(format!("expected our reading to name {field}, got {other:?}")),
        },
    }
}

async fn plane() -> Result<(&'static ControlPlane, Client)> {
    let plane = ControlPlane::shared().await?;
    plane.apply_manifests().await?;
    Ok((plane, plane.admin()?))
}

#[tokio::test]
async fn good_samples_are_accepted_and_bad_ones_refused_with_the_reason() -> Result<()> {
    let (_, client) = plane().await?;
    let kinds: [(&str, ApiResource, _, Reading); 2] = [
        ("ServiceGroup", ServiceGroup::api_resource(), group_samples(), read_group),
        ("LBNodeAgent", LBNodeAgent::api_resource(), agent_samples(), read_agent),
    ];
    let (mut tried, mut wrong) = (0, Vec::new());
    for (kind, resource, samples, ours) in kinds {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &resource);
        for (name, spec, verdict) in samples {
            tried += 1;
            let raw = json!({"apiVersion": "purelb.io/v2", "kind": kind,
                "metadata": {"name": "sample", "namespace": NAMESPACE}, "spec": spec});
            if let Err(why) = try_sample(&api, &raw, verdict, ours).await {
                wrong.push(format!("{kind} {name} ({verdict:?}): {why}"));
            }
        }
    }
    println!("{tried} samples");
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

#[tokio::test]
async fn defaults_are_filled_in() -> Result<()> {
    let (_, client) = plane().await?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), NAMESPACE, &LBNodeAgent::api_resource());
    let raw = json!({"apiVersion": "purelb.io/v2", "kind": "LBNodeAgent", "metadata": {"name": "d"},
        "spec": {"local": {"garpConfig": {}, "addressConfig": {"localInterface": {}, "dummyInterface": {}}}}});
    let stored = api.create(&dry, &serde_json::from_value(raw)?).await?;
    let expected = json!({"local": {
        "localInterface": "default", "dummyInterface": "kube-lb0", "detector": true,
        "garpConfig": {"enabled": true, "count": 3, "verifyBeforeSend": true},
        "addressConfig": {
            "localInterface": {"validLifetime": 300, "noPrefixRoute": true},
            "dummyInterface": {"validLifetime": 0, "noPrefixRoute": false},
        },
    }});
    assert_eq!(stored.data["spec"], expected);

    let api: Api<DynamicObject> = Api::namespaced_with(client, NAMESPACE, &ServiceGroup::api_resource());
    let raw = json!({"apiVersion": "purelb.io/v2", "kind": "ServiceGroup", "metadata": {"name": "d"},
        "spec": {"external": {"provider": "p"}}});
    let stored = api.create(&dry, &serde_json::from_value(raw)?).await?;
    let expected = json!({"external": {"provider": "p", "announce": "local", "socket": "/var/run/purelb/ipam.sock"},
        "namespaceDefault": false, "enforceNamespaces": false});
    assert_eq!(stored.data["spec"], expected);
    Ok(())
}

#[tokio::test]
async fn status_is_apart_and_columns_are_shown() -> Result<()> {
    let (_, client) = plane().await?;
    let api: Api<ServiceGroup> = Api::namespaced(client.clone(), NAMESPACE);
    let spec = serde_json::from_value(v4("192.0.2.0/28", "192.0.2.0/24"))?;
    let made = api.create(&PostParams::default(), &ServiceGroup::new("columns", spec)).await?;
    let condition = Condition {
        type_: "Accepted".into(),
        status: "True".into(),
        reason: "Parsed".into(),
        message: String::new(),
        last_transition_time: Time(k8s_openapi::jiff::Timestamp::now()),
        observed_generation: made.meta().generation,
    };
    let status = json!({"status": {"announce": "Local", "ipam": "Cluster", "allocatedIPv4": 3,
        "availableIPv6": i64::MAX, "conditions": [condition]}});
    let stored = api.patch_status("columns", &PatchParams::default(), &Patch::Merge(&status)).await?;
    let read = stored.status.context("a status")?;
    assert_eq!((read.allocated_ipv4, read.available_ipv6), (Some(3), Some(i64::MAX)));
    // Through the main door a status changes nothing.
    let back = json!({"status": {"allocatedIPv4": 99}});
    let stored = api.patch("columns", &PatchParams::default(), &Patch::Merge(&back)).await?;
    assert_eq!(stored.status.context("a status")?.allocated_ipv4, Some(3));

    let request =
        http::Request::get(format!("/apis/purelb.io/v2/namespaces/{NAMESPACE}/servicegroups/columns"))
            .header("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
            .body(Vec::new())?;
    let table: Value = client.request(request).await?;
    let columns = table["columnDefinitions"].as_array().context("columns")?;
    let named = |priority: i64| -> Vec<&str> {
        columns.iter().filter(|c| c["priority"] == priority).filter_map(|c| c["name"].as_str()).collect()
    };
    assert_eq!(named(0), ["Name", "Announce", "IPAM", "Allocated-V4", "Allocated-V6", "Age"]);
    assert_eq!(named(1), ["Addresses", "Available-V4", "Available-V6", "Namespaces", "Enforced"]);
    assert_eq!(table["rows"][0]["cells"][1], "Local");
    Ok(())
}

/// The shipped samples are good ones.
#[tokio::test]
async fn shipped_samples_are_accepted() -> Result<()> {
    let (_, client) = plane().await?;
    let samples = manifests::read_kustomization(&manifests::base_dir().join("samples"))?;
    assert!(!samples.is_empty());
    for sample in samples {
        let kind = sample["kind"].as_str().context("a kind")?;
        let ours: Reading = match kind {
            "ServiceGroup" => read_group,
            "LBNodeAgent" => read_agent,
            // Anything else is for the server alone to judge.
            _ => |_| None,
        };
        let types: kube::core::TypeMeta = serde_json::from_value(sample.clone())?;
        let (resource, _) =
            kube::discovery::pinned_kind(&client, &GroupVersionKind::try_from(&types)?).await?;
        let namespace = sample["metadata"]["namespace"].as_str().unwrap_or("default");
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        try_sample(&api, &sample, Good, ours)
            .await
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("{sample}"))?;
    }
    Ok(())
}
