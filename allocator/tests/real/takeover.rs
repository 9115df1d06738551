//! Taking over where a Service cannot be written, and where the API server was away.

use std::time::{Duration, Instant};

use anyhow::Result;
use kube::api::{Patch, PatchParams};
use purelb_kit::controlplane::{ServiceAccount, manifests};
use purelb_kit::faults::{Cut, Proxy, outage};
use purelb_kit::wait::eventually;
use serde_json::{Value, json};

use crate::common::{Cluster, PATIENCE, figure, local};
use crate::plane::{Allocator, leader, own};

const POLICY: &str = "nobody-touches-stuck";

/// What a policy engine does: no update of one Service, whatever it changes.
fn policy() -> [Value; 2] {
    [
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": POLICY},
            "spec": {"failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                    "operations": ["UPDATE"], "resources": ["services", "services/status"]}]},
                "validations": [{"expression": "object.metadata.name != 'stuck'",
                    "message": "stuck is not to be touched"}]}}),
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": POLICY}, "spec": {"policyName": POLICY, "validationActions": ["Deny"]}}),
    ]
}

async fn refuses(c: &Cluster) -> Result<()> {
    eventually("the policy is in force", PATIENCE, || async {
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"a": "b"}}}));
        match c.services("elsewhere").patch("stuck", &params, &patch).await {
            Err(kube::Error::Api(status)) if status.message.contains("not to be touched") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

#[tokio::test]
async fn one_service_that_refuses_writes_holds_up_nobody_after_a_crash() -> Result<()> {
    let (plane, c) = own().await?;
    c.namespace("shop").await?;
    c.group("default", local(json!({"v4pool": {"pool": "10.0.0.10-10.0.0.99", "subnet": "10.0.0.0/24"}})))
        .await?;
    let first = Allocator::start(&plane, "first", &[]).await?;
    leader(&c, "first").await?;
    manifests::apply(&c.client, &policy()).await?;
    c.namespace("elsewhere").await?;
    c.service_with("elsewhere/stuck", &[], |s| {
        let spec = s.spec.as_mut().unwrap();
        (spec.type_, spec.load_balancer_class) = (Some("ClusterIP".into()), None);
    })
    .await?;
    refuses(&c).await?;
    c.service("shop/stuck", &[]).await?;
    // It falls silent: whatever it sent may still arrive.
    first.kill();
    c.service("shop/fine", &[]).await?;
    let second = Allocator::start(&plane, "second", &[]).await?;
    leader(&c, "second").await?;
    let leads = Instant::now();
    c.has_some("shop/fine").await?;
    let took = leads.elapsed();
    let what = "allocation goes on after a crash, one Service refusing every write";
    figure(what, "patience 5 s + 1 s", &format!("{} ms", took.as_millis()));
    assert!(took < Duration::from_secs(6), "{took:?}");
    let log = second.log();
    assert!(log.contains("shop/stuck") && log.contains("going on without it"), "says which: {log}");
    eventually("the Service's owner is told", PATIENCE, || async {
        let events = c.events("shop/stuck").await.map_err(|e| e.to_string())?;
        let told = |(r, m): &(String, String)| r == "ConfigurationWarning" && m.contains("not to be touched");
        if events.iter().any(told) { Ok(()) } else { Err(format!("{events:?}")) }
    })
    .await?;
    // Again, and stopped in the middle of it.
    second.kill();
    let third = Allocator::start(&plane, "third", &[]).await?;
    eventually("it fences the second one off", PATIENCE, || async {
        let log = third.log();
        if log.contains("fencing off the former leader") { Ok(()) } else { Err(log) }
    })
    .await?;
    let asked = Instant::now();
    third.stop().await?;
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    // Let go of, the Service is served like any other.
    let fourth = Allocator::start(&plane, "fourth", &[]).await?;
    leader(&c, "fourth").await?;
    for kind in ["validatingadmissionpolicybindings", "validatingadmissionpolicies"] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}/{POLICY}");
        let request = http::Request::delete(path).body(Vec::new())?;
        c.client.request_text(request).await?;
    }
    c.has_some("shop/stuck").await?;
    fourth.stop().await
}

/// The API server is away for longer than the Lease lasts, for both replicas: whoever is
/// first goes on at once when it is back.
#[tokio::test]
async fn an_outage_of_the_api_server_is_survived_by_both_replicas() -> Result<()> {
    const AWAY: Duration = Duration::from_secs(12);
    let (plane, c) = own().await?;
    c.namespace("shop").await?;
    c.group("default", local(json!({"v4pool": {"pool": "10.0.0.10-10.0.0.99", "subnet": "10.0.0.0/24"}})))
        .await?;
    let mut proxies = Vec::new();
    let mut replicas = Vec::new();
    // The timers as they are shipped.
    let timers = ["--lease-duration=10s", "--renew-deadline=7s", "--retry-period=2s"];
    for name in ["one", "two"] {
        let proxy = Proxy::before_plane(&plane)?.tls(plane.ca())?.start().await?;
        let kubeconfig = plane.kubeconfig_for(&ServiceAccount::allocator(), proxy.url()).await?;
        replicas.push(Allocator::start_with(&plane, name, &kubeconfig, &timers)?);
        proxies.push(proxy);
        leader(&c, "one").await?;
    }
    for (round, cut) in [Cut::Hang, Cut::Down].into_iter().enumerate() {
        c.service(&format!("shop/before{round}"), &[]).await?;
        c.has_some(&format!("shop/before{round}")).await?;
        let cuts = outage(&proxies, cut);
        let began = Instant::now();
        eventually("the outage is over", AWAY * 2, || async {
            if began.elapsed() > AWAY { Ok(()) } else { Err(()) }
        })
        .await?;
        c.service(&format!("shop/during{round}"), &[]).await?;
        drop(cuts);
        let back = Instant::now();
        c.has_some(&format!("shop/during{round}")).await?;
        let took = back.elapsed();
        let what = format!("first address after {} s without API server ({cut:?})", AWAY.as_secs());
        figure(&what, "< 2 s", &format!("{} ms", took.as_millis()));
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
    for replica in &replicas {
        replica.stop().await?;
    }
    Ok(())
}
