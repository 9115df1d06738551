//! Two replicas: one leads, the other takes over, and no address is given twice.

use anyhow::Result;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::bursts::{all_served, create};
use crate::common::local;
use crate::plane::{Allocator, leader, own};

#[tokio::test]
async fn the_leader_dies_in_the_middle_of_a_thousand_allocations() -> Result<()> {
    let (plane, c) = own().await?;
    c.namespace("thousand").await?;
    c.group("default", local(json!({"v4pool": {"pool": "10.0.0.0/20", "subnet": "10.0.0.0/20"}}))).await?;
    let first = Allocator::start(&plane, "first", &[]).await?;
    leader(&c, "first").await?;
    let second = Allocator::start(&plane, "second", &[]).await?;
    let creating = {
        let c = c.clone();
        tokio::spawn(async move { create(&c, "thousand", 0..1000).await })
    };
    c.until_count("thousand", 300).await?;
    first.kill();
    let died = std::time::Instant::now();
    leader(&c, "second").await?;
    println!(
        "figure: takeover after SIGKILL of the leader | lease 3 s + retry | {} ms",
        died.elapsed().as_millis()
    );
    creating.await??;
    let before = all_served(&c, "thousand", 1000).await?;
    // Back, and paused in the middle of the next burst.
    let third = Allocator::start(&plane, "third", &[]).await?;
    let creating = {
        let c = c.clone();
        tokio::spawn(async move { create(&c, "thousand", 1000..1500).await })
    };
    c.until_count("thousand", 1100).await?;
    second.signal(Signal::SIGSTOP)?;
    leader(&c, "third").await?;
    second.signal(Signal::SIGCONT)?;
    creating.await??;
    let after = all_served(&c, "thousand", 1500).await?;
    assert!(before.iter().all(|(name, ip)| after[name] == *ip), "nobody's address changed");
    third.stop().await?;
    leader(&c, "second").await?;
    second.stop().await
}
