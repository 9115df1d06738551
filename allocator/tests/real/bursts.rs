//! Many Services at once: how fast, and with how many writes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::Result;
use futures::StreamExt;
use kube::api::ListParams;
use purelb_kit::controlplane::ServiceAccount;
use purelb_kit::embedded::Verb;
use purelb_kit::faults::{Counters, Proxy};
use purelb_kit::wait::eventually;
use serde_json::json;

use crate::common::{Cluster, PATIENCE, figure, local, state_of};
use crate::plane::{Allocator, own};

/// Creates so many Services, eight at a time, and answers how long that took.
pub async fn create(
    c: &Cluster,
    namespace: &str,
    names: std::ops::Range<usize>,
) -> Result<std::time::Duration> {
    let began = Instant::now();
    let created: Vec<Result<()>> = futures::stream::iter(names)
        .map(|i| async move { c.service(&format!("{namespace}/s{i:05}"), &[]).await })
        .buffer_unordered(8)
        .collect()
        .await;
    created.into_iter().collect::<Result<()>>()?;
    Ok(began.elapsed())
}

/// Waits until every Service of the namespace has an address; no two have the same.
pub async fn all_served(c: &Cluster, namespace: &str, count: usize) -> Result<BTreeMap<String, String>> {
    eventually(&format!("{count} Services have addresses"), PATIENCE * 3, || async {
        let list = c.services(namespace).list(&ListParams::default()).await.map_err(|e| e.to_string())?;
        let have: BTreeMap<String, String> = list
            .items
            .iter()
            .filter_map(|s| Some((s.metadata.name.clone()?, state_of(s).ips.first()?.clone())))
            .collect();
        let different: BTreeSet<&String> = have.values().collect();
        assert_eq!(different.len(), have.len(), "an address was given twice");
        if have.len() == count { Ok(have) } else { Err(format!("{} of {count}", have.len())) }
    })
    .await
}

#[tokio::test]
async fn a_burst_is_served_as_fast_as_it_is_created() -> Result<()> {
    let (plane, c) = own().await?;
    // Between the allocator and the server stands a counter.
    let proxy = Proxy::before_plane(&plane)?.tls(plane.ca())?.start().await?;
    let kubeconfig = plane.kubeconfig_for(&ServiceAccount::allocator(), proxy.url()).await?;
    let allocator = Allocator::start_with(&plane, "burst", &kubeconfig, &[])?;
    c.namespace("burst").await?;
    c.group("default", local(json!({"v4pool": {"pool": "10.0.0.0/20", "subnet": "10.0.0.0/20"}}))).await?;
    c.service("burst/warm", &[]).await?;
    c.has_some("burst/warm").await?;
    c.events_of("burst/warm", "AddressAssigned", 1).await?;
    c.events_of("purelb-system/default", "Parsed", 1).await?;
    for (count, from) in [(100, 0), (300, 100)] {
        let before = proxy.counters();
        let began = Instant::now();
        let created = create(&c, "burst", from..from + count).await?;
        let have = all_served(&c, "burst", from + count + 1).await?;
        let served = began.elapsed();
        assert_eq!(have.len(), from + count + 1);
        let what = format!("{count} Services in a burst, created / all have addresses");
        let seen = format!("{} ms / {} ms", created.as_millis(), served.as_millis());
        figure(&what, "as fast as created", &seen);
        c.events_of(&format!("burst/s{from:05}"), "AddressAssigned", 1).await?;
        let made = |verb: Verb, resource: &str| {
            let of = |all: &Counters| all.forwarded.get(&(verb, resource.to_owned())).copied().unwrap_or(0);
            of(&proxy.counters()) - of(&before)
        };
        eventually("every Service has its event", PATIENCE, || async {
            let events = made(Verb::Create, "events");
            if events >= count as u64 { Ok(()) } else { Err(events) }
        })
        .await?;
        let [object, own_status] =
            ["services", "services/status"].map(|resource| made(Verb::Patch, resource));
        let (events, status) = (made(Verb::Create, "events"), made(Verb::Patch, "servicegroups/status"));
        figure(
            &format!("writes for {count} Services: object, status, event; group status"),
            &format!("{count}, {count}, {count}; merged"),
            &format!("{object}, {own_status}, {events}; {status}"),
        );
        // Exactly one each: a conflict would have cost a second one, and a read.
        let count = u64::try_from(count)?;
        assert_eq!((object, own_status), (count, count));
        assert_eq!(made(Verb::Get, "services"), 0, "nothing was read back");
        assert_eq!(events, count, "one event each");
        assert!(status < count / 4, "group statuses are merged: {status}");
    }
    assert!(!allocator.log().contains("refuses"), "{}", allocator.log());
    allocator.stop().await
}
