//! The shipped rights on the real API server: with them everything the programs do
//! works, and what they have no business doing is refused.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use purelb_api::lease;
use purelb_core::messages::LeaseContent;
use purelb_core::{InstanceId, NodeName};
use purelb_kit::controlplane::{ControlPlane, ServiceAccount, ask, fixtures};
use purelb_kit::wait::eventually;
use serde_json::{Value, json};

const SYSTEM: &str = "purelb-system";

/// A call: method, path, body.
type Call = (&'static str, &'static str, Option<Value>);

async fn all_allowed(client: &Client, calls: Vec<Call>) -> Result<()> {
    let mut wrong = Vec::new();
    for (method, path, body) in calls {
        let (code, text) = ask(client, method, path, body.as_ref()).await?;
        if code != 200 {
            wrong.push(format!("{method} {path}: {code} {text}"));
        }
    }
    assert!(wrong.is_empty(), "refused:\n{}", wrong.join("\n"));
    Ok(())
}

async fn all_refused(client: &Client, calls: Vec<Call>) -> Result<()> {
    let mut wrong = Vec::new();
    for (method, path, body) in calls {
        let (code, text) = ask(client, method, path, body.as_ref()).await?;
        if code != 403 {
            wrong.push(format!("{method} {path}: {code} {}", text.chars().take(200).collect::<String>()));
        }
    }
    assert!(wrong.is_empty(), "not refused:\n{}", wrong.join("\n"));
    Ok(())
}

/// One plane for all tests of this file, with something in it to act on.
async fn plane() -> Result<&'static ControlPlane> {
    static READY: tokio::sync::OnceCell<()> = tokio::sync::OnceCell::const_new();
    let plane = ControlPlane::shared().await?;
    READY.get_or_try_init(|| furnish(plane)).await?;
    Ok(plane)
}

