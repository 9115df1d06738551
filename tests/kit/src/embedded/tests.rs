//! What only the embedded server has: counters, bounds, its own switches.

use futures::{AsyncBufReadExt, StreamExt, TryStreamExt};
use http::Request;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::*;
use crate::wait::eventually;

const SOON: Duration = Duration::from_secs(10);

fn leases(api: &EmbeddedApi, client: &str) -> Api<Lease> {
    Api::namespaced(api.client(client).unwrap(), "default")
}

fn mk_lease(name: &str, filler: usize) -> Lease {
    let annotations = json!({ "filler": "x".repeat(filler) });
    serde_json::from_value(json!({"metadata": {"name": name, "annotations": annotations}})).unwrap()
}

fn code<T>(result: kube::Result<T>) -> Option<u16> {
    match result {
        Err(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

#[tokio::test]
async fn requests_are_counted_by_client_verb_and_resource() {
    let api = EmbeddedApi::start().await.unwrap();
    let (one, two) = (leases(&api, "one"), leases(&api, "two"));
    one.create(&PostParams::default(), &mk_lease("a", 1)).await.unwrap();
    for _ in 0..3 {
        two.get("a").await.unwrap();
    }
    two.list(&ListParams::default()).await.unwrap();
    let counted = api
        .requests()
        .into_iter()
        .map(|(key, count)| (key.client, key.verb.to_string(), key.resource, count));
    let expected = [("one", "create", 1), ("two", "get", 3), ("two", "list", 1)]
        .map(|(client, verb, count)| (client.to_string(), verb.to_string(), "leases".to_string(), count));
    assert_eq!(counted.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn the_log_is_bounded_and_what_it_forgot_is_gone() {
    let api = EmbeddedApi::builder().log_length(5).start().await.unwrap();
    let leases = leases(&api, "test");
    leases.create(&PostParams::default(), &mk_lease("a", 1)).await.unwrap();
    let pages = leases.list(&ListParams::default()).await.unwrap();
    let then = pages.metadata.resource_version.unwrap();
    let at = |version: &str| ListParams::default().at(version).matching(kube::api::VersionMatch::Exact);
    for holder in 0..5 {
        let change = json!({"spec": {"holderIdentity": holder.to_string()}});
        leases.patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }
    let past = leases.list(&at(&then)).await.unwrap();
    assert_eq!(past.items[0].spec.as_ref().and_then(|spec| spec.holder_identity.clone()), None);
    leases.create(&PostParams::default(), &mk_lease("b", 1)).await.unwrap();
    assert_eq!(code(leases.list(&at(&then)).await), Some(410), "six changes back");
}

#[tokio::test]
async fn a_list_page_after_a_compaction_has_to_begin_again() {
    let api = EmbeddedApi::start().await.unwrap();
    let leases = leases(&api, "test");
    for name in ["a", "b", "c"] {
        leases.create(&PostParams::default(), &mk_lease(name, 1)).await.unwrap();
    }
    let first = leases.list(&ListParams::default().limit(1)).await.unwrap();
    let next = ListParams::default().limit(1).continue_token(&first.metadata.continue_.unwrap());
    leases.create(&PostParams::default(), &mk_lease("d", 1)).await.unwrap();
    leases.list(&next).await.unwrap();
    api.compact();
    assert_eq!(code(leases.list(&next).await), Some(410));
}

/// A watcher that does not read is cut off instead of holding everything for ever.
#[tokio::test]
async fn a_slow_watcher_is_cut_off() {
    let api = EmbeddedApi::builder().watch_queue(16).start().await.unwrap();
    let leases = leases(&api, "writer");
    leases.create(&PostParams::default(), &mk_lease("a", 64 * 1024)).await.unwrap();
    let client = api.client("slow").unwrap();
    let path = "/apis/coordination.k8s.io/v1/leases?watch=true";
    let slow = client.request_stream(Request::get(path).body(Vec::new()).unwrap()).await.unwrap();
    // 64 KiB each: the sockets take some dozens, the queue sixteen more.
    let mut writes = 0;
    while api.watchers_cut_off() == 0 && writes < 10_000 {
        let change = json!({"spec": {"leaseTransitions": writes}});
        write_patch(&api, &change);
        writes += 1;
        tokio::task::yield_now().await;
    }
    assert_eq!(api.watchers_cut_off(), 1, "after {writes} writes");
    // What was queued still arrives; then the stream ends.
    let lines = slow.lines().try_fold(0, |count, _| async move { Ok(count + 1) });
    let lines = tokio::time::timeout(Duration::from_secs(60), lines).await.unwrap().unwrap();
    assert!(lines >= 16, "{lines} events");
}

/// A write without the way over HTTP.
fn write_patch(api: &EmbeddedApi, change: &serde_json::Value) {
    let intent = write::Intent {
        kind: KINDS.iter().find(|kind| kind.plural == "leases").unwrap(),
        namespace: "default",
        name: "a",
        subresource: "",
        manager: "writer".to_string(),
        dry_run: false,
        force: false,
    };
    write::patch(&mut api.shared.store.lock(), &intent, write::Patch::Merge(change.clone())).unwrap();
}

#[tokio::test]
async fn objects_have_no_size_limit() {
    let api = EmbeddedApi::start().await.unwrap();
    let leases = leases(&api, "test");
    let size = 8 * 1024 * 1024;
    leases.create(&PostParams::default(), &mk_lease("big", size)).await.unwrap();
    let read = leases.get("big").await.unwrap();
    assert_eq!(read.metadata.annotations.unwrap()["filler"].len(), size);
}

#[tokio::test]
async fn bookmarks_come_as_often_as_told() {
    let every = Duration::from_millis(20);
    let api = EmbeddedApi::builder().bookmark_every(every).start().await.unwrap();
    let path = "/apis/coordination.k8s.io/v1/leases?watch=true&allowWatchBookmarks=true";
    let client = api.client("test").unwrap();
    let stream = client.request_stream(Request::get(path).body(Vec::new()).unwrap()).await.unwrap();
    let lines = stream.lines().take(3).try_collect::<Vec<_>>();
    let lines = tokio::time::timeout(SOON, lines).await.unwrap().unwrap();
    assert!(lines.iter().all(|line| line.contains("BOOKMARK")), "{lines:?}");
}

#[tokio::test]
async fn a_namespace_takes_its_content_with_it() {
    let api = EmbeddedApi::start().await.unwrap();
    let leases = leases(&api, "test");
    leases.create(&PostParams::default(), &mk_lease("a", 1)).await.unwrap();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(api.client("test").unwrap());
    namespaces.delete("default", &Default::default()).await.unwrap();
    assert!(leases.get_opt("a").await.unwrap().is_none());
    assert_eq!(code(leases.create(&PostParams::default(), &mk_lease("a", 1)).await), Some(404));
}

#[tokio::test]
async fn the_port_closes_with_the_value() {
    let api = EmbeddedApi::start().await.unwrap();
    let (leases, address) = (leases(&api, "test"), api.address());
    leases.list(&ListParams::default()).await.unwrap();
    drop(api);
    eventually("nobody listens", SOON, || async {
        match tokio::net::TcpStream::connect(address).await {
            Err(_) => Ok(()),
            Ok(_) => Err("still there"),
        }
    })
    .await
    .unwrap();
    assert!(leases.list(&ListParams::default()).await.is_err());
}
