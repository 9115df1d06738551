//! What the API server says it did.

use anyhow::{Context, Result};
use kube::Client;

/// Requests answered and watch events sent, about the kinds that a daemon uses.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    pub requests: f64,
    /// Of these, changes: what a renewal is.
    pub patches: f64,
    pub events: f64,
}

const KINDS: [&str; 7] =
    ["leases", "services", "endpointslices", "servicegroups", "lbnodeagents", "nodes", "events"];

impl Served {
    /// From the server's own metrics. What it asks itself over loopback, and what its
    /// controllers ask, counts, too: subtract what an empty cluster costs.
    pub async fn of(client: &Client) -> Result<Self> {
        let request = http::Request::get("/metrics").body(Vec::new()).context("a request")?;
        let text = client.request_text(request).await.context("the API server's metrics")?;
        Ok(Self {
            requests: sum(&text, "apiserver_request_total{", "", &OTHERS),
            patches: sum(&text, "apiserver_request_total{", "verb=\"PATCH\"", &[]),
            events: sum(&text, "apiserver_watch_events_total{", "", &[]),
        })
    }
}

/// How controllers keep their own Leases, every two seconds; a daemon does neither.
const OTHERS: [&str; 2] = ["verb=\"GET\"", "verb=\"PUT\""];

fn sum(text: &str, series: &str, with: &str, without: &[&str]) -> f64 {
    let ours = text.lines().filter(|line| {
        line.starts_with(series)
            && line.contains(with)
            && KINDS.iter().any(|kind| line.contains(&format!("resource=\"{kind}\"")))
            && !without.iter().any(|label| line.contains(label))
    });
    ours.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}
