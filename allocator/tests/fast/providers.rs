//! Address books of others, each a real server.

use std::net::IpAddr;

use anyhow::Result;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use purelb_kit::controlplane::LabCa;
use purelb_kit::ipam::Provider;
use purelb_kit::netbox::{NetboxServer, Store};
use purelb_kit::wait::eventually;
use serde_json::json;

use crate::common::{PATIENCE, local, settings};
use crate::site::{Running, site};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[tokio::test]
async fn an_external_provider_gives_takes_back_and_may_be_away() -> Result<()> {
    let (_api, c, running) = site().await?;
    let dir = tempfile::tempdir()?;
    let socket = dir.path().join("ipam.sock");
    let provider = Provider::new(&["203.0.113.0/29".parse()?]);
    c.group("default", local(json!({"v4pool": {"pool": "192.0.2.10-192.0.2.20", "subnet": "192.0.2.0/24"}})))
        .await?;
    c.group("ext", json!({"external": {"provider": "acme", "socket": socket, "announce": "remote"}})).await?;
    // Nobody serves the socket yet: its Services wait, others do not.
    c.service("shop/a", &[("service-group", "ext")]).await?;
    let waiting = c.told("shop/a", "Provider").await?;
    assert!(waiting.told.unwrap().2.contains("ipam.sock"), "says where it looked");
    c.service("shop/other", &[]).await?;
    c.has("shop/other", &["192.0.2.10"]).await?;
    let serving = provider.serve(&socket)?;
    let a = c.has("shop/a", &["203.0.113.1"]).await?;
    assert_eq!(a.annotations["purelb.io/pool-type"], "remote");
    c.service("shop/b", &[("service-group", "ext"), ("addresses", "203.0.113.5")]).await?;
    c.has("shop/b", &["203.0.113.5"]).await?;
    c.service("shop/taken", &[("service-group", "ext"), ("addresses", "203.0.113.1")]).await?;
    c.told("shop/taken", "Provider").await?;
    c.group_status("ext", "counts", |s| {
        s["ipam"] == "acme" && s["allocatedIPv4"] == 2 && s["availableIPv4"] == 4
    })
    .await?;
    c.delete("shop/a").await?;
    eventually("the address is given back, and taken by who waits for it", PATIENCE, || async {
        let held = provider.held();
        if held.get(&ip("203.0.113.1")).is_some_and(|by| by == "shop/taken") { Ok(()) } else { Err(held) }
    })
    .await?;
    c.has("shop/taken", &["203.0.113.1"]).await?;
    // It goes away: what it gave stays, who comes now waits, others do not.
    drop(serving);
    std::fs::remove_file(&socket)?;
    let held = c.services("shop").get("b").await?.metadata.resource_version;
    c.service("shop/late", &[("service-group", "ext")]).await?;
    c.told("shop/late", "Provider").await?;
    c.service("shop/meanwhile", &[]).await?;
    c.has("shop/meanwhile", &["192.0.2.11"]).await?;
    assert_eq!(c.services("shop").get("b").await?.metadata.resource_version, held, "nobody is touched");
    let _back = provider.serve(&socket)?;
    c.has("shop/late", &["203.0.113.2"]).await?;
    c.events_of("shop/late", "AllocationFailed", 1).await?;
    running.stop().await
}

