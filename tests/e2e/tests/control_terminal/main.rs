//! What an operator sees on a terminal, and the pictures in the guide, made from it.

mod terminal;

use anyhow::Result;
use purelb_e2e::{Cluster, Wish, purelbctl, shared_plane};
use purelb_kit::lab::Lab;
use terminal::Terminal;

/// Two nodes, addresses on both, one that nobody can announce.
async fn cluster<'p>() -> Result<(Cluster<'p>, String)> {
    let lab = Lab::builder().segment("lan", ["192.0.2.0/24"]).node("a", ["lan"]).node("b", ["lan"]);
    let cluster = Cluster::start(shared_plane().await?, lab).await?;
    let vips = cluster.won_by("a", &["a", "b"], 8, 0)?;
    for (i, vip) in vips.iter().enumerate() {
        cluster.serve(Wish::new(&format!("web{i}"), [*vip])).await?;
    }
    cluster.serve(Wish::new("lost", ["198.51.100.7".parse()?])).await?;
    cluster.announced_by("a", &vips).await?;
    let socket = cluster.node("a").dir().join("control.sock");
    let program = format!("{} --socket {}", purelbctl()?.display(), socket.display());
    Ok((cluster, program))
}

#[tokio::test]
async fn status_and_explain() -> Result<()> {
    let (_cluster, program) = cluster().await?;
    let mut status = Terminal::run(&format!("{program} status"), 24, 110).await?;
    status.shows(&["critical", "9, 8 on this node", "NoEligibleNode", "198.51.100.7: no live node"]).await?;
    assert_eq!(status.ended().await?, 2);
    status.picture("status")?;
    let mut explained = Terminal::run(&format!("{program} explain 198.51.100.7"), 16, 130).await?;
    explained.shows(&["FAIL", "Candidates", "->"]).await?;
    assert_eq!(explained.ended().await?, 0);
    explained.picture("explain")
}

#[tokio::test]
async fn a_drain_draws_a_bar() -> Result<()> {
    let (cluster, program) = cluster().await?;
    // Until b may speak again the bar stands still, and can be looked at.
    cluster.node("b").cut(purelb_kit::lab::Cut::Api)?;
    let mut drain = Terminal::run(&format!("{program} drain"), 12, 100).await?;
    drain.shows(&["░", "/8 moved"]).await?;
    drain.picture("drain")?;
    cluster.node("b").heal(&purelb_kit::lab::Cut::Api)?;
    drain.shows(&["this node holds no addresses"]).await?;
    assert!(!drain.text().contains('░'), "the bar is wiped at the end: {}", drain.text());
    assert_eq!(drain.ended().await?, 0);
    Ok(())
}

#[tokio::test]
async fn top_follows_resizes_and_leaves_no_trace() -> Result<()> {
    let (cluster, program) = cluster().await?;
    let mut top = Terminal::run(&format!("{program} top --interval 200ms"), 30, 110).await?;
    top.shows(&["Members", "Addresses (9)", "NoEligibleNode", "q quit"]).await?;
    assert!(top.full_screen());
    top.picture("top")?;
    cluster.daemon("a").ctl("drain").await?;
    top.shows(&["DRAINED", "0 held"]).await?;
    top.resize(20, 60)?;
    top.shows(&["Members", "q quit"]).await?;
    let widest = top.text().lines().map(|l| l.chars().count()).max();
    assert!(widest <= Some(60), "it fits: {widest:?}");
    top.press("jjk")?;
    top.press("q")?;
    assert_eq!(top.ended().await?, 0);
    assert!(!top.full_screen(), "the terminal is as it was");
    Ok(())
}
