//! What `deploy/k8s` installs, judged by the real API server.

use anyhow::{Context, Result};
use clap::CommandFactory;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::PostParams;
use kube::{Api, Client};
use purelb_allocator::settings::Settings;
use purelb_kit::controlplane::{ControlPlane, ServiceAccount, fixtures};
use purelb_kit::wait::eventually;
use serde_json::{Value, json};

use crate::common::{PATIENCE, SYSTEM};

/// The pod the Deployment would make, with changes to its container.
fn pod(deployment: &Deployment, name: &str, container: &Value) -> Result<Pod> {
    let template = serde_json::to_value(&deployment.spec.as_ref().context("a spec")?.template)?;
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
    pod["metadata"]["name"] = json!(name);
    let into = pod["spec"]["containers"][0].as_object_mut().context("a container")?;
    into.extend(container.as_object().cloned().unwrap_or_default());
    Ok(serde_json::from_value(pod)?)
}

#[tokio::test]
async fn the_base_is_accepted_and_as_tight_as_it_says() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let applied = plane.apply_manifests().await?;
    assert!(applied.iter().any(|o| o == "Deployment purelb-system/purelb-allocator"), "{applied:?}");
    let admin = plane.admin()?;
    let deployment = Api::<Deployment>::namespaced(admin.clone(), SYSTEM).get("purelb-allocator").await?;
    let spec = deployment.spec.as_ref().context("a spec")?;
    assert_eq!(spec.replicas, Some(2));
    // Pod security, as the namespace enforces it, and the quotas of admission.
    let pods: Api<Pod> = Api::namespaced(admin.clone(), SYSTEM);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let made = pods.create(&dry, &pod(&deployment, "as-shipped", &json!({}))?).await?;
    let container = &made.spec.as_ref().context("a spec")?.containers[0];
    let security = container.security_context.as_ref().context("a security context")?;
    assert_eq!(security.read_only_root_filesystem, Some(true));
    assert_eq!(security.allow_privilege_escalation, Some(false));
    let dropped = security.capabilities.as_ref().and_then(|c| c.drop.clone()).unwrap_or_default();
    assert_eq!(dropped, ["ALL"]);
    for (what, change) in [
        ("keeping capabilities", json!({"allowPrivilegeEscalation": false})),
        (
            "with a capability",
            json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}}),
        ),
        (
            "as root",
            json!({"allowPrivilegeEscalation": false, "runAsUser": 0, "capabilities": {"drop": ["ALL"]}}),
        ),
    ] {
        let wrong = pod(&deployment, "worse", &json!({"securityContext": change}))?;
        let refused = pods.create(&dry, &wrong).await;
        let enforced =
            matches!(&refused, Err(kube::Error::Api(s)) if s.code == 403 && s.message.contains("restricted"));
        assert!(enforced, "{what}: {refused:?}");
    }
    // Probes and scrapes reach the port it listens on.
    let port = container.ports.as_ref().and_then(|p| p.first()).context("a port")?;
    assert_eq!(port.container_port, i32::from(Settings::defaults().metrics_address.port()));
    for (probe, path) in [(&container.liveness_probe, "/healthz"), (&container.readiness_probe, "/readyz")] {
        let get = probe.as_ref().and_then(|p| p.http_get.as_ref()).context("a probe")?;
        assert_eq!(get.path.as_deref(), Some(path));
        assert_eq!(Some(&get.port), port.name.clone().map(IntOrString::String).as_ref());
    }
    let policy = Api::<NetworkPolicy>::namespaced(admin.clone(), SYSTEM).get("purelb-allocator").await?;
    let policy = policy.spec.context("a spec")?;
    assert_eq!(policy.policy_types.unwrap_or_default(), ["Ingress", "Egress"]);
    let open: Vec<_> = policy.ingress.into_iter().flatten().flat_map(|rule| rule.ports).flatten().collect();
    assert!(open.len() == 1 && open[0].port == Some(IntOrString::Int(port.container_port)), "{open:?}");
    // A drain of nodes leaves one of the two.
    let budget = Api::<PodDisruptionBudget>::namespaced(admin, SYSTEM).get("purelb-allocator").await?;
    let budget = budget.spec.context("a spec")?;
    assert_eq!(budget.min_available, Some(IntOrString::Int(1)));
    let labels = spec.template.metadata.as_ref().and_then(|m| m.labels.clone()).unwrap_or_default();
    for selector in [budget.selector, Some(spec.selector.clone()), policy.pod_selector] {
        let wanted = selector.and_then(|s| s.match_labels).unwrap_or_default();
        assert!(!wanted.is_empty() && wanted.iter().all(|(k, v)| labels.get(k) == Some(v)), "{wanted:?}");
    }
    Ok(())
}

