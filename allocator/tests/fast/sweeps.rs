//! What providers have given and no Service holds any more.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use purelb_allocator::settings::Settings;
use purelb_kit::embedded::EmbeddedApi;
use purelb_kit::ipam::Provider;
use purelb_kit::netbox::{NetboxServer, Store};
use purelb_kit::wait::eventually;
use serde_json::{Value, json};

use crate::common::{Cluster, PATIENCE, settings};
use crate::site::Running;

fn sweeping() -> Settings {
    let mut settings = settings();
    settings.netbox_token = Some("the-token".into());
    settings.sweep_interval = Duration::from_millis(300);
    settings.sweep_grace = Duration::from_millis(200);
    settings
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Address -> status and description.
fn book(netbox: &NetboxServer) -> BTreeMap<IpAddr, (String, String)> {
    netbox.store().all().iter().map(|a| (a.ip, (a.status.clone(), a.description.clone()))).collect()
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

#[tokio::test]
async fn what_nobody_holds_goes_back_to_netbox_and_nothing_else_does() -> Result<()> {
    const OTHER: &str = "purelb: shop/a [0123456789abcdef]";
    let api = EmbeddedApi::start().await?;
    let store = Store::default()
        .with_address("198.51.100.1/24", "purelb", "reserved")
        .with_address("198.51.100.2/24", "purelb", "reserved")
        .with_range("198.51.100.100/24", "198.51.100.109/24", "purelb", "reserved")
        // Another cluster with the same tenant, an older mark, an operator's own, and
        // somebody else's tenant: none of them is ours to give back.
        .with_user("198.51.100.3/24", "purelb", OTHER)
        .with_user("198.51.100.4/24", "purelb", "purelb: shop/a")
        .with_user("198.51.100.5/24", "purelb", "the printer")
        .with_user("198.51.100.6/24", "somebody", "purelb: shop/a");
    let netbox = NetboxServer::start(store, "the-token").await?;
    let c = Cluster::new(api.client("user")?);
    c.namespace("shop").await?;
    for group in ["nb", "same-netbox"] {
        c.group(group, json!({"netbox": {"url": netbox.url(), "tenant": "purelb"}})).await?;
    }
    let first = Running::start(api.client("first")?, sweeping()).await?;
    for name in ["a", "b", "made", "stays"] {
        c.service(&format!("shop/{name}"), &[("service-group", "nb")]).await?;
        c.has_some(&format!("shop/{name}")).await?;
    }
    let before = book(&netbox);
    assert_eq!(before.len(), 8, "two are made out of the range: {before:?}");
    // Three Services go while nobody looks. One comes back under its name.
    first.stop().await?;
    for name in ["a", "b", "made"] {
        c.delete(&format!("shop/{name}")).await?;
    }
    let second = Running::start(api.client("second")?, sweeping()).await?;
    let others = |all: &BTreeMap<IpAddr, (String, String)>| -> Vec<String> {
        (3..=6).map(|n| all[&ip(&format!("198.51.100.{n}"))].1.clone()).collect()
    };
    eventually("the three are free again", PATIENCE, || async {
        let all = book(&netbox);
        let free = |text: &str| all.get(&ip(text)).is_some_and(|(s, d)| s == "reserved" && d.is_empty());
        let made_gone = !all.contains_key(&ip("198.51.100.100"));
        if free("198.51.100.1") && free("198.51.100.2") && made_gone { Ok(()) } else { Err(all) }
    })
    .await?;
    let after = book(&netbox);
    assert_eq!(others(&after), others(&before), "others' are not touched");
    assert_eq!(after[&ip("198.51.100.101")], before[&ip("198.51.100.101")], "nor what is held");
    c.has("shop/stays", &["198.51.100.101"]).await?;
    let swept = |s: &Value| condition(s, "Swept").is_some_and(|c| c["status"] == "True");
    c.group_status("nb", "says that it is swept", swept).await?;
    // Among allocations and releases all the time: what is held stays given.
    for round in 0..10 {
        let key = format!("shop/round{round}");
        c.service(&key, &[("service-group", "nb")]).await?;
        let given = c.has_some(&key).await?.ips[0].clone();
        let (status, by) = book(&netbox)[&ip(&given)].clone();
        assert!(status == "active" && by.starts_with(&format!("purelb: {key} [")), "{given}: {status} {by}");
        if round % 2 == 0 {
            c.delete(&key).await?;
        }
    }
    for round in [1, 3, 5, 7, 9] {
        let key = format!("shop/round{round}");
        let given = c.state(&key).await?.ips[0].clone();
        let (status, by) = book(&netbox)[&ip(&given)].clone();
        assert!(status == "active" && by.starts_with(&format!("purelb: {key} [")), "{given}: {status} {by}");
    }
    second.stop().await
}

/// Giving back fails for longer than anybody tries: a sweep finds it again.
#[tokio::test]
async fn what_could_not_be_given_back_is_found_again() -> Result<()> {
    let api = EmbeddedApi::start().await?;
    let store = Store::default().with_address("198.51.100.1/24", "purelb", "reserved");
    let netbox = NetboxServer::start(store, "the-token").await?;
    let c = Cluster::new(api.client("user")?);
    c.namespace("shop").await?;
    c.group("nb", json!({"netbox": {"url": netbox.url(), "tenant": "purelb"}})).await?;
    let running = Running::start(api.client("first")?, sweeping()).await?;
    c.service("shop/a", &[("service-group", "nb")]).await?;
    c.has("shop/a", &["198.51.100.1"]).await?;
    netbox.store().read_only = true;
    c.delete("shop/a").await?;
    // Its list of what to give back goes with the process.
    eventually("it was tried", PATIENCE, || async {
        let refused = netbox.store().refused;
        if refused > 0 { Ok(()) } else { Err(refused) }
    })
    .await?;
    running.kill().await;
    netbox.store().read_only = false;
    let second = Running::start(api.client("second")?, sweeping()).await?;
    eventually("given back all the same", PATIENCE, || async {
        let all = book(&netbox);
        if all[&ip("198.51.100.1")].0 == "reserved" { Ok(()) } else { Err(all) }
    })
    .await?;
    second.stop().await
}

#[tokio::test]
async fn an_external_provider_is_swept_if_it_can_list() -> Result<()> {
    let api = EmbeddedApi::start().await?;
    let dir = tempfile::tempdir()?;
    let c = Cluster::new(api.client("user")?);
    c.namespace("shop").await?;
    let provider = Provider::new(&["203.0.113.0/28".parse()?]);
    let old = Provider::old(&["203.0.113.128/28".parse()?]);
    let (new_socket, old_socket) = (dir.path().join("new.sock"), dir.path().join("old.sock"));
    let _serving = (provider.serve(&new_socket)?, old.serve(&old_socket)?);
    c.group("ext", json!({"external": {"provider": "acme", "socket": new_socket}})).await?;
    c.group("old", json!({"external": {"provider": "acme", "socket": old_socket}})).await?;
    let first = Running::start(api.client("first")?, sweeping()).await?;
    for (name, group) in [("a", "ext"), ("b", "ext"), ("c", "ext"), ("stays", "ext"), ("old", "old")] {
        c.service(&format!("shop/{name}"), &[("service-group", group)]).await?;
        c.has_some(&format!("shop/{name}")).await?;
    }
    let ours = provider.installation_of(ip("203.0.113.1")).unwrap();
    assert!(!ours.is_empty());
    provider.give(ip("203.0.113.9"), "another-cluster", "shop/a");
    provider.give(ip("203.0.113.10"), "", "shop/a");
    first.stop().await?;
    for name in ["a", "b", "c", "old"] {
        c.delete(&format!("shop/{name}")).await?;
    }
    let second = Running::start(api.client("second")?, sweeping()).await?;
    eventually("what nobody holds is given back", PATIENCE, || async {
        let left: Vec<String> = provider.held().into_iter().map(|(ip, by)| format!("{ip} {by}")).collect();
        let expected = ["203.0.113.4 shop/stays", "203.0.113.9 shop/a", "203.0.113.10 shop/a"];
        if left == expected { Ok(()) } else { Err(left) }
    })
    .await?;
    let told = |status: &str, reason: &str| {
        let (status, reason) = (status.to_owned(), reason.to_owned());
        move |s: &Value| {
            condition(s, "Swept").is_some_and(|c| c["status"] == *status && c["reason"] == *reason)
        }
    };
    c.group_status("ext", "is swept", told("True", "Swept")).await?;
    c.group_status("old", "cannot be swept, and says so", told("False", "NotListed")).await?;
    assert_eq!(old.held().len(), 1, "it is left alone");
    second.stop().await
}

/// The group goes first, and then the Services that hold its addresses.
#[tokio::test]
async fn what_a_deleted_group_gave_goes_back_with_its_services() -> Result<()> {
    let api = EmbeddedApi::start().await?;
    let dir = tempfile::tempdir()?;
    let store = Store::default().with_address("198.51.100.1/24", "purelb", "reserved").with_address(
        "198.51.100.2/24",
        "purelb",
        "reserved",
    );
    let netbox = NetboxServer::start(store, "the-token").await?;
    let provider = Provider::new(&["203.0.113.0/28".parse()?]);
    let socket = dir.path().join("ipam.sock");
    let _serving = provider.serve(&socket)?;
    let c = Cluster::new(api.client("user")?);
    c.namespace("shop").await?;
    let spec = json!({"netbox": {"url": netbox.url(), "tenant": "purelb"}});
    c.group("nb", spec).await?;
    c.group("ext", json!({"external": {"provider": "acme", "socket": socket}})).await?;
    let running = Running::start(api.client("allocator")?, sweeping()).await?;
    for (name, group) in [("a", "nb"), ("b", "nb"), ("c", "ext")] {
        c.service(&format!("shop/{name}"), &[("service-group", group)]).await?;
        c.has_some(&format!("shop/{name}")).await?;
    }
    c.drop_group("nb").await?;
    c.drop_group("ext").await?;
    for key in ["shop/a", "shop/c"] {
        c.told(key, "RangeRemoved").await?;
        assert_eq!(c.state(key).await?.ips.len(), 1, "{key} keeps its address");
        c.delete(key).await?;
    }
    let reserved = |all: &BTreeMap<IpAddr, (String, String)>, text: &str| all[&ip(text)].0 == "reserved";
    eventually("they are given back", PATIENCE, || async {
        let (all, held) = (book(&netbox), provider.held());
        if reserved(&all, "198.51.100.1") && held.is_empty() { Ok(()) } else { Err((all, held)) }
    })
    .await?;
    assert_eq!(book(&netbox)[&ip("198.51.100.2")].0, "active", "that one is held");
    // Another one under the old name, with another book.
    c.group("nb", json!({"external": {"provider": "acme", "socket": socket}})).await?;
    c.service("shop/d", &[("service-group", "nb")]).await?;
    c.has("shop/d", &["203.0.113.1"]).await?;
    c.delete("shop/b").await?;
    eventually("also the last one", PATIENCE, || async {
        let all = book(&netbox);
        if reserved(&all, "198.51.100.2") { Ok(()) } else { Err(all) }
    })
    .await?;
    running.stop().await
}

/// A token that may not write is not a NetBox that is full.
#[tokio::test]
async fn a_refusal_is_told_as_it_is() -> Result<()> {
    let api = EmbeddedApi::start().await?;
    let store = Store::default().with_address("198.51.100.1/24", "purelb", "reserved").with_prefix(
        "2001:db8:9::/64",
        "purelb",
        "reserved",
    );
    let netbox = NetboxServer::start(store, "the-token").await?;
    netbox.store().read_only = true;
    let c = Cluster::new(api.client("user")?);
    c.namespace("shop").await?;
    c.group("nb", json!({"netbox": {"url": netbox.url(), "tenant": "purelb"}})).await?;
    let running = Running::start(api.client("allocator")?, sweeping()).await?;
    let with = |families: &[&str], policy: &str| {
        let families: Vec<String> = families.iter().map(ToString::to_string).collect();
        let policy = policy.to_owned();
        move |s: &mut k8s_openapi::api::core::v1::Service| {
            let spec = s.spec.as_mut().unwrap();
            (spec.ip_family_policy, spec.ip_families) = (Some(policy), Some(families));
        }
    };
    let group = [("service-group", "nb")];
    c.service_with("shop/six", &group, with(&["IPv6"], "SingleStack")).await?;
    c.service_with("shop/both", &group, with(&["IPv4", "IPv6"], "PreferDualStack")).await?;
    for key in ["shop/six", "shop/both"] {
        let words = c.told(key, "Provider").await?.told.unwrap().2;
        assert!(words.contains("403") && words.contains("You do not have permission"), "{key}: {words}");
    }
    netbox.store().read_only = false;
    c.has_some("shop/six").await?;
    let both = c.until("shop/both", "both families", |s| s.ips.len() == 2).await?;
    assert_eq!(both.ips[0], "198.51.100.1");
    running.stop().await
}
