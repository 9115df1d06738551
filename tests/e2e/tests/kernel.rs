//! What is ours in the kernel, and what is not.

use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;
use purelb_e2e::{Cluster, Trial, Wish, millis, row, shared_plane};
use purelb_kit::lab::{Change, Lab, LabBuilder, NewAddress, now};
use purelb_kit::wait::eventually;

const PATIENCE: Duration = Duration::from_secs(20);

fn two_nodes() -> LabBuilder {
    Lab::builder()
        .segment("lan", ["192.0.2.0/24", "2001:db8:1::/64"])
        .node("a", ["lan"])
        .node("b", ["lan"])
        .client("x", ["lan"])
}

#[tokio::test]
async fn lifetimes_are_extended_again_and_again() -> Result<()> {
    let cluster = Cluster::start(shared_plane().await?, two_nodes()).await?;
    let vips = cluster.won_by("a", &["a", "b"], 1, 0)?;
    cluster.serve(Wish::new("web", vips.clone())).await?;
    let trial = Trial::start(&cluster, "x", &vips).await?;
    // Four renewals: longer than any one of the lifetimes given.
    let until = now() + Duration::from_secs(14);
    let mut least = Duration::MAX;
    eventually("four renewals", PATIENCE, || {
        for vip in &vips {
            if let Ok(Some(address)) = cluster.node("a").address(*vip) {
                least = least.min(address.valid.unwrap_or_default());
            }
        }
        async move { if now() >= until { Ok(()) } else { Err(()) } }
    })
    .await?;
    let renewed: Vec<usize> = vips
        .iter()
        .map(|v| trial.kernel.events(*v).iter().filter(|e| e.change == Change::Set).count())
        .collect();
    let (report, seen) = trial.finish();
    let steady = vips.iter().all(|v| seen.kernel.owners_timeline(*v).is_ok_and(|t| t.spans.len() == 1));
    row(
        "lifetimes extended",
        "for ever while renewed, never gone",
        &format!("{renewed:?} times in 14 s, shortest seen {least:?}, {} lost", report.lost()),
        steady && report.lost() == 0 && renewed.iter().all(|n| *n >= 4),
    );
    Ok(())
}

#[tokio::test]
async fn only_what_is_ours_is_touched() -> Result<()> {
    let mut cluster = Cluster::start(shared_plane().await?, two_nodes()).await?;
    let vips = cluster.won_by("a", &["a", "b"], 3, 0)?;
    let (hand, foreign) = ([vips[0], vips[3]], [vips[1], vips[4]]);
    cluster.serve(Wish::new("web", hand)).await?;
    for vip in &hand {
        cluster.holder_where(*vip, "on a", |n| n == "a").await?;
    }

    // Removed by hand: it comes back.
    let mut trial = Trial::start(&cluster, "x", &hand).await?;
    trial.begin();
    for vip in &hand {
        cluster.node("a").del_address("eth0", *vip)?;
    }
    for vip in &hand {
        cluster.holder_where(*vip, "back on a", |n| n == "a").await?;
    }
    trial.until_answered_by(|n| n == "a").await?;
    let (_, seen) = trial.finish();
    row(
        "address removed by hand",
        "comes back < 1 s",
        &format!("after {}", millis(seen.no_owner()?)),
        seen.no_owner()? < Duration::from_secs(1),
    );
    let recovered = cluster.daemon("a").metric("purelb_address_watchdog_recoveries_total")?;
    assert!(recovered >= 2.0, "{recovered} recoveries counted");

    // An operator's own address inside the pool: left alone, said, and not announced.
    let nets = [("192.0.2.0/24", foreign[0]), ("2001:db8:1::/64", foreign[1])];
    for (net, ip) in nets {
        let net: ipnet::IpNet = net.parse()?;
        cluster.node("a").add_address("eth0", &NewAddress::new(ipnet::IpNet::new(ip, net.prefix_len())?))?;
    }
    cluster.serve(Wish::new("clash", foreign)).await?;
    eventually("an event says that the address is somebody's", PATIENCE, || async {
        let events = cluster.events("clash").await.map_err(|e| e.to_string())?;
        let said = events.iter().filter(|(reason, _)| reason == "AnnouncementFailed").count();
        if said >= 2 { Ok(()) } else { Err(format!("{events:?}")) }
    })
    .await?;
    cluster.metric_says("a", "purelb_lbnodeagent_vips{reason=\"ForeignAddress\"} 2").await?;
    for ip in foreign {
        let address = cluster.node("a").address(ip)?.expect("the operator's address");
        assert!(address.valid.is_none() && address.proto != Some(0x70), "untouched: {address:?}");
    }
    cluster.remove_service("clash").await?;

    // Leftovers of a run that crashed: swept, the operator's addresses are not.
    cluster.daemon("a").process().kill()?;
    let left = vips[2];
    let net = ipnet::IpNet::new(left, 24)?;
    cluster.node("a").add_address("eth0", &NewAddress::new(net).proto(0x70))?;
    cluster.daemon_mut("a").restart()?;
    cluster.daemon("a").ready(PATIENCE).await?;
    cluster
        .until("the leftover is swept", PATIENCE, || match cluster.node("a").address(left) {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await?;
    for ip in foreign {
        assert!(cluster.node("a").address(ip)?.is_some(), "{ip} is the operator's");
    }
    for vip in &hand {
        cluster.holder_where(*vip, "still on a", |n| n == "a").await?;
    }

    // The emergency brake: everything of ours goes, and nothing else.
    cluster.daemon("a").process().signal(Signal::SIGSTOP)?;
    let done = cluster.daemon("a").run_flag("--withdraw")?;
    assert!(done.status.success(), "{done:?}");
    for vip in hand {
        assert!(cluster.node("a").address(vip)?.is_none(), "{vip} is withdrawn");
    }
    for ip in foreign {
        assert!(cluster.node("a").address(ip)?.is_some(), "{ip} is the operator's");
    }
    Ok(())
}
