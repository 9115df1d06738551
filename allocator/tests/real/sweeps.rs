//! What NetBox and external providers have given and no Service holds any more: with the
//! program, the shipped rights, and groups whose status a real server keeps.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::Result;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use purelb_kit::ipam::Provider;
use purelb_kit::netbox::{NetboxServer, Store};
use purelb_kit::wait::eventually;
use serde_json::{Value, json};

use crate::common::{Cluster, PATIENCE, SYSTEM};
use crate::plane::{Allocator, leader, own};

const QUICK: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=1s"];
const OTHERS: &str = "purelb: shop/gone [0123456789abcdef]";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The token where the shipped rights let the allocator read one.
async fn token(c: &Cluster, token: &str) -> Result<()> {
    let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "purelb-netbox"},
        "data": {"token": ByteString(token.into())}}))?;
    Api::<Secret>::namespaced(c.client.clone(), SYSTEM).create(&PostParams::default(), &secret).await?;
    Ok(())
}

/// Address -> status and description.
fn book(netbox: &NetboxServer) -> BTreeMap<IpAddr, (String, String)> {
    netbox.store().all().iter().map(|a| (a.ip, (a.status.clone(), a.description.clone()))).collect()
}

fn swept(status: &Value) -> bool {
    let all = status["conditions"].as_array();
    let found = all.and_then(|all| all.iter().find(|c| c["type"] == "Swept"));
    found.is_some_and(|c| c["status"] == "True" && c["reason"] == "Swept")
}

/// The leader is killed, Services go while nobody looks, and the next one finds out.
#[tokio::test]
async fn what_a_killed_leader_left_given_goes_back_to_netbox_and_to_a_provider() -> Result<()> {
    let (plane, c) = own().await?;
    c.namespace("shop").await?;
    let store = Store::default()
        .with_address("198.51.100.1/24", "purelb", "reserved")
        .with_range("198.51.100.100/24", "198.51.100.109/24", "purelb", "reserved")
        .with_user("198.51.100.3/24", "purelb", OTHERS)
        .with_user("198.51.100.5/24", "purelb", "the printer");
    let netbox = NetboxServer::start(store, "the-token").await?;
    let provider = Provider::new(&["203.0.113.0/28".parse()?]);
    let socket = plane.dir().join("ipam.sock");
    let _serving = provider.serve(&socket)?;
    token(&c, "the-token").await?;
    let secret = json!({"name": "purelb-netbox", "key": "token"});
    c.group("nb", json!({"netbox": {"url": netbox.url(), "tenant": "purelb", "tokenSecret": secret}}))
        .await?;
    c.group("ext", json!({"external": {"provider": "acme", "socket": socket}})).await?;

    let first = Allocator::start(&plane, "first", &QUICK).await?;
    for (name, group) in
        [("gone", "nb"), ("made", "nb"), ("stays", "nb"), ("gone-too", "ext"), ("held", "ext")]
    {
        c.service(&format!("shop/{name}"), &[("service-group", group)]).await?;
        c.has_some(&format!("shop/{name}")).await?;
    }
    provider.give(ip("203.0.113.9"), "another-cluster", "shop/gone-too");
    let before = book(&netbox);
    first.kill();
    for name in ["gone", "made", "gone-too"] {
        c.delete(&format!("shop/{name}")).await?;
    }

    let second = Allocator::start(&plane, "second", &QUICK).await?;
    leader(&c, "second").await?;
    eventually("NetBox has back what nobody holds", PATIENCE, || async {
        let now = book(&netbox);
        let free = now[&ip("198.51.100.1")] == ("reserved".to_owned(), String::new());
        if free && !now.contains_key(&ip("198.51.100.100")) { Ok(()) } else { Err((now, second.log())) }
    })
    .await?;
    eventually("so has the provider", PATIENCE, || async {
        let left: Vec<String> = provider.held().into_iter().map(|(ip, by)| format!("{ip} {by}")).collect();
        if left == ["203.0.113.2 shop/held", "203.0.113.9 shop/gone-too"] {
            Ok(())
        } else {
            Err((left, second.log()))
        }
    })
    .await?;
    let after = book(&netbox);
    for kept in ["198.51.100.101", "198.51.100.3", "198.51.100.5"] {
        assert_eq!(after[&ip(kept)], before[&ip(kept)], "{kept} is held, or not ours");
    }
    for group in ["nb", "ext"] {
        c.group_status(group, "says that it is swept", swept).await?;
    }
    c.has("shop/stays", &["198.51.100.101"]).await?;
    c.has("shop/held", &["203.0.113.2"]).await?;
    second.stop().await
}
