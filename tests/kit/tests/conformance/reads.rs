//! Get and list.

use anyhow::{Result, ensure};
use http::Method;
use serde_json::{Value, json};

use crate::kit::{Ctx, checks, encode, mk_lease, mk_sample, mk_service, names, version};

checks![
    a_missing_object_is_not_found,
    an_unknown_kind_is_not_found,
    an_unknown_subresource_is_not_found,
    a_missing_namespace_lists_empty,
    the_server_is_ready_and_has_a_version,
    discovery_names_the_kinds,
    a_list_is_ordered_by_name_and_has_a_version,
    a_list_of_all_namespaces_has_ours,
    pages_show_one_moment,
    a_made_up_continue_token_is_refused,
    labels_select,
    a_malformed_label_selector_is_refused,
    a_name_selects,
    a_services_type_selects,
    an_unknown_field_is_refused_as_selector,
    any_version_lists,
    a_version_of_the_future_times_out,
    a_version_match_needs_a_version,
    an_exact_version_lists_the_past,
    metadata_alone_can_be_listed,
];

async fn a_missing_object_is_not_found(ctx: Ctx) -> Result<()> {
    let said = ctx.get(&format!("{}/none", ctx.leases())).await?.refused(404, "NotFound")?;
    ensure!(said["message"] == "leases.coordination.k8s.io \"none\" not found", "{said}");
    let details = json!({"name": "none", "group": "coordination.k8s.io", "kind": "leases"});
    ensure!(said["details"] == details, "{said}");
    let said = ctx.get(&format!("{}/none", ctx.services())).await?.refused(404, "NotFound")?;
    ensure!(said["message"] == "services \"none\" not found", "{said}");
    Ok(())
}

async fn an_unknown_kind_is_not_found(ctx: Ctx) -> Result<()> {
    for path in ["/apis/none.example.com/v1/things", "/apis/coordination.k8s.io/v1/things"] {
        ctx.get(path).await?.is(404)?;
    }
    Ok(())
}

async fn an_unknown_subresource_is_not_found(ctx: Ctx) -> Result<()> {
    ctx.create_lease("a").await?;
    ctx.get(&format!("{}/a/status", ctx.leases())).await?.is(404)?;
    ctx.get(&format!("{}/a/other", ctx.leases())).await?.is(404)?;
    Ok(())
}

async fn a_missing_namespace_lists_empty(ctx: Ctx) -> Result<()> {
    let list = ctx.get("/apis/coordination.k8s.io/v1/namespaces/there-is-none/leases").await?.is(200)?;
    ensure!(names(&list).is_empty(), "{list}");
    Ok(())
}

async fn the_server_is_ready_and_has_a_version(ctx: Ctx) -> Result<()> {
    let ready = ctx.get("/readyz").await?.is(200)?;
    ensure!(ready == "ok", "{ready}");
    let version = ctx.client.apiserver_version().await?;
    ensure!(version.major == "1", "{version:?}");
    Ok(())
}

async fn discovery_names_the_kinds(ctx: Ctx) -> Result<()> {
    let groups = ctx.client.list_api_groups().await?;
    ensure!(groups.groups.iter().any(|group| group.name == "coordination.k8s.io"));
    let ours = ctx.client.list_api_group_resources(&format!("{}/v1", crate::kit::GROUP)).await?;
    let named = ours.resources.iter().map(|one| one.name.as_str()).collect::<Vec<_>>();
    ensure!(named.contains(&"samples") && named.contains(&"samples/status"), "{named:?}");
    Ok(())
}

async fn a_list_is_ordered_by_name_and_has_a_version(ctx: Ctx) -> Result<()> {
    for name in ["b", "c", "a"] {
        ctx.create_lease(name).await?;
    }
    let list = ctx.get(&ctx.leases()).await?.is(200)?;
    ensure!(names(&list) == ["a", "b", "c"], "{list}");
    ensure!(list["kind"] == "LeaseList" && list["apiVersion"] == "coordination.k8s.io/v1", "{list}");
    let newest = list["items"].as_array().into_iter().flatten().map(version).collect::<Result<Vec<_>>>()?;
    ensure!(newest.iter().all(|one| *one <= version(&list).unwrap_or(0)), "{list}");
    Ok(())
}

