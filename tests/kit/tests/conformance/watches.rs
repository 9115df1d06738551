//! Watches, raw and through the client's own watcher.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::{Stream, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::kit::{Ctx, MERGE, checks, encode, mk_lease, version};

checks![
    changes_come_in_order_with_rising_versions,
    a_watch_replays_what_was_missed,
    a_watch_from_nowhere_begins_with_what_is_there,
    a_watch_from_any_version_begins_with_what_is_there,
    a_version_too_old_is_gone,
    a_malformed_version_is_refused,
    a_bookmark_comes_before_the_end,
    without_bookmarks_a_watch_ends_in_silence,
    a_watch_ends_at_its_timeout,
    a_label_selector_makes_objects_come_and_go,
    a_watch_on_a_name_sees_that_one,
    a_watch_on_a_services_type,
    a_streamed_list_ends_with_a_bookmark,
    initial_events_need_a_version_match,
    the_watcher_lists_and_watches,
    the_watcher_streams_lists,
    a_watch_of_metadata,
    writes_that_change_nothing_are_not_told,
];

async fn changes_come_in_order_with_rising_versions(ctx: Ctx) -> Result<()> {
    let list = ctx.get(&ctx.samples()).await?.is(200)?;
    let mut watch = ctx.watch(&ctx.samples(), &format!("&resourceVersion={}", version(&list)?)).await?;
    ctx.create_sample("a").await?;
    let path = format!("{}/a", ctx.samples());
    ctx.patch(&path, MERGE, json!({"spec": {"size": 2}})).await?.is(200)?;
    ctx.patch(&format!("{path}/status"), MERGE, json!({"status": {"ok": true}})).await?.is(200)?;
    ctx.delete(&path, json!({})).await?.is(200)?;
    ctx.create_sample("a").await?;
    let mut last = version(&list)?;
    let mut uids = Vec::new();
    for expected in ["ADDED", "MODIFIED", "MODIFIED", "DELETED", "ADDED"] {
        let object = watch.expect(expected).await?;
        ensure!(object["kind"] == "Sample", "{object}");
        ensure!(version(&object)? > last, "{expected}: {} after {last}", version(&object)?);
        last = version(&object)?;
        uids.push(object["metadata"]["uid"].clone());
    }
    ensure!(uids[0] == uids[3] && uids[3] != uids[4], "{uids:?}");
    Ok(())
}

async fn a_watch_replays_what_was_missed(ctx: Ctx) -> Result<()> {
    let first = ctx.create_lease("a").await?;
    ctx.create_lease("b").await?;
    ctx.delete(&format!("{}/a", ctx.leases()), json!({})).await?.is(200)?;
    let mut watch = ctx.watch(&ctx.leases(), &format!("&resourceVersion={}", version(&first)?)).await?;
    ensure!(watch.expect("ADDED").await?["metadata"]["name"] == "b");
    ensure!(watch.expect("DELETED").await?["metadata"]["name"] == "a");
    Ok(())
}

async fn a_watch_from_nowhere_begins_with_what_is_there(ctx: Ctx) -> Result<()> {
    ctx.create_lease("b").await?;
    ctx.create_lease("a").await?;
    let mut watch = ctx.watch(&ctx.leases(), "").await?;
    let mut seen = Vec::new();
    for _ in 0..2 {
        seen.push(watch.expect("ADDED").await?["metadata"]["name"].as_str().unwrap_or_default().to_string());
    }
    seen.sort();
    ensure!(seen == ["a", "b"], "{seen:?}");
    ctx.create_lease("c").await?;
    ensure!(watch.expect("ADDED").await?["metadata"]["name"] == "c");
    Ok(())
}

async fn a_watch_from_any_version_begins_with_what_is_there(ctx: Ctx) -> Result<()> {
    ctx.create_lease("a").await?;
    let mut watch = ctx.watch(&ctx.leases(), "&resourceVersion=0").await?;
    ensure!(watch.expect("ADDED").await?["metadata"]["name"] == "a");
    ctx.create_lease("b").await?;
    ensure!(watch.expect("ADDED").await?["metadata"]["name"] == "b");
    Ok(())
}

async fn a_version_too_old_is_gone(ctx: Ctx) -> Result<()> {
    let mut watch = ctx.watch(&ctx.samples(), "&resourceVersion=1").await?;
    let said = watch.expect("ERROR").await?;
    ensure!(said["kind"] == "Status" && said["code"] == 410 && said["reason"] == "Expired", "{said}");
    let message = said["message"].as_str().unwrap_or_default();
    ensure!(message.starts_with("too old resource version: 1 ("), "{said}");
    ensure!(watch.next().await?.is_none(), "the watch goes on after its error");
    Ok(())
}

