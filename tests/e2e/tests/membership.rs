//! Who takes part: Leases deleted or written by others, Nodes deleted or vouched down.

use std::time::Duration;

use anyhow::Result;
use kube::api::{DeleteParams, Patch, PatchParams};
use purelb_e2e::{Cluster, Trial, Wish, millis, row, shared_plane};
use purelb_kit::lab::{Lab, LabBuilder, now};
use purelb_kit::wait::eventually;
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(20);

fn nodes<const N: usize>(names: [&str; N]) -> LabBuilder {
    let lab = Lab::builder().segment("lan", ["192.0.2.0/24", "2001:db8:1::/64"]).client("x", ["lan"]);
    names.into_iter().fold(lab, |lab, name| lab.node(name, ["lan"]))
}

#[tokio::test]
async fn a_deleted_lease_is_made_anew() -> Result<()> {
    let cluster = Cluster::start(shared_plane().await?, nodes(["a", "b"])).await?;
    let vips = cluster.won_by("a", &["a", "b"], 1, 0)?;
    cluster.serve(Wish::new("web", vips.clone())).await?;
    for vip in &vips {
        cluster.holder_where(*vip, "on a", |n| n == "a").await?;
    }
    let before = cluster.lease("a").await?.expect("a has a Lease").metadata.uid;
    let mut trial = Trial::start(&cluster, "x", &vips).await?;
    trial.begin();
    cluster.delete_lease("a").await?;
    eventually("a has a new Lease", PATIENCE, || async {
        let lease = cluster.lease("a").await.map_err(|e| e.to_string())?;
        lease.filter(|l| l.metadata.uid != before).map(drop).ok_or("none".to_owned())
    })
    .await?;
    let again = now().since(trial.at);
    for vip in &vips {
        cluster.holder_where(*vip, "back on a", |n| n == "a").await?;
    }
    let settled = now().since(trial.at);
    let (report, seen) = trial.finish();
    row(
        "own Lease deleted by hand",
        "made anew; settled < 2 s",
        &format!(
            "new Lease after {}, settled after {}, {} lost; {}",
            millis(again),
            millis(settled),
            report.lost(),
            seen.timelines()?
        ),
        settled < Duration::from_secs(2),
    );
    Ok(())
}

#[tokio::test]
async fn a_node_that_is_deleted_or_vouched_down_is_out_at_once() -> Result<()> {
    let cluster = Cluster::start(shared_plane().await?, nodes(["a", "b"])).await?;
    let vips = cluster.won_by("a", &["a", "b"], 1, 0)?;
    cluster.serve(Wish::new("web", vips.clone())).await?;
    for vip in &vips {
        cluster.holder_where(*vip, "on a", |n| n == "a").await?;
    }
    // An administrator vouches that it is down; its daemon still runs.
    let taint = |on: bool| {
        let taints = if on {
            json!([{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}])
        } else {
            json!([])
        };
        Patch::Merge(json!({"spec": {"taints": taints}}))
    };
    let name = cluster.node_name("a");
    let mut trial = Trial::start(&cluster, "x", &vips).await?;
    trial.begin();
    cluster.nodes().patch(&name, &PatchParams::default(), &taint(true)).await?;
    let mut worst = Duration::ZERO;
    for vip in &vips {
        trial.withdrawn(*vip, "a").await?;
        worst = worst.max(trial.taken_over(*vip, "a").await?.1);
    }
    trial.until_answered_by(|n| n == "b").await?;
    let (report, _) = trial.finish();
    row(
        "Node tainted out-of-service",
        "out at once (< 1 s), not at the Lease's end",
        &format!("taken after {}, {} lost", millis(worst), report.lost()),
        worst < Duration::from_secs(1),
    );
    cluster.nodes().patch(&name, &PatchParams::default(), &taint(false)).await?;
    for vip in &vips {
        cluster.holder_where(*vip, "back on a", |n| n == "a").await?;
    }

    let mut trial = Trial::start(&cluster, "x", &vips).await?;
    trial.begin();
    cluster.nodes().delete(&name, &DeleteParams::default()).await?;
    let mut worst = Duration::ZERO;
    for vip in &vips {
        trial.withdrawn(*vip, "a").await?;
        worst = worst.max(trial.taken_over(*vip, "a").await?.1);
    }
    eventually("garbage collection removes the Lease", PATIENCE, || async {
        match cluster.lease("a").await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    let collected = now().since(trial.at);
    trial.until_answered_by(|n| n == "b").await?;
    let (report, _) = trial.finish();
    row(
        "Node deleted",
        "out at once (< 1 s); the Lease is collected",
        &format!(
            "taken after {}, {} lost, Lease gone after {}",
            millis(worst),
            report.lost(),
            millis(collected)
        ),
        worst < Duration::from_secs(1),
    );
    // A Node of that name again, with another UID: it takes part again.
    cluster.register("a").await?;
    for vip in &vips {
        cluster.holder_where(*vip, "back on a", |n| n == "a").await?;
    }
    let lease = cluster.lease("a").await?.expect("it has a Lease again");
    let owner = lease.metadata.owner_references.unwrap_or_default();
    let uid = cluster.nodes().get(&name).await?.metadata.uid;
    assert_eq!(owner.first().map(|o| o.uid.clone()), uid, "of the new Node");
    Ok(())
}
