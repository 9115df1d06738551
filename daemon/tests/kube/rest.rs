//! What the API server bears of us when nothing happens.

use std::time::Duration;

use anyhow::Result;
use purelb_core::config::LeaseTimers;
use purelb_core::messages::LeaseMode;
use purelb_kit::embedded::Verb;
use purelbd::kube::KubeTuning;

use crate::bench::{Bench, allocated};

/// Renewals, and watches opened anew: nothing else. Counted over the requests of many
/// renewals, since what is asked does not depend on the clock; then put on the clock.
#[tokio::test]
async fn one_request_per_renewal_and_watches_that_last() -> Result<()> {
    let bench = Bench::furnished(Default::default(), async |admin| {
        for i in 0..100 {
            allocated(admin, &format!("s{i}"), &[&format!("192.0.2.{i}")]).await?;
        }
        Ok(())
    })
    .await?;
    bench.write(1, LeaseMode::Create).await?.unwrap();
    let start = bench.all_requests();
    let renewals = 18 * 3;
    for seq in 0..renewals {
        bench.write(seq + 2, LeaseMode::Renew).await?.unwrap();
    }
    let last = bench.my_lease().await?.spec.and_then(|s| s.renew_time).map(|t| t.0.to_string());
    bench
        .view
        .holds("the last echo", |s| s.leases.get("node-1").map(|l| &l.renewal) == last.as_ref())
        .await?;
    let asked = bench.all_requests() - start;
    assert_eq!(asked, renewals, "{:?}", bench.api.requests());

    let minute = Duration::from_secs(60);
    let per_minute = minute.as_secs_f64() / LeaseTimers::default().renew_every().as_secs_f64();
    let watches: u64 = ["services", "servicegroups", "lbnodeagents", "nodes", "leases"]
        .map(|r| bench.requests(Verb::Watch, r))
        .iter()
        .sum();
    assert_eq!(watches, 5, "one opening each");
    // Each lasts between half of this and all of it.
    let reopened =
        watches as f64 * minute.as_secs_f64() / (KubeTuning::default().watch_lasts.as_secs_f64() * 0.75);
    println!(
        "at rest with 100 Services: {asked} requests for {renewals} renewals; \
         {per_minute:.1} + {reopened:.2} requests per minute (bar 18)"
    );
    assert!(per_minute + reopened < 18.5);
    Ok(())
}