async fn a_malformed_version_is_refused(ctx: Ctx) -> Result<()> {
    let path = format!("{}?watch=true&resourceVersion=abc", ctx.leases());
    let answer = ctx.get(&path).await?;
    ensure!(answer.code == 500 && answer.body["kind"] == "Status", "{answer:?}");
    Ok(())
}

async fn a_bookmark_comes_before_the_end(ctx: Ctx) -> Result<()> {
    let created = ctx.create_lease("a").await?;
    let query = format!("&resourceVersion={}&allowWatchBookmarks=true&timeoutSeconds=4", version(&created)?);
    let mut watch = ctx.watch(&ctx.leases(), &query).await?;
    let mark = watch.expect("BOOKMARK").await?;
    ensure!(mark["kind"] == "Lease" && version(&mark)? >= version(&created)?, "{mark}");
    ensure!(mark["metadata"]["name"].is_null(), "{mark}");
    // More marks may follow; then a clean end.
    while let Some((kind, object)) = watch.next().await? {
        ensure!(kind == "BOOKMARK", "{kind} {object}");
    }
    Ok(())
}

async fn without_bookmarks_a_watch_ends_in_silence(ctx: Ctx) -> Result<()> {
    let created = ctx.create_lease("a").await?;
    let query = format!("&resourceVersion={}&timeoutSeconds=3", version(&created)?);
    let event = ctx.watch(&ctx.leases(), &query).await?.next().await?;
    ensure!(event.is_none(), "{event:?}");
    Ok(())
}

async fn a_watch_ends_at_its_timeout(ctx: Ctx) -> Result<()> {
    let began = Instant::now();
    let mut watch = ctx.watch(&ctx.leases(), "&timeoutSeconds=1").await?;
    ensure!(watch.next().await?.is_none());
    let took = began.elapsed();
    // Without it a watch lasts for minutes; a busy machine may be seconds late.
    ensure!((Duration::from_millis(900)..Duration::from_secs(30)).contains(&took), "{took:?}");
    Ok(())
}

async fn a_label_selector_makes_objects_come_and_go(ctx: Ctx) -> Result<()> {
    let created = ctx.create_lease("a").await?;
    let query = format!("&resourceVersion={}&labelSelector={}", version(&created)?, encode("on=yes"));
    let mut watch = ctx.watch(&ctx.leases(), &query).await?;
    let path = format!("{}/a", ctx.leases());
    ctx.create_lease("never").await?;
    ctx.patch(&path, MERGE, json!({"metadata": {"labels": {"on": "yes"}}})).await?.is(200)?;
    ctx.patch(&path, MERGE, json!({"spec": {"holderIdentity": "two"}})).await?.is(200)?;
    let gone = ctx.patch(&path, MERGE, json!({"metadata": {"labels": {"on": "no"}}})).await?.is(200)?;
    ctx.patch(&path, MERGE, json!({"metadata": {"labels": {"on": "yes"}}})).await?.is(200)?;
    watch.expect("ADDED").await?;
    watch.expect("MODIFIED").await?;
    let deleted = watch.expect("DELETED").await?;
    ensure!(version(&deleted)? == version(&gone)?, "{deleted}");
    ensure!(deleted["metadata"]["labels"]["on"] == "yes", "as it last matched: {deleted}");
    watch.expect("ADDED").await?;
    Ok(())
}

async fn a_watch_on_a_name_sees_that_one(ctx: Ctx) -> Result<()> {
    let list = ctx.get(&ctx.leases()).await?.is(200)?;
    let query = format!("&resourceVersion={}&fieldSelector={}", version(&list)?, encode("metadata.name=b"));
    let mut watch = ctx.watch(&ctx.leases(), &query).await?;
    for name in ["a", "b", "c"] {
        ctx.create_lease(name).await?;
    }
    ctx.delete(&format!("{}/b", ctx.leases()), json!({})).await?.is(200)?;
    ensure!(watch.expect("ADDED").await?["metadata"]["name"] == "b");
    ensure!(watch.expect("DELETED").await?["metadata"]["name"] == "b");
    Ok(())
}

async fn a_watch_on_a_services_type(ctx: Ctx) -> Result<()> {
    let created = ctx.create_service("web").await?;
    let query =
        format!("&resourceVersion={}&fieldSelector={}", version(&created)?, encode("spec.type=LoadBalancer"));
    let mut watch = ctx.watch(&ctx.services(), &query).await?;
    let path = format!("{}/web", ctx.services());
    let change = json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null, "allocateLoadBalancerNodePorts": null}});
    ctx.patch(&path, MERGE, change).await?.is(200)?;
    watch.expect("DELETED").await?;
    Ok(())
}

