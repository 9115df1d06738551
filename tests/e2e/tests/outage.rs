//! The API server goes away for everybody. On a control plane of its own.

use std::time::Duration;

use anyhow::Result;
use purelb_e2e::{Cluster, Trial, Wish, millis, own_plane, row};
use purelb_kit::lab::{Lab, now};
use purelb_kit::wait::eventually;

#[tokio::test]
async fn the_api_server_goes_and_comes_back() -> Result<()> {
    let plane = own_plane().await?;
    let lab = Lab::builder()
        .segment("lan", ["192.0.2.0/24", "2001:db8:1::/64"])
        .node("a", ["lan"])
        .node("b", ["lan"])
        .node("c", ["lan"])
        .client("x", ["lan"]);
    let cluster = Cluster::start(&plane, lab).await?;
    let vips = cluster.won_by("a", &["a", "b", "c"], 1, 0)?;
    cluster.serve(Wish::new("web", vips.clone())).await?;
    for vip in &vips {
        cluster.holder_where(*vip, "on a", |n| n == "a").await?;
    }

    // A short absence: shorter than the renew deadline less one renewal.
    let trial = Trial::start(&cluster, "x", &vips).await?;
    plane.pause()?;
    let until = now() + Duration::from_millis(2500);
    eventually("time passes", Duration::from_secs(20), || async move {
        if now() >= until { Ok(()) } else { Err(()) }
    })
    .await?;
    plane.resume()?;
    let (report, seen) = trial.finish();
    row(
        "API server hangs for 2.5 s",
        "nobody notices",
        &format!("{} of {} lost; {}", report.lost(), report.sent(), seen.timelines()?),
        report.lost() == 0 && seen.never_two()?,
    );

    // A long one: everybody withdraws; afterwards all is as before.
    let mut trial = Trial::start(&cluster, "x", &vips).await?;
    trial.begin();
    plane.stop_apiserver();
    let mut gone = Duration::ZERO;
    for vip in &vips {
        gone = gone.max(trial.withdrawn(*vip, "a").await?);
    }
    // Past everybody's Lease.
    let until = trial.at + Duration::from_secs(12);
    eventually("every Lease is over", Duration::from_secs(30), || async move {
        if now() >= until { Ok(()) } else { Err(()) }
    })
    .await?;
    plane.start_apiserver().await?;
    let back = now();
    trial.until_answered_by(|_| true).await?;
    for vip in &vips {
        cluster.holder_where(*vip, "on a", |n| n == "a").await?;
    }
    let recovered = now().since(back);
    let (report, seen) = trial.finish();
    row(
        "API server away for everybody, 12 s",
        "no second owner, full recovery < 2 s after it is back",
        &format!(
            "withdrawn after {}, recovered after {}, {} lost; {}",
            millis(gone),
            millis(recovered),
            report.lost(),
            seen.timelines()?
        ),
        seen.never_two()? && recovered < Duration::from_secs(2),
    );
    Ok(())
}
