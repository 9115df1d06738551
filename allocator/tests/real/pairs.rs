//! Two replicas: one leads, the other takes over, and no address is given twice.

use std::time::Instant;

use anyhow::Result;
use nix::sys::signal::Signal;
use purelb_kit::controlplane::ServiceAccount;
use purelb_kit::embedded::Verb;
use purelb_kit::faults::Proxy;
use serde_json::json;

use crate::bursts::{all_served, create};
use crate::common::local;
use crate::plane::{Allocator, leader, own};

/// Patches of Services and of their statuses that reached the API server.
fn writes(proxy: &Proxy) -> u64 {
    let counted = proxy.counters().forwarded;
    let of = |resource: &str| counted.get(&(Verb::Patch, resource.to_owned())).copied().unwrap_or(0);
    of("services") + of("services/status")
}

#[tokio::test]
async fn the_leader_dies_in_the_middle_of_a_thousand_allocations() -> Result<()> {
    let (plane, c) = own().await?;
    c.namespace("thousand").await?;
    c.group("default", local(json!({"v4pool": {"pool": "10.0.0.0/20", "subnet": "10.0.0.0/20"}}))).await?;
    let first = Allocator::start(&plane, "first", &[]).await?;
    leader(&c, "first").await?;
    // What the second one writes is counted on its way.
    let proxy = Proxy::before_plane(&plane)?.tls(plane.ca())?.start().await?;
    let kubeconfig = plane.kubeconfig_for(&ServiceAccount::allocator(), proxy.url()).await?;
    let second = Allocator::start_with(&plane, "second", &kubeconfig, &[])?;
    let creating = {
        let c = c.clone();
        tokio::spawn(async move { create(&c, "thousand", 0..1000).await })
    };
    c.until_count("thousand", 300).await?;
    first.kill();
    let died = Instant::now();
    leader(&c, "second").await?;
    println!(
        "figure: takeover after SIGKILL of the leader | lease 3 s + retry | {} ms",
        died.elapsed().as_millis()
    );
    creating.await??;
    let before = all_served(&c, "thousand", 1000).await?;
    println!("figure: addresses given twice over 1,000 Services, the leader killed at 300 | 0 | 0");
    // Back, and paused in the middle of the next burst.
    let third = Allocator::start(&plane, "third", &[]).await?;
    let creating = {
        let c = c.clone();
        tokio::spawn(async move { create(&c, "thousand", 1000..1500).await })
    };
    c.until_count("thousand", 1100).await?;
    second.signal(Signal::SIGSTOP)?;
    let paused = Instant::now();
    leader(&c, "third").await?;
    // Longer than its Lease, or nobody else would lead; what it sent before has arrived.
    let (pause, sent) = (paused.elapsed(), writes(&proxy));
    assert!(sent > 0, "it was the one that wrote");
    second.signal(Signal::SIGCONT)?;
    creating.await??;
    let after = all_served(&c, "thousand", 1500).await?;
    let late = writes(&proxy) - sent;
    println!(
        "figure: writes to Services by a leader that wakes up after its Lease | 0 | {late} (paused {} ms in the middle of 500 Services)",
        pause.as_millis()
    );
    assert_eq!(late, 0, "an old leader does not write");
    assert!(before.iter().all(|(name, ip)| after[name] == *ip), "nobody's address changed");
    third.stop().await?;
    leader(&c, "second").await?;
    second.stop().await
}
