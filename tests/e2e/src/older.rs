//! A member that speaks only the older Lease format: subnets and instance, no word of
//! what it has announced.

use std::time::Duration;

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;

/// Renews its Lease until dropped.
#[derive(Debug)]
pub struct OlderMember {
    task: JoinHandle<()>,
}

impl OlderMember {
    /// `skew` is added to the clock it writes with.
    pub async fn start(
        cluster: &Cluster<'_>,
        name: &str,
        subnets: &[&str],
        skew: SignedDuration,
    ) -> Result<Self> {
        let (leases, lease) = (cluster.leases(), cluster.lease_name(name));
        let (node, subnets) = (cluster.node_name(name), subnets.join(","));
        renew(&leases, &lease, &node, &subnets, skew).await?;
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(3)).await;
                if let Err(error) = renew(&leases, &lease, &node, &subnets, skew).await {
                    eprintln!("the older member could not renew: {error:#}");
                }
            }
        });
        Ok(Self { task })
    }
}

impl Drop for OlderMember {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn renew(
    leases: &Api<Lease>,
    name: &str,
    node: &str,
    subnets: &str,
    skew: SignedDuration,
) -> Result<()> {
    let at = Timestamp::now() + skew;
    let object = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/name": "purelb", "app.kubernetes.io/component": "lbnodeagent"},
            "annotations": {"purelb.io/subnets": subnets, "purelb.io/instance": format!("older-{node}")},
        },
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 10, "renewTime": format!("{at:.6}")},
    });
    leases.patch(name, &PatchParams::apply("older").force(), &Patch::Apply(object)).await?;
    Ok(())
}