async fn a_list_of_all_namespaces_has_ours(ctx: Ctx) -> Result<()> {
    ctx.create_lease("mine").await?;
    let list = ctx.get("/apis/coordination.k8s.io/v1/leases").await?.is(200)?;
    let mut found = list["items"].as_array().into_iter().flatten().map(|item| &item["metadata"]["namespace"]);
    ensure!(found.any(|namespace| *namespace == ctx.namespace.as_str()), "{list}");
    Ok(())
}

async fn pages_show_one_moment(ctx: Ctx) -> Result<()> {
    for name in ["a", "b", "c", "d", "e"] {
        ctx.create_sample(name).await?;
    }
    let first = ctx.get(&format!("{}?limit=2", ctx.samples())).await?.is(200)?;
    ensure!(names(&first) == ["a", "b"] && first["metadata"]["remainingItemCount"] == 3, "{first}");
    // Neither what comes nor what goes meanwhile changes the pages that follow.
    ctx.create_sample("bb").await?;
    ctx.delete(&format!("{}/d", ctx.samples()), json!({})).await?.is(200)?;
    let mut seen = Vec::new();
    let mut page = first.clone();
    while let Some(token) = page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
        page = ctx.get(&format!("{}?limit=2&continue={}", ctx.samples(), encode(token))).await?.is(200)?;
        ensure!(version(&page)? == version(&first)?, "{page}");
        seen.extend(names(&page));
    }
    ensure!(seen == ["c", "d", "e"], "{seen:?}");
    Ok(())
}

async fn a_made_up_continue_token_is_refused(ctx: Ctx) -> Result<()> {
    ctx.get(&format!("{}?limit=2&continue=nonsense", ctx.samples())).await?.refused(400, "BadRequest")?;
    Ok(())
}

async fn mk_labelled(ctx: &Ctx) -> Result<()> {
    for (name, labels) in [
        ("a", json!({"app": "web", "tier": "front"})),
        ("b", json!({"app": "web", "tier": "back"})),
        ("c", json!({"app": "db"})),
        ("d", json!({})),
    ] {
        let mut lease = mk_lease(name);
        lease["metadata"]["labels"] = labels;
        ctx.post(&ctx.leases(), lease).await?.is(201)?;
    }
    Ok(())
}

async fn labels_select(ctx: Ctx) -> Result<()> {
    mk_labelled(&ctx).await?;
    for (selector, expected) in [
        ("app=web", &["a", "b"][..]),
        ("app==web,tier!=front", &["b"]),
        ("app in (web, db)", &["a", "b", "c"]),
        ("tier notin (front)", &["b", "c", "d"]),
        ("tier", &["a", "b"]),
        ("!app", &["d"]),
        ("app!=web", &["c", "d"]),
        ("app=none", &[]),
    ] {
        let path = format!("{}?labelSelector={}", ctx.leases(), encode(selector));
        let list = ctx.get(&path).await?.is(200)?;
        ensure!(names(&list) == expected, "{selector}: {:?}", names(&list));
    }
    Ok(())
}

async fn a_malformed_label_selector_is_refused(ctx: Ctx) -> Result<()> {
    let path = format!("{}?labelSelector={}", ctx.leases(), encode("app in web"));
    ctx.get(&path).await?.refused(400, "BadRequest")?;
    Ok(())
}

async fn a_name_selects(ctx: Ctx) -> Result<()> {
    mk_labelled(&ctx).await?;
    for (selector, expected) in [
        ("metadata.name=b", &["b"][..]),
        ("metadata.name!=b", &["a", "c", "d"]),
        ("metadata.namespace=elsewhere", &[]),
    ] {
        let path = format!("{}?fieldSelector={}", ctx.leases(), encode(selector));
        let list = ctx.get(&path).await?.is(200)?;
        ensure!(names(&list) == expected, "{selector}: {:?}", names(&list));
    }
    ctx.create_sample("x").await?;
    let path = format!("{}?fieldSelector={}", ctx.samples(), encode("metadata.name=x"));
    ensure!(names(&ctx.get(&path).await?.is(200)?) == ["x"]);
    Ok(())
}

