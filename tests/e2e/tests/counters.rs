//! The counters that alerts are made of: each is seen to rise when what it counts happens.

use std::time::Duration;

use anyhow::{Result, ensure};
use purelb_e2e::{Cluster, Wish, shared_plane};
use purelb_kit::lab::{Cut, Lab, now};
use purelb_kit::wait::eventually;

const PATIENCE: Duration = Duration::from_secs(30);
const FAILURES: &str = "purelb_lease_renewal_failures_total";
const CLOSE_CALLS: &str = "purelb_fence_margin_ratio_bucket{le=\"0.25\"}";
const RECOVERIES: &str = "purelb_address_watchdog_recoveries_total";
const LIVE: &str = "purelb_lease_live_nodes";
const HEALTHY: &str = "purelb_lease_healthy";

async fn until(
    cluster: &Cluster<'_>,
    what: &str,
    holds: impl Fn(&dyn Fn(&str) -> f64) -> bool,
) -> Result<()> {
    let value = |series: &str| cluster.daemon("a").metric(series).unwrap_or(f64::NAN);
    eventually(what, PATIENCE, || {
        let seen = [FAILURES, CLOSE_CALLS, RECOVERIES, LIVE, HEALTHY].map(|series| (series, value(series)));
        let good = holds(&value);
        async move { if good { Ok(()) } else { Err(seen) } }
    })
    .await
}

/// The node's last renewal, as the API server has it.
async fn renewal(cluster: &Cluster<'_>) -> Result<String> {
    let lease = cluster.lease("a").await?;
    Ok(format!("{:?}", lease.and_then(|l| l.spec?.renew_time)))
}

#[tokio::test]
async fn what_the_alerts_count_is_counted() -> Result<()> {
    let lab = Lab::builder().segment("lan", ["192.0.2.0/24"]).node("a", ["lan"]);
    let mut cluster = Cluster::new(shared_plane().await?, lab).await?;
    // It tries again at once, so that the moment of a renewal is ours to choose.
    cluster.settings.toml = "[lease]\nretry_period = \"200ms\"\n".to_owned();
    cluster.join("a").await?.ready(PATIENCE).await?;
    let vips = cluster.won_by("a", &["a"], 1, 0)?;
    cluster.serve(Wish::new("web", vips.clone())).await?;
    cluster.announced_by("a", &vips).await?;
    until(&cluster, "at rest", |v| v(RECOVERIES) == 0.0 && v(LIVE) == 1.0 && v(HEALTHY) == 1.0).await?;
    // A busy machine may have made some already.
    let close_calls = cluster.daemon("a").metric(CLOSE_CALLS)?;
    let failures = cluster.daemon("a").metric(FAILURES)?;

    cluster.node("a").del_address("eth0", vips[0])?;
    until(&cluster, "an address removed by hand is counted", |v| v(RECOVERIES) >= 1.0).await?;

    // Renewed when less than a quarter of the deadline (7 s) was left. How long a
    // connection needs to come back is the kernel's business: some tries may miss.
    let mut tries = 0;
    while cluster.daemon("a").metric(CLOSE_CALLS)? <= close_calls {
        tries += 1;
        ensure!(tries <= 8, "no renewal came close to the fence");
        let before = renewal(&cluster).await?;
        eventually("a renewal", PATIENCE, || async {
            let seen = renewal(&cluster).await.map_err(|e| e.to_string())?;
            if seen == before { Err(seen) } else { Ok(()) }
        })
        .await?;
        let heal_at = now() + Duration::from_millis(5_400);
        cluster.node("a").cut(Cut::Api)?;
        eventually(
            "time passes",
            PATIENCE,
            || async move { if now() >= heal_at { Ok(()) } else { Err(()) } },
        )
        .await?;
        cluster.node("a").heal(&Cut::Api)?;
        until(&cluster, "well again", |v| v(HEALTHY) == 1.0 && v(LIVE) == 1.0).await?;
    }
    until(&cluster, "the failures before that are counted", |v| v(FAILURES) > failures).await?;

    let failures = cluster.daemon("a").metric(FAILURES)?;
    cluster.node("a").cut(Cut::Api)?;
    until(&cluster, "fenced", |v| v(HEALTHY) == 0.0 && v(FAILURES) > failures).await?;
    until(&cluster, "no live node", |v| v(LIVE) == 0.0).await?;
    cluster.node("a").heal(&Cut::Api)?;
    until(&cluster, "back", |v| v(HEALTHY) == 1.0 && v(LIVE) == 1.0).await
}