async fn furnish(plane: &ControlPlane) -> Result<()> {
    plane.apply_manifests().await?;
    let admin = plane.admin()?;
    fixtures::ensure_namespace(&admin, "shop").await?;
    for name in ["n1", "n2"] {
        Api::<Node>::all(admin.clone()).create(&PostParams::default(), &fixtures::node(name)).await?;
    }
    let ips = ["192.0.2.5".parse()?];
    fixtures::create_with_ingress(&admin, &fixtures::service("shop", "web"), &ips).await?;
    let objects = [
        json!({"apiVersion": "purelb.io/v2", "kind": "ServiceGroup", "metadata": {"name": "g", "namespace": SYSTEM},
            "spec": {"local": {"v4pool": {"pool": "192.0.2.0/28", "subnet": "192.0.2.0/24"}}}}),
        json!({"apiVersion": "purelb.io/v2", "kind": "LBNodeAgent", "metadata": {"name": "a", "namespace": SYSTEM}, "spec": {}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "purelb-netbox", "namespace": SYSTEM}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other", "namespace": SYSTEM}}),
    ];
    purelb_kit::controlplane::manifests::apply(&admin, &objects).await?;
    // A policy is enforced a moment after it was accepted.
    let daemon = plane.daemon_of("n1").await?;
    let spec = json!({"spec": {"externalTrafficPolicy": "Local"}});
    let path = "/api/v1/namespaces/shop/services/web?dryRun=All";
    eventually("the policy on Services is enforced", Duration::from_secs(30), || async {
        match ask(&daemon, "PATCH", path, Some(&spec)).await {
            Ok((422, _)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    let unbound = plane.client_for(&ServiceAccount::node_daemon()).await?;
    let slot = json!({"metadata": {"annotations": {"purelb.io/announcing-IPv4": "n1,eth0,192.0.2.5"}}});
    eventually("the policy on tokens is enforced", Duration::from_secs(30), || async {
        match ask(&unbound, "PATCH", path, Some(&slot)).await {
            Ok((422, text)) if text.contains("bound to its Node") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    let mark = json!({"metadata": {"annotations": {"purelb.io/pool-type": "remote"}}});
    eventually("the policy on marks is enforced", Duration::from_secs(30), || async {
        match ask(&admin, "PATCH", path, Some(&mark)).await {
            Ok((422, text)) if text.contains("written by purelb alone") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

fn event(namespace: &str, kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": format!("{name}.{}", uuid::Uuid::new_v4()), "namespace": namespace},
        "regarding": {"kind": kind, "name": name, "namespace": namespace},
        "eventTime": "2026-01-02T03:04:05.000000Z", "type": "Normal", "reason": "AnnouncingLocal", "action": "Announce",
        "reportingController": "purelb.io/purelbd", "reportingInstance": "n1", "note": "announced",
    })
}

fn lease_content(instance: &str) -> Result<LeaseContent> {
    Ok(LeaseContent {
        instance: InstanceId::new(instance)?,
        duration: Duration::from_secs(10),
        subnets: BTreeSet::from(["192.0.2.0/24".parse()?]),
        draining: None,
        rank: purelb_core::facts::Rank::First,
        announced: Default::default(),
        declined: BTreeSet::new(),
        macs: BTreeSet::new(),
        node_uid: "00000000-0000-0000-0000-000000000000".into(),
    })
}

#[tokio::test]
async fn a_daemon_can_do_its_work() -> Result<()> {
    let plane = plane().await?;
    let daemon = plane.daemon_of("n1").await?;
    let uid = Api::<Node>::all(plane.admin()?).get("n1").await?.uid();
    let next = json!({"spec": {"expirationSeconds": 3600,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid}}});
    let condition = json!({"status": {"conditions": [{"type": "Accepted", "status": "False", "reason": "ConfigError",
        "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}});
    all_allowed(
        &daemon,
        vec![
            ("GET", "/api/v1/nodes", None),
            ("GET", "/api/v1/nodes/n1", None),
            ("GET", "/api/v1/nodes?watch=1&timeoutSeconds=1", None),
            ("GET", "/api/v1/services", None),
            ("GET", "/api/v1/services?watch=1&timeoutSeconds=1", None),
            (
                "PATCH",
                "/api/v1/namespaces/shop/services/web",
                Some(
                    json!({"metadata": {"annotations": {"purelb.io/announcing-IPv4": "n1,eth0,192.0.2.5"}}}),
                ),
            ),
            ("GET", "/apis/discovery.k8s.io/v1/endpointslices", None),
            ("GET", "/apis/discovery.k8s.io/v1/endpointslices?watch=1&timeoutSeconds=1", None),
            ("GET", "/apis/purelb.io/v2/namespaces/purelb-system/servicegroups", None),
            (
                "GET",
                "/apis/purelb.io/v2/namespaces/purelb-system/servicegroups?watch=1&timeoutSeconds=1",
                None,
            ),
            ("GET", "/apis/purelb.io/v2/namespaces/purelb-system/lbnodeagents", None),
            (
                "GET",
                "/apis/purelb.io/v2/namespaces/purelb-system/lbnodeagents?watch=1&timeoutSeconds=1",
                None,
            ),
            ("PATCH", "/apis/purelb.io/v2/namespaces/purelb-system/lbnodeagents/a/status", Some(condition)),
            ("POST", "/api/v1/namespaces/purelb-system/serviceaccounts/purelbd/token", Some(next)),
            ("GET", "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases", None),
            (
                "GET",
                "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases?watch=1&timeoutSeconds=1",
                None,
            ),
            ("POST", "/apis/events.k8s.io/v1/namespaces/shop/events", Some(event("shop", "Service", "web"))),
            (
                "POST",
                "/apis/events.k8s.io/v1/namespaces/purelb-system/events",
                Some(event(SYSTEM, "LBNodeAgent", "a")),
            ),
        ],
    )
    .await
}

/// The life of a Lease, with our own writer: create, renew, conflict, delete.
#[tokio::test]
async fn a_daemon_keeps_its_lease() -> Result<()> {
    let plane = plane().await?;
    let made = fixtures::node("keeps-its-lease");
    Api::<Node>::all(plane.admin()?).create(&PostParams::default(), &made).await?;
    let leases: Api<Lease> = Api::namespaced(plane.daemon_of("keeps-its-lease").await?, SYSTEM);
    let node = NodeName::new("keeps-its-lease")?;
    let now = k8s_openapi::jiff::Timestamp::now;
    let made = lease::create(SYSTEM, &node, &lease_content("first")?, Some("192.0.2.1:7473"), now());
    let made = leases.create(&PostParams::default(), &serde_json::from_value(made)?).await?;
    let facts = lease::facts(&made)?;
    assert_eq!(facts.instance, Some(InstanceId::new("first")?));

    let name = made.name_any();
    let version = made.resource_version().context("a version")?;
    let mut content = lease_content("first")?;
    content.draining = Some("2026-01-02T03:04:05Z".into());
    let renew = lease::patch(&node, &content, None, now(), &version);
    let renewed = leases.patch(&name, &PatchParams::default(), &Patch::Merge(&renew)).await?;
    let read = lease::facts(&renewed)?;
    assert_ne!(read.renewal, facts.renewal);
    assert!(read.draining.is_some() && read.control_endpoint.is_none(), "{read:?}");

    // Another instance that still believes in the old version gets a conflict.
    let steal = lease::patch(&node, &lease_content("second")?, None, now(), &version);
    let refused = leases.patch(&name, &PatchParams::default(), &Patch::Merge(&steal)).await;
    assert!(matches!(&refused, Err(kube::Error::Api(s)) if s.code == 409), "{refused:?}");

    let only_if = |version: Option<String>| DeleteParams {
        preconditions: Some(Preconditions { resource_version: version, uid: None }),
        ..DeleteParams::default()
    };
    let refused = leases.delete(&name, &only_if(Some(version))).await;
    assert!(matches!(&refused, Err(kube::Error::Api(s)) if s.code == 409), "{refused:?}");
    leases.delete(&name, &only_if(renewed.resource_version())).await?;
    assert!(leases.get_opt(&name).await?.is_none());
    Ok(())
}

#[tokio::test]
async fn a_daemon_can_do_nothing_else() -> Result<()> {
    let plane = plane().await?;
    let daemon = plane.daemon_of("n1").await?;
    let service = serde_json::to_value(fixtures::service("shop", "more"))?;
    all_refused(
        &daemon,
        vec![
            ("GET", "/api/v1/secrets", None),
            ("GET", "/api/v1/namespaces/purelb-system/secrets/purelb-netbox", None),
            ("GET", "/api/v1/configmaps", None),
            ("GET", "/api/v1/pods", None),
            ("GET", "/api/v1/namespaces", None),
            ("POST", "/api/v1/namespaces/shop/services", Some(service)),
            ("DELETE", "/api/v1/namespaces/shop/services/web", None),
            (
                "PATCH",
                "/api/v1/namespaces/shop/services/web/status",
                Some(json!({"status": {"loadBalancer": {"ingress": []}}})),
            ),
            ("PATCH", "/api/v1/nodes/n1", Some(json!({"metadata": {"labels": {"x": "y"}}}))),
            ("PATCH", "/api/v1/nodes/n1/status", Some(json!({"status": {}}))),
            ("DELETE", "/api/v1/nodes/n1", None),
            ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", None),
            ("GET", "/apis/coordination.k8s.io/v1/leases", None),
            ("DELETE", "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases", None),
            ("GET", "/apis/purelb.io/v2/servicegroups", None),
            (
                "PATCH",
                "/apis/purelb.io/v2/namespaces/purelb-system/servicegroups/g",
                Some(json!({"spec": {"namespaces": ["x"]}})),
            ),
            (
                "PATCH",
                "/apis/purelb.io/v2/namespaces/purelb-system/lbnodeagents/a",
                Some(json!({"spec": {"local": {}}})),
            ),
            (
                "PATCH",
                "/apis/purelb.io/v2/namespaces/purelb-system/servicegroups/g/status",
                Some(json!({"status": {"ipam": "Cluster"}})),
            ),
            ("DELETE", "/apis/purelb.io/v2/namespaces/purelb-system/lbnodeagents/a", None),
            (
                "POST",
                "/api/v1/namespaces/purelb-system/serviceaccounts/purelb-allocator/token",
                Some(json!({"spec": {}})),
            ),
            ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles", None),
            ("GET", "/apis/apps/v1/deployments", None),
            ("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", None),
            ("GET", "/apis/events.k8s.io/v1/events", None),
        ],
    )
    .await
}

/// What an account asked of one object, and what it was told: `Err` with the words.
type Case<'a> = (&'a Client, &'static str, Value, Result<(), &'static str>);

async fn all_as_expected(cases: Vec<Case<'_>>) -> Result<()> {
    let mut wrong = Vec::new();
    for (client, path, patch, expected) in cases {
        let (code, text) = ask(client, "PATCH", path, Some(&patch)).await?;
        let as_expected = match expected {
            Ok(()) => code == 200,
            Err(words) => code == 422 && text.contains(words),
        };
        if !as_expected {
            let text: String = text.chars().take(300).collect();
            wrong.push(format!("PATCH {path} {patch}: expected {expected:?}, got {code} {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[tokio::test]
async fn what_is_not_ours_on_a_service_stays() -> Result<()> {
    let plane = plane().await?;
    let admin = plane.admin()?;
    let mine = fixtures::service("shop", "guarded");
    Api::<Service>::namespaced(admin, "shop").create(&PostParams::default(), &mine).await?;
    let daemon = plane.daemon_of("n1").await?;
    let allocator = plane.client_for(&ServiceAccount::allocator()).await?;
    let annotate = |key: &str| json!({"metadata": {"annotations": {key: "x"}}});
    // An owner that does not exist has the object deleted; a finalizer keeps it for ever.
    let owner = || {
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "nothing",
            "uid": "00000000-0000-0000-0000-000000000000"}]}})
    };
    let finalizer = || json!({"metadata": {"finalizers": ["example.com/for-ever"]}});
    let (service, status) =
        ("/api/v1/namespaces/shop/services/guarded", "/api/v1/namespaces/shop/services/guarded/status");
    let given = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.6", "ipMode": "VIP"}]}}});
    // What one node says of another is not taken: a drain may wait for it.
    let slots = |text: &str| json!({"metadata": {"annotations": {"purelb.io/announcing-IPv4": text}}});
    let other = plane.daemon_of("n2").await?;
    let forged = Err("only its own node");
    all_as_expected(vec![
        (&daemon, service, slots("n1,eth0,192.0.2.6"), Ok(())),
        (&other, service, slots("n1,eth0,192.0.2.6 n2,eth0,192.0.2.7"), Ok(())),
        (&daemon, service, slots("n1,eth0,192.0.2.6 n2,eth0,192.0.2.7 n2,eth0,192.0.2.8"), forged),
        (&daemon, service, slots("n1,eth0,192.0.2.6 n2,eth1,192.0.2.7"), forged),
        (&daemon, service, slots("n1,eth0,192.0.2.6 n10,eth0,192.0.2.7"), forged),
        (&daemon, service, slots("n1,eth0,192.0.2.6\tn2,eth0,192.0.2.9"), forged),
        (&daemon, service, slots("n1,eth0,192.0.2.6\nn2,eth0,192.0.2.7"), Ok(())),
        (&daemon, service, slots("n1,eth0,192.0.2.6 n2,eth0,192.0.2.7"), Ok(())),
        (&daemon, service, slots("n1,eth0,192.0.2.6 n1,eth0,192.0.2.7"), Ok(())),
        (&daemon, service, slots("n1,eth0,192.0.2.6"), Ok(())),
        (&daemon, service, slots(""), Ok(())),
        (&daemon, service, annotate("purelb.io/service-group"), Err("only the announcing annotations")),
        (&daemon, service, annotate("purelb.io/allocated-by"), Err("only the announcing annotations")),
        (&daemon, service, annotate("example.com/theirs"), Err("only its own annotations")),
        (&daemon, service, json!({"metadata": {"labels": {"a": "b"}}}), Err("never changes the labels")),
        (
            &daemon,
            service,
            json!({"spec": {"externalTrafficPolicy": "Local"}}),
            Err("never changes the spec"),
        ),
        (&daemon, service, owner(), Err("never changes the owners")),
        (&daemon, service, finalizer(), Err("never changes the finalizers")),
        (&allocator, service, annotate("purelb.io/allocated-from"), Ok(())),
        (&allocator, service, annotate("example.com/theirs"), Err("only its own annotations")),
        (
            &allocator,
            service,
            json!({"spec": {"loadBalancerIP": "192.0.2.9"}}),
            Err("never changes the spec"),
        ),
        (&allocator, service, owner(), Err("never changes the owners")),
        (&allocator, service, finalizer(), Err("never changes the finalizers")),
        (&allocator, status, given, Ok(())),
        (&allocator, status, owner(), Err("never changes the owners")),
        (&allocator, status, finalizer(), Err("never changes the finalizers")),
        (&allocator, status, json!({"metadata": {"labels": {"a": "b"}}}), Err("never changes the labels")),
        (&allocator, status, annotate("example.com/theirs"), Err("only its own annotations")),
    ])
    .await?;
    // The daemon has no right on the status at all.
    all_refused(
        &daemon,
        vec![
            ("PATCH", "/api/v1/namespaces/shop/services/guarded/status", Some(owner())),
            ("PATCH", "/api/v1/namespaces/shop/services/guarded/status", Some(finalizer())),
        ],
    )
    .await
}

/// An account that may edit every Service of the shop, as a tenant may.
async fn editor(plane: &ControlPlane, account: &ServiceAccount) -> Result<Client> {
    let (namespace, name) = (&account.namespace, &account.name);
    let admin = plane.admin()?;
    fixtures::ensure_namespace(&admin, namespace).await?;
    let objects = [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "edit", "namespace": "shop"},
            "rules": [{"apiGroups": [""], "resources": ["services"], "verbs": ["*"]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": format!("edit-{namespace}-{name}"), "namespace": "shop"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]}),
    ];
    purelb_kit::controlplane::manifests::apply(&admin, &objects).await?;
    plane.client_for(account).await
}

#[tokio::test]
async fn what_purelb_wrote_on_a_service_is_changed_by_nobody_else() -> Result<()> {
    let plane = plane().await?;
    let admin = plane.admin()?;
    let services: Api<Service> = Api::namespaced(admin.clone(), "shop");
    services.create(&PostParams::default(), &fixtures::service("shop", "marked")).await?;
    let tenant = editor(plane, &ServiceAccount::new("shop", "tenant")).await?;
    let allocator = plane.client_for(&ServiceAccount::allocator()).await?;
    let path = "/api/v1/namespaces/shop/services/marked";
    let annotate = |key: &str, value: Value| json!({"metadata": {"annotations": {key: value}}});
    let marks = json!({"metadata": {"annotations": {"purelb.io/allocated-by": "PureLB",
        "purelb.io/allocated-from": "g", "purelb.io/pool-type": "local"}}});
    let mut cases: Vec<Case<'_>> = vec![(&allocator, path, marks, Ok(()))];
    for key in [
        "purelb.io/allocated-by",
        "purelb.io/allocated-from",
        "purelb.io/pool-type",
        "purelb.io/skip-ipv6-dad",
        "purelb.io/taken-over-by",
        "purelb.io/announcing-IPv4",
        "purelb.io/announcing-IPv6",
    ] {
        for client in [&tenant, &admin] {
            cases.push((client, path, annotate(key, json!("forged")), Err("written by purelb alone")));
        }
    }
    cases.extend([
        (&tenant, path, annotate("purelb.io/allocated-by", Value::Null), Err("written by purelb alone")),
        (&tenant, path, annotate("purelb.io/pool-type", json!("local")), Ok(())),
        (&tenant, path, annotate("purelb.io/service-group", json!("g")), Ok(())),
        (&tenant, path, annotate("purelb.io/addresses", json!("192.0.2.5")), Ok(())),
        (&tenant, path, json!({"spec": {"externalTrafficPolicy": "Local"}}), Ok(())),
    ]);
    all_as_expected(cases).await?;

    // An exported manifest: a tenant is told to clean it, a restore goes through.
    let mut exported = fixtures::service("shop", "exported");
    exported.annotations_mut().insert("purelb.io/pool-type".into(), "remote".into());
    let body = serde_json::to_value(&exported)?;
    let (code, text) = ask(&tenant, "POST", "/api/v1/namespaces/shop/services", Some(&body)).await?;
    assert!(code == 422 && text.contains("leave it out of what you apply"), "{code} {text}");
    let (code, text) = ask(&admin, "POST", "/api/v1/namespaces/shop/services", Some(&body)).await?;
    assert_eq!(code, 200, "{text}");
    let plain = serde_json::to_value(fixtures::service("shop", "plain"))?;
    let (code, text) = ask(&tenant, "POST", "/api/v1/namespaces/shop/services", Some(&plain)).await?;
    assert_eq!(code, 200, "{text}");
    Ok(())
}

/// Who counts as purelb is named: an account is not purelb because of where it lives.
#[tokio::test]
async fn only_accounts_of_purelb_write_what_purelb_writes() -> Result<()> {
    let plane = plane().await?;
    let services: Api<Service> = Api::namespaced(plane.admin()?, "shop");
    services.create(&PostParams::default(), &fixtures::service("shop", "named")).await?;
    let path = "/api/v1/namespaces/shop/services/named";
    let mark = |value: &str| json!({"metadata": {"annotations": {"purelb.io/pool-type": value}}});
    let refused = Err("written by purelb alone");
    let mut clients = Vec::new();
    for (namespace, name, expected) in [
        ("purelb", "somebody", refused),
        ("purelb", "default", refused),
        ("purelb", "purelbd", refused),
        ("purelb", "purelb-allocator", refused),
        ("purelb-system", "default", refused),
        ("purelb-system", "purelbd-too", refused),
        ("shop", "lbnodeagent", refused),
        // A tenant's namespace of that name.
        ("purelb", "lbnodeagent", refused),
        // The older purelb, while nodes move over.
        ("purelb", "allocator", Ok(())),
        ("purelb-system", "allocator", Ok(())),
        ("purelb-system", "lbnodeagent", Ok(())),
    ] {
        let client = editor(plane, &ServiceAccount::new(namespace, name)).await?;
        if (namespace, name) == ("purelb", "allocator") {
            let objects = [
                json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                    "metadata": {"name": "purelb:allocator"},
                    "rules": [{"apiGroups": [""], "resources": ["services"], "verbs": ["update"]}]}),
                json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                    "metadata": {"name": "purelb:allocator"},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                        "name": "purelb:allocator"},
                    "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]}),
            ];
            purelb_kit::controlplane::manifests::apply(&plane.admin()?, &objects).await?;
        }
        clients.push((client, mark(&format!("{namespace}-{name}")), expected));
    }
    let cases = clients.iter().map(|(client, patch, expected)| (client, path, patch.clone(), *expected));
    all_as_expected(cases.collect()).await
}

/// A token of the daemons' account that is bound to no Node may read, and nothing else.
#[tokio::test]
async fn a_token_that_is_not_bound_writes_nothing() -> Result<()> {
    let plane = plane().await?;
    let unbound = plane.client_for(&ServiceAccount::node_daemon()).await?;
    let now = k8s_openapi::jiff::Timestamp::now();
    let lease_of = |node: &str| -> Result<Value> {
        Ok(lease::create(SYSTEM, &NodeName::new(node)?, &lease_content("i")?, None, now))
    };
    let there: Lease = serde_json::from_value(lease_of("unbound")?)?;
    Api::<Lease>::namespaced(plane.admin()?, SYSTEM).create(&PostParams::default(), &there).await?;
    let bound = json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": "n1"}}});
    let slot = json!({"metadata": {"annotations": {"purelb.io/announcing-IPv4": "x"}}});
    let calls = [
        ("POST", "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases", Some(lease_of("n2")?)),
        (
            "PATCH",
            "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases/purelb-node-unbound",
            Some(json!({"spec": {"holderIdentity": "another"}})),
        ),
        ("DELETE", "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases/purelb-node-unbound", None),
        ("PATCH", "/api/v1/namespaces/shop/services/web", Some(slot)),
        (
            "PATCH",
            "/apis/purelb.io/v2/namespaces/purelb-system/lbnodeagents/a/status",
            Some(json!({"status": {"conditions": []}})),
        ),
        ("POST", "/apis/events.k8s.io/v1/namespaces/shop/events", Some(event("shop", "Service", "web"))),
        ("POST", "/api/v1/namespaces/purelb-system/serviceaccounts/purelbd/token", Some(bound)),
    ];
    for (method, path, body) in calls {
        let (code, text) = ask(&unbound, method, path, body.as_ref()).await?;
        // Two policies refuse a request for a token, and what is done to a Lease; the
        // server names either.
        let words = ["bound to its own Node only", "belongs to another node"];
        let either = words.iter().any(|words| text.contains(words));
        let said = text.contains("bound to its Node") || either;
        assert!(code == 422 && said, "{method} {path}: {code} {text}");
    }
    Ok(())
}

/// What a daemon's next token may be.
#[tokio::test]
async fn a_daemon_gets_tokens_for_its_own_node_only() -> Result<()> {
    let plane = plane().await?;
    let daemon = plane.daemon_of("n1").await?;
    let path = "/api/v1/namespaces/purelb-system/serviceaccounts/purelbd/token";
    let to = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "name": name});
    let cases = [
        (json!({"boundObjectRef": to("Node", "n1")}), Ok(())),
        (json!({"boundObjectRef": to("Node", "n2")}), Err("bound to its own Node")),
        (json!({}), Err("bound to its own Node")),
        (json!({"boundObjectRef": to("Secret", "other")}), Err("bound to its own Node")),
        (json!({"boundObjectRef": to("Node", "n1"), "expirationSeconds": 40_000_000}), Err("a year at most")),
    ];
    for (spec, expected) in cases {
        let (code, text) = ask(&daemon, "POST", path, Some(&json!({"spec": spec}))).await?;
        match expected {
            Ok(()) => assert_eq!(code, 200, "{spec}: {text}"),
            Err(words) => assert!(code == 422 && text.contains(words), "{spec}: {code} {text}"),
        }
    }
    Ok(())
}

/// A token bound to a Node is good for that node's Lease only.
#[tokio::test]
async fn a_bound_token_writes_only_its_nodes_lease() -> Result<()> {
    let plane = plane().await?;
    let client = plane.daemon_of("n1").await?;
    let path = "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases";
    let lease_of = |name: &str| -> Result<Value> {
        Ok(lease::create(
            SYSTEM,
            &NodeName::new(name)?,
            &lease_content("i")?,
            None,
            k8s_openapi::jiff::Timestamp::now(),
        ))
    };
    eventually("another node's Lease is refused", Duration::from_secs(30), || async {
        let other = lease_of("n2").map_err(|e| e.to_string())?;
        match ask(&client, "POST", &format!("{path}?dryRun=All"), Some(&other)).await {
            Ok((422, text)) if text.contains("belongs to another node") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    let (code, text) = ask(&client, "POST", path, Some(&lease_of("n1")?)).await?;
    assert_eq!(code, 200, "{text}");
    let (code, text) = ask(&client, "DELETE", &format!("{path}/purelb-node-n1"), None).await?;
    assert_eq!(code, 200, "{text}");
    Ok(())
}

#[tokio::test]
async fn the_allocator_can_do_its_work_and_nothing_else() -> Result<()> {
    let plane = plane().await?;
    let allocator = plane.client_for(&ServiceAccount::allocator()).await?;
    let leader = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "purelb-allocator", "namespace": SYSTEM}, "spec": {"holderIdentity": "a-1"}});
    all_allowed(
        &allocator,
        vec![
            ("GET", "/api/v1/services", None),
            ("GET", "/api/v1/namespaces/shop/services/web", None),
            ("GET", "/api/v1/services?watch=1&timeoutSeconds=1", None),
            (
                "PATCH",
                "/api/v1/namespaces/shop/services/web",
                Some(json!({"metadata": {"annotations": {"purelb.io/allocated-by": "PureLB"}}})),
            ),
            (
                "PATCH",
                "/api/v1/namespaces/shop/services/web/status",
                Some(
                    json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.5", "ipMode": "VIP"}]}}}),
                ),
            ),
            ("GET", "/api/v1/namespaces", None),
            ("GET", "/api/v1/namespaces?watch=1&timeoutSeconds=1", None),
            ("GET", "/api/v1/nodes", None),
            ("GET", "/apis/purelb.io/v2/servicegroups", None),
            ("GET", "/apis/purelb.io/v2/servicegroups?watch=1&timeoutSeconds=1", None),
            (
                "PATCH",
                "/apis/purelb.io/v2/namespaces/purelb-system/servicegroups/g/status",
                Some(json!({"status": {"ipam": "Cluster"}})),
            ),
            (
                "GET",
                "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases?watch=1&timeoutSeconds=1",
                None,
            ),
            ("POST", "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases", Some(leader)),
            (
                "PATCH",
                "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases/purelb-allocator",
                Some(json!({"spec": {"holderIdentity": "a-2"}})),
            ),
            ("POST", "/apis/events.k8s.io/v1/namespaces/shop/events", Some(event("shop", "Service", "web"))),
            ("GET", "/api/v1/namespaces/purelb-system/secrets/purelb-netbox", None),
        ],
    )
    .await?;
    all_refused(
        &allocator,
        vec![
            ("GET", "/api/v1/namespaces/purelb-system/secrets", None),
            ("GET", "/api/v1/namespaces/purelb-system/secrets/other", None),
            ("GET", "/api/v1/namespaces/shop/secrets/purelb-netbox", None),
            ("GET", "/api/v1/pods", None),
            ("DELETE", "/api/v1/namespaces/shop/services/web", None),
            ("PATCH", "/api/v1/nodes/n1", Some(json!({"spec": {"unschedulable": true}}))),
            (
                "PATCH",
                "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases/purelb-node-n1",
                Some(json!({"spec": {}})),
            ),
            ("DELETE", "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases/purelb-node-n1", None),
            (
                "POST",
                "/api/v1/namespaces/purelb-system/serviceaccounts/purelb-allocator/token",
                Some(json!({"spec": {}})),
            ),
            (
                "PATCH",
                "/apis/purelb.io/v2/namespaces/purelb-system/servicegroups/g",
                Some(json!({"spec": {"namespaces": ["x"]}})),
            ),
            (
                "POST",
                "/api/v1/namespaces/purelb-system/serviceaccounts/purelbd/token",
                Some(json!({"spec": {}})),
            ),
        ],
    )
    .await?;
    // It may create a Lease, and this one is a node's.
    let now = k8s_openapi::jiff::Timestamp::now();
    let forged = lease::create(SYSTEM, &NodeName::new("n2")?, &lease_content("i")?, None, now);
    let path = "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases";
    let (code, text) = ask(&allocator, "POST", path, Some(&forged)).await?;
    assert!(code == 422 && text.contains("no Lease but its own"), "{code} {text}");
    Ok(())
}
