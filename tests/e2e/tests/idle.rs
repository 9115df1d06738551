//! What a daemon costs when nothing happens, as it is packaged.

use std::time::Duration;

use anyhow::Result;
use purelb_e2e::{Cluster, Usage, Wish, row, shared_plane};
use purelb_kit::lab::{Lab, now};
use purelb_kit::wait::eventually;

const MINUTE: Duration = Duration::from_secs(60);

async fn until(at: purelb_core::Mono) -> Result<()> {
    eventually("time passes", 2 * MINUTE, || async move { if now() >= at { Ok(()) } else { Err(()) } }).await
}

#[tokio::test]
async fn at_rest_with_three_nodes_and_a_hundred_services() -> Result<()> {
    let lab = Lab::builder()
        .segment("lan", ["10.10.0.0/16", "2001:db8:1::/64"])
        .node("a", ["lan"])
        .node("b", ["lan"])
        .node("c", ["lan"]);
    let mut cluster = Cluster::new(shared_plane().await?, lab).await?;
    cluster.settings.shipped = true;
    for name in ["a", "b", "c"] {
        cluster.join(name).await?;
    }
    for name in ["a", "b", "c"] {
        cluster.daemon(name).ready(MINUTE).await?;
    }
    let vips: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|n| cluster.won_by(n, &["a", "b", "c"], 17, 0))
        .collect::<Result<Vec<_>>>()?
        .concat();
    for (i, vip) in vips.iter().take(100).enumerate() {
        cluster.serve(Wish::new(&format!("web{i}"), [*vip])).await?;
    }
    for vip in vips.iter().take(100) {
        cluster.one_holder(*vip).await?;
    }
    // Announcements are repeated and slots written for some seconds; then it is at rest.
    until(now() + Duration::from_secs(10)).await?;
    let a = cluster.daemon("a");
    let requests = || a.metric("purelb_api_requests_total");
    // From one renewal on: where a minute begins must not decide how many it holds.
    let first = requests()?;
    let asked = eventually("a renewal", MINUTE, || {
        let asked = requests().map_err(|e| e.to_string());
        async move { asked.and_then(|n| if n > first { Ok(n) } else { Err(n.to_string()) }) }
    })
    .await?;
    let (before, began) = (Usage::of(a.pid())?, now());
    until(began + MINUTE).await?;
    let (after, asked) = (Usage::of(a.pid())?, requests()? - asked);
    let cpu = (after.cpu - before.cpu).as_secs_f64() / now().since(began).as_secs_f64() * 100.0;
    row(
        "at rest: memory",
        "< 16 MiB RSS",
        &format!("{:.1} MiB", after.rss_kib as f64 / 1024.0),
        after.rss_kib < 16 * 1024,
    );
    row("at rest: API requests", "<= 18 per minute", &format!("{asked:.0}"), asked <= 18.0);
    row(
        "at rest: processor",
        "< 0.1 % of a core (held to 0.5 % on a shared machine)",
        &format!("{cpu:.2} %, {} wake-ups per minute", after.wakeups - before.wakeups),
        cpu < 0.5,
    );
    Ok(())
}
