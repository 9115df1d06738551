//! What the server knows of single built-in kinds: what it fills in, keeps and takes away.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::kit::{Ctx, MERGE, checks, mk_service, names};

checks![
    a_services_status,
    a_node_registers_with_its_status,
    a_secrets_strings_become_data,
    a_service_is_completed,
    a_service_keeps_its_addresses,
    a_service_that_is_no_load_balancer_any_more,
    a_headless_service,
    an_event_has_two_names,
];

async fn a_services_status(ctx: Ctx) -> Result<()> {
    let mut service = mk_service("a");
    service["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
    let made = ctx.post(&ctx.services(), service).await?.is(201)?;
    ensure!(made["status"] == json!({"loadBalancer": {}}), "{made}");
    let path = format!("{}/a", ctx.services());
    let change = json!({
        "spec": {"ports": [{"port": 8080}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}},
    });
    let now = ctx.patch(&format!("{path}/status"), MERGE, change).await?.is(200)?;
    ensure!(
        now["status"]["loadBalancer"]["ingress"][0] == json!({"ip": "192.0.2.1", "ipMode": "VIP"}),
        "{now}"
    );
    ensure!(now["spec"]["ports"][0]["port"] == 80, "{now}");
    let now = ctx.patch(&path, MERGE, json!({"status": {"loadBalancer": null}})).await?.is(200)?;
    ensure!(now["status"]["loadBalancer"]["ingress"][0]["ip"] == "192.0.2.1", "{now}");
    let now = ctx.patch(&format!("{path}/status"), MERGE, json!({"status": null})).await?.is(200)?;
    ensure!(now["status"] == json!({"loadBalancer": {}}), "{now}");
    Ok(())
}

async fn a_node_registers_with_its_status(ctx: Ctx) -> Result<()> {
    let name = format!("node-{}", ctx.namespace);
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]},
    });
    let made = ctx.post("/api/v1/nodes", node).await?.is(201)?;
    ensure!(made["status"]["addresses"][0]["address"] == "192.0.2.7", "{made}");
    let path = format!("/api/v1/nodes/{name}");
    let cordoned = ctx.patch(&path, MERGE, json!({"spec": {"unschedulable": true}})).await?.is(200)?;
    ensure!(cordoned["spec"]["unschedulable"] == true, "{cordoned}");
    let list = ctx.get("/api/v1/nodes?fieldSelector=spec.unschedulable%3Dtrue").await?.is(200)?;
    ensure!(names(&list).contains(&name), "{list}");
    ctx.delete(&path, json!({})).await?.is(200)?;
    Ok(())
}

async fn a_secrets_strings_become_data(ctx: Ctx) -> Result<()> {
    let secret = json!({"metadata": {"name": "a"}, "stringData": {"token": "hello"}, "data": {"x": "eA=="}});
    let made = ctx.post(&ctx.secrets(), secret).await?.is(201)?;
    ensure!(made["data"] == json!({"token": "aGVsbG8=", "x": "eA=="}) && made["type"] == "Opaque", "{made}");
    ensure!(made["stringData"].is_null(), "{made}");
    Ok(())
}

async fn a_service_is_completed(ctx: Ctx) -> Result<()> {
    let made = ctx.create_service("a").await?;
    let spec = &made["spec"];
    let port = json!({"port": 80, "protocol": "TCP", "targetPort": 80});
    ensure!(spec["ports"] == json!([port]), "{made}");
    ensure!(
        spec["externalTrafficPolicy"] == "Cluster" && spec["internalTrafficPolicy"] == "Cluster",
        "{made}"
    );
    ensure!(spec["ipFamilyPolicy"] == "SingleStack" && spec["ipFamilies"] == json!(["IPv4"]), "{made}");
    ensure!(spec["sessionAffinity"] == "None", "{made}");
    let address = spec["clusterIP"].as_str().unwrap_or_default();
    ensure!(
        address.parse::<std::net::Ipv4Addr>().is_ok() && spec["clusterIPs"] == json!([address]),
        "{made}"
    );
    let mut both = mk_service("b");
    both["spec"]["ipFamilyPolicy"] = "RequireDualStack".into();
    let both = ctx.post(&ctx.services(), both).await?.is(201)?;
    ensure!(both["spec"]["ipFamilies"] == json!(["IPv4", "IPv6"]), "{both}");
    ensure!(both["spec"]["clusterIPs"].as_array().map(Vec::len) == Some(2), "{both}");
    Ok(())
}

async fn a_service_keeps_its_addresses(ctx: Ctx) -> Result<()> {
    let made = ctx.create_service("a").await?;
    let now = ctx.put(&format!("{}/a", ctx.services()), mk_service("a")).await?.is(200)?;
    ensure!(now["spec"] == made["spec"], "{now} was {made}");
    Ok(())
}

async fn a_service_that_is_no_load_balancer_any_more(ctx: Ctx) -> Result<()> {
    ctx.create_service("a").await?;
    let path = format!("{}/a", ctx.services());
    let given = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    ctx.patch(&format!("{path}/status"), MERGE, given).await?.is(200)?;
    let now = ctx.patch(&path, MERGE, json!({"spec": {"type": "ClusterIP"}})).await?.is(200)?;
    for gone in ["loadBalancerClass", "externalTrafficPolicy", "allocateLoadBalancerNodePorts"] {
        ensure!(now["spec"][gone].is_null(), "{gone}: {now}");
    }
    ensure!(now["spec"]["clusterIP"].is_string(), "{now}");
    ensure!(now["status"] == json!({"loadBalancer": {}}), "{now}");
    Ok(())
}

async fn a_headless_service(ctx: Ctx) -> Result<()> {
    let service = json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}});
    let made = ctx.post(&ctx.services(), service).await?.is(201)?;
    ensure!(made["spec"]["clusterIPs"] == json!(["None"]) && made["spec"]["type"] == "ClusterIP", "{made}");
    Ok(())
}

async fn an_event_has_two_names(ctx: Ctx) -> Result<()> {
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a"},
        "eventTime": "2026-01-02T03:04:05.000006Z", "action": "Assigned", "reason": "AddressAssigned",
        "note": "192.0.2.1", "type": "Normal", "reportingController": "purelb.io/allocator",
        "reportingInstance": "x", "regarding": {"kind": "Service", "namespace": ctx.namespace, "name": "web"},
    });
    let new = format!("/apis/events.k8s.io/v1/namespaces/{}/events", ctx.namespace);
    let old = format!("/api/v1/namespaces/{}/events", ctx.namespace);
    let made = ctx.post(&new, event).await?.is(201)?;
    ensure!(made["note"] == "192.0.2.1" && made["apiVersion"] == "events.k8s.io/v1", "{made}");
    let core = ctx.get(&format!("{old}/a")).await?.is(200)?;
    ensure!(core["message"] == "192.0.2.1" && core["involvedObject"]["name"] == "web", "{core}");
    ensure!(core["apiVersion"] == "v1" && core["reportingComponent"] == "purelb.io/allocator", "{core}");
    let list = ctx.get(&format!("{old}?fieldSelector=involvedObject.name%3Dweb")).await?.is(200)?;
    ensure!(names(&list) == ["a"], "{list}");
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-02T03:05:05.000006Z"}});
    let now = ctx.patch(&format!("{new}/a"), MERGE, series).await?.is(200)?;
    ensure!(now["series"]["count"] == 2, "{now}");
    Ok(())
}