async fn a_streamed_list_ends_with_a_bookmark(ctx: Ctx) -> Result<()> {
    ctx.create_lease("a").await?;
    let last = ctx.create_lease("b").await?;
    let query = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = ctx.watch(&ctx.leases(), query).await?;
    watch.expect("ADDED").await?;
    watch.expect("ADDED").await?;
    let mark = watch.expect("BOOKMARK").await?;
    ensure!(mark["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true", "{mark}");
    ensure!(version(&mark)? >= version(&last)?, "{mark}");
    ctx.create_lease("c").await?;
    loop {
        let (kind, object) = watch.next().await?.context("ended")?;
        if kind != "BOOKMARK" {
            ensure!(kind == "ADDED" && object["metadata"]["name"] == "c", "{kind} {object}");
            return Ok(());
        }
    }
}

async fn initial_events_need_a_version_match(ctx: Ctx) -> Result<()> {
    let path = format!("{}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true", ctx.leases());
    ctx.get(&path).await?.refused(422, "Invalid")?;
    Ok(())
}

/// The next event of the client's watcher in words.
async fn told(events: &mut (impl Stream<Item = watcher::Result<Event<Lease>>> + Unpin)) -> Result<String> {
    let event = tokio::time::timeout(Duration::from_secs(10), events.next()).await.context("silent")?;
    Ok(match event.context("the watcher ended")?? {
        Event::Init => "init".to_string(),
        Event::InitApply(lease) => format!("had {}", lease.name_any()),
        Event::InitDone => "done".to_string(),
        Event::Apply(lease) => format!("now {}", lease.name_any()),
        Event::Delete(lease) => format!("gone {}", lease.name_any()),
    })
}

async fn follow(ctx: &Ctx, config: watcher::Config) -> Result<()> {
    for name in ["a", "b", "c"] {
        ctx.create_lease(name).await?;
    }
    let leases: Api<Lease> = Api::namespaced(ctx.client.clone(), &ctx.namespace);
    let mut events = Box::pin(watcher(leases, config));
    let mut seen = Vec::new();
    while seen.last().is_none_or(|last| last != "done") {
        seen.push(told(&mut events).await?);
        if seen.len() > 8 {
            bail!("no end to the initial list: {seen:?}");
        }
    }
    ensure!(seen == ["init", "had a", "had b", "had c", "done"], "{seen:?}");
    ctx.create_lease("d").await?;
    ctx.delete(&format!("{}/a", ctx.leases()), json!({})).await?.is(200)?;
    ensure!(told(&mut events).await? == "now d");
    ensure!(told(&mut events).await? == "gone a");
    Ok(())
}

async fn the_watcher_lists_and_watches(ctx: Ctx) -> Result<()> {
    follow(&ctx, watcher::Config::default().page_size(2)).await
}

async fn the_watcher_streams_lists(ctx: Ctx) -> Result<()> {
    follow(&ctx, watcher::Config::default().streaming_lists()).await
}

async fn a_watch_of_metadata(ctx: Ctx) -> Result<()> {
    let leases: Api<PartialObjectMeta<Lease>> = Api::namespaced(ctx.client.clone(), &ctx.namespace);
    let mut events = Box::pin(watcher(leases, watcher::Config::default()));
    ctx.post(&ctx.leases(), mk_lease("a")).await?.is(201)?;
    loop {
        let event = tokio::time::timeout(Duration::from_secs(10), events.next()).await.context("silent")?;
        match event.context("ended")?? {
            Event::Apply(lease) | Event::InitApply(lease) => {
                ensure!(lease.name_any() == "a");
                return Ok(());
            }
            _ => {}
        }
    }
}

async fn writes_that_change_nothing_are_not_told(ctx: Ctx) -> Result<()> {
    let created = ctx.create_sample("a").await?;
    let mut watch = ctx.watch(&ctx.samples(), &format!("&resourceVersion={}", version(&created)?)).await?;
    let path = format!("{}/a", ctx.samples());
    let same = ctx.patch(&path, MERGE, json!({"spec": {"size": 1}})).await?.is(200)?;
    ensure!(version(&same)? == version(&created)?, "{same}");
    let same = ctx.put(&path, created.clone()).await?.is(200)?;
    ensure!(version(&same)? == version(&created)?, "{same}");
    ctx.create_sample("b").await?;
    ensure!(watch.expect("ADDED").await?["metadata"]["name"] == "b");
    Ok(())
}