/// What the manifests set is what the program reads.
#[tokio::test]
async fn the_deployments_variables_are_known() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    plane.apply_manifests().await?;
    let deployment = Api::<Deployment>::namespaced(plane.admin()?, SYSTEM).get("purelb-allocator").await?;
    let template = deployment.spec.context("a spec")?.template;
    let set = template.spec.context("a pod")?.containers[0].env.clone().unwrap_or_default();
    let command = Settings::command();
    let known: Vec<&str> = command.get_arguments().filter_map(|a| a.get_env()?.to_str()).collect();
    assert!(!set.is_empty());
    for variable in &set {
        assert!(known.contains(&variable.name.as_str()), "{} is read by nobody: {known:?}", variable.name);
    }
    Ok(())
}

/// Which FlowSchema and priority level a request was served by, and its code.
async fn served_by(client: &Client, method: &str, path: &str, body: &Value) -> Result<(u16, String, String)> {
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
    let request = http::Request::builder().method(method).uri(path).header("Content-Type", kind);
    let answer = client.send(request.body(bytes.into())?).await?;
    let header = |name: &str| {
        let value = answer.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let (schema, level) =
        (header("X-Kubernetes-PF-FlowSchema-UID"), header("X-Kubernetes-PF-PriorityLevel-UID"));
    Ok((answer.status().as_u16(), schema, level))
}

/// Renewals do not wait behind other people's requests.
#[tokio::test]
async fn leases_are_served_by_a_priority_level_of_their_own() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    plane.apply_manifests().await?;
    let admin = plane.admin()?;
    let schema = Api::<FlowSchema>::all(admin.clone()).get("purelb-leases").await?;
    let level = Api::<PriorityLevelConfiguration>::all(admin.clone()).get("purelb-leases").await?;
    let node =
        Api::<Node>::all(admin.clone()).create(&PostParams::default(), &fixtures::node("flows")).await?;
    let token = plane.token_for_node(&ServiceAccount::node_daemon(), &node).await?;
    let daemon = plane.client_with_token(&plane.url(), &token)?;
    let allocator = plane.client_for(&ServiceAccount::allocator()).await?;
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases");
    let own = format!("{leases}/purelb-node-flows");
    let ours = (schema.metadata.uid.unwrap_or_default(), level.metadata.uid.unwrap_or_default());
    assert!(!ours.0.is_empty() && !ours.1.is_empty());
    eventually("the FlowSchema is in force", PATIENCE, || async {
        let seen = served_by(&daemon, "GET", &own, &Value::Null).await.map_err(|e| e.to_string())?;
        if (seen.1.clone(), seen.2.clone()) == ours { Ok(()) } else { Err(format!("{seen:?}, not {ours:?}")) }
    })
    .await?;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "purelb-node-flows"}, "spec": {"holderIdentity": "flows", "leaseDurationSeconds": 10}});
    let renewal = json!({"spec": {"leaseDurationSeconds": 11}});
    let nothing = Value::Null;
    let leader = format!("{leases}/purelb-allocator");
    let cases: [(&Client, &str, &str, &Value, bool); 6] = [
        (&daemon, "POST", &leases, &lease, true),
        (&daemon, "PATCH", &own, &renewal, true),
        (&allocator, "GET", &leader, &nothing, true),
        (&daemon, "DELETE", &own, &nothing, true),
        // What is dear, and what is not a Lease, waits with everybody else.
        (&daemon, "GET", &leases, &nothing, false),
        (&daemon, "GET", "/api/v1/services", &nothing, false),
    ];
    for (client, method, path, body, first) in cases {
        let (code, schema, level) = served_by(client, method, path, body).await?;
        assert!(code < 300 || code == 404, "{method} {path}: {code}");
        assert_eq!((schema, level) == ours, first, "{method} {path}");
    }
    Ok(())
}