/// NetBox knows no "take the next one" for single addresses: who looks and takes must be
/// one at a time, also over several groups of one NetBox.
#[tokio::test]
async fn a_burst_gets_different_addresses_of_a_netbox() -> Result<()> {
    const SERVICES: usize = 24;
    let api = purelb_kit::embedded::EmbeddedApi::start().await?;
    let reserve = |store: Store, i| store.with_address(&format!("198.51.100.{i}/24"), "purelb", "reserved");
    let store = (1..=SERVICES).fold(Store::default(), reserve);
    let netbox = NetboxServer::start(store, "the-token").await?;
    let mut settings = settings();
    settings.netbox_token = Some("the-token".into());
    let c = crate::common::Cluster::new(api.client("user")?);
    c.namespace("shop").await?;
    for group in ["nb0", "nb1"] {
        c.group(group, json!({"netbox": {"url": netbox.url(), "tenant": "purelb"}})).await?;
    }
    for i in 0..SERVICES {
        c.service(&format!("shop/s{i}"), &[("service-group", &format!("nb{}", i % 2))]).await?;
    }
    // All are there when it starts, so all are asked for at once.
    let running = Running::start(api.client("allocator")?, settings).await?;
    let mut seen = std::collections::BTreeSet::new();
    for i in 0..SERVICES {
        let state = c.has_some(&format!("shop/s{i}")).await?;
        assert!(seen.insert(state.ips[0].clone()), "{} twice", state.ips[0]);
        let store = netbox.store();
        let by = store.all().iter().find(|a| a.ip == ip(&state.ips[0])).map(|a| a.description.clone());
        let by = by.unwrap_or_default();
        assert!(by.starts_with(&format!("purelb: shop/s{i} [")), "NetBox knows who has it: {by}");
    }
    running.stop().await
}

#[tokio::test]
async fn a_netbox_that_is_down_holds_up_nobody_else() -> Result<()> {
    let api = purelb_kit::embedded::EmbeddedApi::start().await?;
    let store = Store::default().with_address("198.51.100.5/24", "purelb", "reserved").with_address(
        "198.51.100.6/24",
        "purelb",
        "reserved",
    );
    let netbox = NetboxServer::start(store, "the-token").await?;
    // A port nobody listens on: bound for a moment only.
    let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut settings = settings();
    settings.netbox_token = Some("the-token".into());
    let running = Running::start(api.client("allocator")?, settings).await?;
    let c = crate::common::Cluster::new(api.client("user")?);
    c.namespace("shop").await?;
    let at = |url: String| json!({"netbox": {"url": url, "tenant": "purelb"}});
    c.group("nb", at(netbox.url())).await?;
    c.group("dead", at(format!("http://{closed}"))).await?;
    c.group("default", local(json!({"v4pool": {"pool": "192.0.2.10-192.0.2.20", "subnet": "192.0.2.0/24"}})))
        .await?;
    c.service("shop/a", &[("service-group", "nb")]).await?;
    c.has("shop/a", &["198.51.100.5"]).await?;
    netbox.store().failures = u32::MAX;
    for (name, group, words) in [("b", "nb", "503"), ("dead", "dead", "refused")] {
        let key = format!("shop/{name}");
        c.service(&key, &[("service-group", group)]).await?;
        let message = c.told(&key, "Provider").await?.told.unwrap().2;
        assert!(message.contains(&format!("purelb-system/{group}")) && message.contains(words), "{message}");
    }
    c.service("shop/other", &[]).await?;
    c.has("shop/other", &["192.0.2.10"]).await?;
    // Somebody leaves meanwhile: the address is given back once it can be.
    c.delete("shop/a").await?;
    netbox.store().failures = 0;
    c.has_some("shop/b").await?;
    eventually("what was given back can be had again", PATIENCE, || async {
        let store = netbox.store();
        let all: Vec<_> =
            store.all().iter().map(|a| (a.ip, a.status.clone(), a.description.clone())).collect();
        let left = all.iter().any(|(_, _, by)| by.starts_with("purelb: shop/a "));
        if left { Err(all) } else { Ok(()) }
    })
    .await?;
    c.service("shop/c", &[("service-group", "nb")]).await?;
    c.has_some("shop/c").await?;
    c.events_of("shop/dead", "AllocationFailed", 1).await?;
    running.stop().await
}

