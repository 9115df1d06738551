//! What a segment has beside nodes and clients, and how parts of it fall silent.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use purelb_kit::lab::{Cut, Lab, NewAddress, Prober, Probing};
use purelb_kit::wait::eventually;

const WITHIN: Duration = Duration::from_secs(10);

fn mk_lab() -> Result<Lab> {
    Lab::builder()
        .segment("lan", ["192.0.2.0/24", "2001:db8:1::/64"])
        .node("a", ["lan"])
        .node("b", ["lan"])
        .client("x", ["lan"])
        .router("r", ["lan"])
        .build()
}

/// Somebody who asks `vip` all the time.
fn mk_asker(lab: &Lab, host: &str, vip: IpAddr) -> Result<Prober> {
    lab.node(host).probe(Probing::udp([vip]).timeout(Duration::from_millis(100)))
}

/// Waits until more answers come, or until more probes are lost.
async fn sees(prober: &Prober, what: &str, answers: bool) -> Result<()> {
    let count = || {
        let report = prober.report();
        let one = report.vips.values().next().cloned().unwrap_or_default();
        if answers { one.answered } else { one.lost }
    };
    let before = count();
    eventually(what, WITHIN, || {
        let more = count() - before;
        async move { if more > 50 { Ok(()) } else { Err(more) } }
    })
    .await
}

#[tokio::test]
async fn the_router_is_where_default_routes_point_to() -> Result<()> {
    let lab = mk_lab()?;
    let (a, router) = (lab.node("a"), lab.node("r"));
    let mac = router.ports()[0].mac;
    for route in a.routes()?.iter().filter(|route| route.destination.prefix_len() == 0) {
        let gateway = route.gateway.context("a default route by a gateway")?;
        assert!(router.address(gateway)?.is_some(), "{gateway} is the router's");
        let any = if gateway.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        a.enter(|| UdpSocket::bind(any)?.send_to(b"hello", (gateway, 9)))??;
        eventually("the router is found", WITHIN, || {
            let found = a.neighbour(gateway).ok().flatten().and_then(|entry| entry.mac);
            async move { if found == Some(mac) { Ok(()) } else { Err(found) } }
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn one_may_be_heard_by_some_and_not_by_others() -> Result<()> {
    let lab = mk_lab()?;
    let vip: IpAddr = "192.0.2.100".parse()?;
    lab.node("a").add_address("eth0", &NewAddress::new(ipnet::IpNet::new(vip, 24)?))?;
    let (of_x, of_b) = (mk_asker(&lab, "x", vip)?, mk_asker(&lab, "b", vip)?);
    sees(&of_x, "x hears a", true).await?;
    lab.mute("lan", &["a"], &["x"])?;
    sees(&of_x, "x hears nothing", false).await?;
    sees(&of_b, "b still hears a", true).await?;
    lab.join("lan")?;
    sees(&of_x, "x hears a again", true).await?;
    lab.split("lan", &["a", "x"], &["b", "r"])?;
    sees(&of_b, "b hears nothing", false).await?;
    sees(&of_x, "x is on a's side", true).await?;
    lab.join("lan")?;
    sees(&of_b, "b hears a again", true).await?;
    // Only echo is gone, so probes still pass.
    lab.node("a").cut(Cut::echo("lan"))?;
    sees(&of_b, "b still hears a", true).await?;
    assert!(lab.node("a").frames_sent("eth0")? > 100);
    Ok(())
}

#[tokio::test]
async fn a_paused_machine_does_nothing_and_says_nothing() -> Result<()> {
    let lab = mk_lab()?;
    let a = lab.node("a");
    let vip: IpAddr = "192.0.2.100".parse()?;
    a.add_address("eth0", &NewAddress::new(ipnet::IpNet::new(vip, 24)?))?;
    let mut script = Command::new("sh");
    script.args(["-c", "while :; do echo on; sleep 0.01; done"]);
    let process = a.spawn("ticker", script)?;
    let prober = mk_asker(&lab, "x", vip)?;
    sees(&prober, "x hears a", true).await?;
    a.pause()?;
    let written = process.log().len();
    sees(&prober, "x hears nothing", false).await?;
    assert_eq!(process.log().len(), written, "its processes stand still");
    a.resume()?;
    sees(&prober, "x hears a again", true).await?;
    eventually("its processes go on", WITHIN, || {
        let more = process.log().len() - written;
        async move { if more > 0 { Ok(()) } else { Err(()) } }
    })
    .await?;
    Ok(())
}
