//! What is told when nothing goes wrong.

use anyhow::Result;
use purelb_core::messages::Source;
use purelb_kit::controlplane::fixtures;
use purelb_kit::embedded::Verb;
use purelbd::kube::KubeTuning;
use serde_json::json;

use crate::bench::{Bench, Seen, allocated, change, create, mk_agent, mk_group, mk_lease, quick};

#[tokio::test]
async fn everything_is_listed_once_and_then_followed() -> Result<()> {
    let bench = Bench::furnished(quick(), async |admin| {
        allocated(admin, "web", &["192.0.2.5", "2001:db8::5"]).await?;
        create(admin, &mk_group("g", "192.0.2.0/28")).await?;
        create(admin, &mk_agent("a", "default")).await?;
        create(admin, &mk_lease("node-2", "other")).await
    })
    .await?;
    let seen = bench.view.now();
    assert_eq!(seen.services["default/web"].vips.len(), 2);
    assert!(seen.groups.contains_key("g") && seen.agents.contains_key("purelb-system/a"));
    assert!(seen.nodes.contains_key("node-1") && seen.leases.contains_key("node-2"));
    assert!(seen.lists.values().all(|n| *n == 1), "{:?}", seen.lists);
    assert!(seen.changes.is_empty(), "the lists said it all: {:?}", seen.changes);

    allocated(&bench.admin, "api", &["192.0.2.6"]).await?;
    create(&bench.admin, &json!(fixtures::node("node-2"))).await?;
    bench.services("default").delete("web", &Default::default()).await?;
    bench.leases().delete("purelb-node-node-2", &Default::default()).await?;
    let changed = |seen: &Seen| {
        let services: Vec<_> = seen.services.keys().map(String::as_str).collect();
        services == ["default/api"] && seen.nodes.len() == 2 && seen.leases.is_empty()
    };
    bench.view.holds("the changes are told", changed).await?;
    assert!(bench.view.now().lists.values().all(|n| *n == 1), "without listing again");
    Ok(())
}

#[tokio::test]
async fn what_is_not_ours_and_what_changes_nothing_is_not_told() -> Result<()> {
    let bench = Bench::start().await?;
    let mut foreign = fixtures::allocated(fixtures::service("default", "foreign"), "g", "local");
    foreign.spec.as_mut().unwrap().load_balancer_class = Some("example.com/other".into());
    fixtures::create_with_ingress(&bench.admin, &foreign, &["192.0.2.9".parse()?]).await?;
    create(&bench.admin, &json!(fixtures::service("default", "pending"))).await?;
    // A heartbeat: the Node changes, nothing we look at does.
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "annotations": {"a": "b"}}});
    change(&bench.admin, &node).await?;
    // Told after all of these, on the same watches.
    allocated(&bench.admin, "ours", &["192.0.2.5"]).await?;
    create(&bench.admin, &json!(fixtures::node("node-9"))).await?;
    let later = |s: &Seen| s.services.contains_key("default/ours") && s.nodes.contains_key("node-9");
    bench.view.holds("what came later is told", later).await?;
    let seen = bench.view.now();
    assert_eq!(seen.services.len(), 1, "{:?}", seen.services);
    assert_eq!(seen.changed(Source::Nodes), 1, "the heartbeat was told");

    // A Service that leaves us is gone.
    let leaves = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ours", "namespace": "default"},
        "spec": {"type": "ClusterIP", "loadBalancerClass": null, "externalTrafficPolicy": null}});
    change(&bench.admin, &leaves).await?;
    bench.view.holds("it left", |s| s.services.is_empty()).await
}

#[tokio::test]
async fn a_listing_of_many_pages_is_one_replacement() -> Result<()> {
    let tuning = KubeTuning { page: 3, ..quick() };
    let bench = Bench::furnished(tuning, async |admin| {
        for i in 0..10 {
            create(admin, &mk_lease(&format!("n{i}"), "other")).await?;
        }
        Ok(())
    })
    .await?;
    let seen = bench.view.now();
    assert_eq!((seen.leases.len(), seen.listed(Source::Leases)), (10, 1));
    assert_eq!(bench.requests(Verb::List, "leases"), 4);
    bench.handle.relist(Source::Leases);
    bench.view.holds("listed again", |s| s.listed(Source::Leases) == 2 && s.leases.len() == 10).await
}