#[tokio::test]
async fn netbox_gives_what_is_reserved_for_us() -> Result<()> {
    let api = purelb_kit::embedded::EmbeddedApi::start().await?;
    let ca = LabCa::new()?;
    let dir = tempfile::tempdir()?;
    let trusted = dir.path().join("ca.pem");
    std::fs::write(&trusted, ca.cert_pem())?;
    let store = Store::default()
        .with_address("198.51.100.9/24", "purelb", "reserved")
        .with_address("198.51.100.5/24", "purelb", "reserved")
        .with_address("198.51.100.1/24", "somebody", "reserved")
        .with_address("198.51.100.2/24", "purelb", "active")
        .with_range("198.51.100.100/24", "198.51.100.101/24", "purelb", "reserved")
        .with_prefix("2001:db8:9::/64", "purelb", "reserved");
    let netbox = NetboxServer::start_tls(store, "the-token", &ca).await?;
    netbox.store().failures = 2;
    let mut settings = settings();
    settings.netbox_token = Some("the-token".into());
    settings.netbox_ca_file = Some(trusted);
    let running = Running::start(api.client("allocator")?, settings).await?;
    let c = crate::common::Cluster::new(api.client("user")?);
    c.namespace("shop").await?;
    c.group("nb", json!({"netbox": {"url": netbox.url(), "tenant": "purelb", "aggregation": "default"}}))
        .await?;
    let group = [("service-group", "nb")];
    for (name, expected) in
        [("a", "198.51.100.5"), ("b", "198.51.100.9"), ("c", "198.51.100.100"), ("d", "198.51.100.101")]
    {
        c.service(&format!("shop/{name}"), &group).await?;
        c.has(&format!("shop/{name}"), &[expected]).await?;
    }
    c.service("shop/e", &group).await?;
    let words = c.told("shop/e", "Provider").await?.told.unwrap().2;
    assert!(words.contains("no IPv4 address reserved for tenant purelb"), "{words}");
    c.service("shop/f", &[("service-group", "nb"), ("addresses", "198.51.100.2")]).await?;
    c.told("shop/f", "Provider").await?;
    let described = |ip_text: &str| {
        let store = netbox.store();
        store.all().iter().find(|a| a.ip == ip(ip_text)).map(|a| (a.status.clone(), a.description.clone()))
    };
    let (status, by) = described("198.51.100.5").unwrap();
    assert!(status == "active" && by.starts_with("purelb: shop/a ["), "{status} {by}");
    c.delete("shop/a").await?;
    c.delete("shop/d").await?;
    // One of them goes to the Service that waited; the made one is deleted before.
    c.has_some("shop/e").await?;
    eventually("both were given back", PATIENCE, || async {
        let seen = (described("198.51.100.5"), described("198.51.100.101"));
        let by_a = seen.0.as_ref().is_some_and(|(_, d)| d.starts_with("purelb: shop/a "));
        let by_d = seen.1.as_ref().is_some_and(|(_, d)| d.starts_with("purelb: shop/d "));
        if by_a || by_d { Err(format!("{seen:?}")) } else { Ok(()) }
    })
    .await?;
    running.stop().await
}

#[tokio::test]
async fn the_netbox_token_may_come_from_a_secret() -> Result<()> {
    let (api, c, running) = site().await?;
    let store = Store::default().with_address("198.51.100.5/24", "purelb", "reserved");
    let netbox = NetboxServer::start(store, "from-secret").await?;
    c.group(
        "nb",
        json!({"netbox": {"url": netbox.url(), "tenant": "purelb", "aggregation": "default",
        "tokenSecret": {"name": "purelb-netbox", "key": "token"}}}),
    )
    .await?;
    c.service("shop/a", &[("service-group", "nb")]).await?;
    let words = c.told("shop/a", "Provider").await?.told.unwrap().2;
    assert!(words.contains("purelb-netbox"), "{words}");
    let secrets: Api<Secret> = Api::namespaced(api.client("user")?, "purelb-system");
    let secret = serde_json::from_value(json!({"metadata": {"name": "purelb-netbox"},
        "data": {"token": k8s_openapi::ByteString(b"from-secret".to_vec())}}))?;
    secrets.create(&PostParams::default(), &secret).await?;
    c.has("shop/a", &["198.51.100.5"]).await?;
    running.stop().await
}
