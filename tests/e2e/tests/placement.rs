//! Where addresses go, and where they do not.

use std::time::Duration;

use anyhow::Result;
use purelb_e2e::{Cluster, Wish, shared_plane, vip};
use purelb_kit::lab::Lab;
use purelb_kit::wait::eventually;

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn each_address_is_on_one_node_of_its_subnet() -> Result<()> {
    let lab = Lab::builder()
        .segment("east", ["192.0.2.0/24", "2001:db8:1::/64"])
        .segment("west", ["198.51.100.0/24", "2001:db8:2::/64"])
        .node("a", ["east"])
        .node("b", ["east"])
        .node("c", ["west"])
        .client("x", ["east", "west"]);
    let cluster = Cluster::start(shared_plane().await?, lab).await?;
    let wire = cluster.lab.observe()?;
    let east: Vec<_> =
        (100..106).map(|n| vip(&format!("192.0.2.{n}"))).chain([vip("2001:db8:1::100")]).collect();
    let west = [vip("198.51.100.100"), vip("2001:db8:2::100")];
    let lost = vip("203.0.113.7");
    cluster.serve(Wish::new("east", east.clone())).await?;
    cluster.serve(Wish::new("west", west)).await?;
    cluster.serve(Wish::new("lost", [lost])).await?;

    let mut winners = std::collections::BTreeSet::new();
    for vip in &east {
        let holder = cluster.holder_where(*vip, "a node of the east", |n| n == "a" || n == "b").await?;
        winners.insert(holder);
    }
    assert_eq!(winners.len(), 2, "seven addresses are shared out");
    for vip in west {
        assert_eq!(cluster.one_holder(vip).await?, "c");
    }
    for vip in east.iter().chain(&west) {
        let holders = cluster.holders(*vip)?;
        assert!(matches!(holders.as_slice(), [(_, dev)] if dev == "eth0"), "{vip}: {holders:?}");
        let node = cluster.node(&holders[0].0);
        let address = node.address(*vip)?.expect("just seen");
        let own =
            node.ports()[0].addresses.iter().find(|a| a.contains(vip)).expect("the subnet's own address");
        assert_eq!(address.net.prefix_len(), own.prefix_len(), "the prefix of the interface's own address");
        assert!(address.valid.is_some_and(|v| v <= Duration::from_secs(7)), "{address:?}");
        assert_eq!(address.proto, Some(0x70), "it carries our mark");
    }

    // What users and scripts see.
    let holder = cluster.one_holder(east[0]).await?;
    let slot = format!("{},eth0,{}", cluster.node_name(&holder), east[0]);
    eventually("the slots of all addresses", PATIENCE, || async {
        let slots = cluster.slots("east").await.map_err(|e| e.to_string())?;
        if slots.len() == east.len() && slots.contains(&slot) {
            Ok(())
        } else {
            Err(format!("{slots:?}, wanted {slot}"))
        }
    })
    .await?;
    eventually("an event says who announces", PATIENCE, || async {
        let events = cluster.events("east").await.map_err(|e| e.to_string())?;
        let said = events.iter().filter(|(reason, _)| reason == "AnnouncingLocal").count();
        if said == east.len() { Ok(()) } else { Err(format!("{events:?}")) }
    })
    .await?;

    // An address that nobody can announce says so, once, and in metrics.
    eventually("an event says that nobody can", PATIENCE, || async {
        let events = cluster.events("lost").await.map_err(|e| e.to_string())?;
        if events.iter().any(|(reason, _)| reason == "NoEligibleNodes") {
            Ok(())
        } else {
            Err(format!("{events:?}"))
        }
    })
    .await?;
    for name in ["a", "b", "c"] {
        let count = cluster.daemon(name).metric("purelb_lbnodeagent_vips{reason=\"NoEligibleNode\"}")?;
        assert!((count - 1.0).abs() < f64::EPSILON);
    }
    let announced =
        format!("purelb_lbnodeagent_announced{{service=\"{}/east\",ip=\"{}\"}}", cluster.namespace, east[0]);
    assert!(cluster.daemon(&holder).metrics()?.contains(&announced));

    // No node of another subnet said a word about it, and nothing is on a dummy.
    for vip in &west {
        assert!(wire.claims(*vip).iter().all(|c| c.host.as_deref() == Some("c")), "{:?}", wire.claims(*vip));
    }
    for node in cluster.lab.nodes() {
        let dummy = node.addresses()?.into_iter().filter(|a| a.dev == "kube-lb0").count();
        assert_eq!(dummy, 0, "nothing local on the dummy of {}", node.name());
    }

    // The Service goes, and everything of it.
    cluster.remove_service("east").await?;
    for vip in &east {
        cluster
            .until(&format!("{vip} is gone"), PATIENCE, || match cluster.holders(*vip) {
                Ok(holders) if holders.is_empty() => Ok(()),
                other => Err(format!("{other:?}")),
            })
            .await?;
    }
    assert!(!cluster.daemon(&holder).metrics()?.contains("/east"), "its series are gone");
    Ok(())
}