#[tokio::test]
async fn endpoints_are_followed_for_those_that_need_them_and_told_before_them() -> Result<()> {
    let bench = Bench::furnished(quick(), async |admin| {
        create(admin, &json!(fixtures::endpoint_slice("default", "web", &[("node-1", true, true)]))).await?;
        create(admin, &json!(fixtures::endpoint_slice("default", "other", &[("node-1", true, true)])))
            .await?;
        allocated(admin, "web", &["192.0.2.5"]).await?;
        allocated(admin, "other", &["192.0.2.6"]).await.map(drop)
    })
    .await?;
    assert_eq!(bench.requests(Verb::List, "endpointslices"), 0, "nobody needs them");
    assert!(bench.view.now().endpoints.is_empty());

    let local = |name: &str, policy: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
            "spec": {"externalTrafficPolicy": policy}})
    };
    change(&bench.admin, &local("web", "Local")).await?;
    let needs = |s: &Seen| s.services["default/web"].only_local_endpoints;
    bench.view.holds("the policy is told", needs).await?;
    let seen = bench.view.now();
    let slices: Vec<_> = seen.endpoints.keys().map(String::as_str).collect();
    assert_eq!(slices, ["default/web-lab"], "its endpoints came first, and nobody else's");
    let last_two = &seen.order[seen.order.len() - 2..];
    assert_eq!(last_two, [Source::EndpointSlices, Source::Services]);

    // A second one widens the watch, and changes are followed.
    change(&bench.admin, &local("other", "Local")).await?;
    bench
        .view
        .holds("both", |s| s.services["default/other"].only_local_endpoints && s.endpoints.len() == 2)
        .await?;
    let gone = json!(fixtures::endpoint_slice("default", "web", &[("node-1", false, false)]));
    change(&bench.admin, &gone).await?;
    bench.view.holds("no endpoint", |s| s.endpoints["default/web-lab"].nodes.is_empty()).await?;

    change(&bench.admin, &local("web", "Cluster")).await?;
    change(&bench.admin, &local("other", "Cluster")).await?;
    bench.view.holds("none are needed", |s| s.endpoints.is_empty()).await?;
    let lists = bench.view.now().listed(Source::EndpointSlices);
    bench.handle.relist(Source::EndpointSlices);
    bench.view.holds("asked for, told", |s| s.listed(Source::EndpointSlices) > lists).await
}

#[tokio::test]
async fn a_server_without_the_field_selector_is_followed_all_the_same() -> Result<()> {
    use purelb_kit::embedded::EmbeddedApi;
    use purelb_kit::faults::{Fault, Proxy};
    use purelbd::kube::ApiAccess;

    let api = EmbeddedApi::start().await?;
    let proxy = Proxy::before(&api).start().await?;
    // The first listing is refused as a server does that does not know the field.
    let refused = proxy.inject(Fault::answer(400).on(Verb::List).of("services").times(1));
    let dir = tempfile::tempdir()?;
    let admin = api.client("admin")?;
    allocated(&admin, "web", &["192.0.2.5"]).await?;
    create(
        &admin,
        &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "c", "namespace": "default"},
        "spec": {"ports": [{"port": 80}]}}),
    )
    .await?;
    let (inputs, receiver) = tokio::sync::mpsc::channel(64);
    let view = crate::bench::View::collect(receiver);
    let access = ApiAccess::kubeconfig(proxy.kubeconfig("daemon", "daemon", dir.path())?);
    let _handle = purelbd::kube::start(crate::bench::mk_config(access, quick()), inputs).await?;
    view.holds("everything is listed", Seen::whole).await?;
    assert_eq!(refused.hits(), 1);
    assert_eq!(view.now().services.len(), 1);
    Ok(())
}