async fn a_services_type_selects(ctx: Ctx) -> Result<()> {
    ctx.create_service("lb").await?;
    let mut plain = mk_service("plain");
    plain["spec"] = json!({"ports": [{"port": 80}]});
    ctx.post(&ctx.services(), plain).await?.is(201)?;
    let path = format!("{}?fieldSelector={}", ctx.services(), encode("spec.type=LoadBalancer"));
    ensure!(names(&ctx.get(&path).await?.is(200)?) == ["lb"]);
    let path = format!("{}?fieldSelector={}", ctx.services(), encode("spec.type=ClusterIP"));
    ensure!(names(&ctx.get(&path).await?.is(200)?) == ["plain"]);
    Ok(())
}

async fn an_unknown_field_is_refused_as_selector(ctx: Ctx) -> Result<()> {
    for path in [ctx.leases(), ctx.samples()] {
        let path = format!("{path}?fieldSelector={}", encode("spec.nothing=x"));
        ctx.get(&path).await?.refused(400, "BadRequest")?;
    }
    Ok(())
}

async fn any_version_lists(ctx: Ctx) -> Result<()> {
    let created = ctx.create_lease("a").await?;
    for query in [
        "resourceVersion=0".to_string(),
        "resourceVersion=0&resourceVersionMatch=NotOlderThan".to_string(),
        format!("resourceVersion={}&resourceVersionMatch=NotOlderThan", version(&created)?),
        format!("resourceVersion={}", version(&created)?),
    ] {
        let list = ctx.get(&format!("{}?{query}", ctx.leases())).await?.is(200)?;
        // At version 0 a server may answer from a cache that is a moment behind.
        let stale = query.starts_with("resourceVersion=0");
        ensure!(names(&list) == ["a"] || stale, "{query}: {list}");
    }
    Ok(())
}

async fn a_version_of_the_future_times_out(ctx: Ctx) -> Result<()> {
    let created = ctx.create_lease("a").await?;
    let future = version(&created)? + 1_000_000;
    let path = format!("{}?resourceVersion={future}&resourceVersionMatch=NotOlderThan", ctx.leases());
    let said = ctx.get(&path).await?.refused(504, "Timeout")?;
    ensure!(said["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge", "{said}");
    Ok(())
}

async fn a_version_match_needs_a_version(ctx: Ctx) -> Result<()> {
    for query in [
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=Exact&resourceVersion=0",
        "resourceVersionMatch=Other&resourceVersion=5",
    ] {
        ctx.get(&format!("{}?{query}", ctx.leases())).await?.refused(422, "Invalid")?;
    }
    Ok(())
}

async fn an_exact_version_lists_the_past(ctx: Ctx) -> Result<()> {
    ctx.create_sample("a").await?;
    let then = ctx.create_sample("b").await?;
    ctx.create_sample("c").await?;
    ctx.delete(&format!("{}/a", ctx.samples()), json!({})).await?.is(200)?;
    let then = version(&then)?;
    let path = format!("{}?resourceVersion={then}&resourceVersionMatch=Exact", ctx.samples());
    let list = ctx.get(&path).await?.is(200)?;
    ensure!(names(&list) == ["a", "b"] && version(&list)? == then, "{list}");
    Ok(())
}

async fn metadata_alone_can_be_listed(ctx: Ctx) -> Result<()> {
    ctx.post(&ctx.samples(), mk_sample("a")).await?.is(201)?;
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = ctx.send_accepting(Method::GET, &ctx.samples(), "", accept, Vec::new()).await?.is(200)?;
    ensure!(list["kind"] == "PartialObjectMetadataList" && names(&list) == ["a"], "{list}");
    ensure!(
        list["items"][0]["spec"] == Value::Null && list["items"][0]["kind"] == "PartialObjectMetadata",
        "{list}"
    );
    Ok(())
}
