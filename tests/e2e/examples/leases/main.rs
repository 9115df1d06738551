//! What Leases cost the API server: members are played, the API server and its rules are
//! real. Each member renews its Lease three times in its duration, with a token bound to
//! its own Node, and watches everybody's, as the daemon does.
//!
//!   leases [table] [most]      default: both
//!
//! All of them share this machine's processors with the API server.

#![allow(clippy::print_stdout, reason = "the tables are what this program is for")]

mod member;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::PostParams;
use purelb_core::NodeName;
use purelb_e2e::{Served, Usage, own_plane};
use purelb_kit::controlplane::fixtures::node;
use purelb_kit::controlplane::{ControlPlane, ServiceAccount};
use purelb_kit::lab::now;

use member::{Member, Notes};

const SIZES: [usize; 5] = [3, 30, 100, 300, 1000];
const SECONDS: [u64; 2] = [10, 60];
/// As much of a Lease may pass without a renewal before addresses are let go.
const DEADLINE: f64 = 0.7;
/// How long is looked at, in renewals of each, and at least.
const RENEWALS: u32 = 2;
const AT_LEAST: Duration = Duration::from_secs(20);
/// Requests under way while Nodes and tokens are made.
const AT_ONCE: usize = 16;
/// A search ends where two sizes are this close.
const CLOSE: f64 = 1.1;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let mut wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    if wanted.is_empty() {
        wanted = ["table", "most"].map(str::to_owned).to_vec();
    }
    let plane = own_plane().await?;
    let mut members = Vec::new();
    println!(
        "  members  duration  renewals/min  watch events/s  renewal p50 / p99  seen by others p99  API server"
    );
    for part in wanted {
        match part.as_str() {
            "table" => {
                for seconds in SECONDS {
                    for count in SIZES {
                        enlist(&plane, &mut members, count).await?;
                        println!("{}", look(&plane, &members[..count], seconds).await?);
                    }
                }
            }
            "most" => {
                for seconds in SECONDS {
                    most(&plane, &mut members, seconds).await?;
                }
            }
            other => bail!("there is no '{other}': use table or most"),
        }
    }
    Ok(())
}

/// Doubles until it is too much, then halves the distance.
async fn most(plane: &ControlPlane, members: &mut Vec<Member>, seconds: u64) -> Result<()> {
    let (mut carried, mut refused) = (0, None);
    let mut count = 100;
    loop {
        enlist(plane, members, count).await?;
        let seen = look(plane, &members[..count], seconds).await?;
        println!("{seen}");
        if seen.carried() {
            carried = count;
        } else {
            refused = Some(count);
        }
        count = match refused {
            Some(refused) if refused as f64 <= carried as f64 * CLOSE || refused <= 10 => break,
            Some(refused) => carried.midpoint(refused),
            None => count * 2,
        };
    }
    println!("  largest cluster carried with Leases of {seconds} s: {carried} members");
    Ok(())
}

/// Makes Nodes and tokens until there are so many members.
async fn enlist(plane: &ControlPlane, members: &mut Vec<Member>, count: usize) -> Result<()> {
    let nodes: Api<Node> = Api::all(plane.admin()?);
    let account = ServiceAccount::node_daemon();
    let made = stream::iter(members.len()..count).map(|nth| {
        let (nodes, account) = (nodes.clone(), account.clone());
        async move {
            let name = NodeName::new(&format!("worker-{nth:04}"))?;
            let made = nodes.create(&PostParams::default(), &node(name.as_str())).await?;
            let token = plane.token_for_node(&account, &made).await?;
            let client = || plane.client_with_token(&plane.url(), &token);
            Member::new(name, made.metadata.uid.unwrap_or_default(), nth, client()?, client()?)
        }
    });
    members.extend(made.buffered(AT_ONCE).try_collect::<Vec<_>>().await?);
    Ok(())
}

/// What was seen of so many members.
struct Seen {
    members: usize,
    seconds: u64,
    minutes: f64,
    requests: f64,
    events: f64,
    notes: Arc<Notes>,
    cpu: f64,
    resident_mib: f64,
}

impl Seen {
    /// Nobody would have let go of its addresses, and nobody was taken for dead.
    fn carried(&self) -> bool {
        let duration = self.seconds as f64;
        let (between, unseen) = (self.notes.longest_between().as_secs_f64(), self.notes.longest_unseen());
        self.notes.failed() == 0 && between < duration * DEADLINE && unseen.as_secs_f64() < duration
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let millis = |time: Duration| time.as_secs_f64() * 1000.0;
        let (middle, late) = self.notes.renewal_times();
        write!(
            f,
            "  {:>7}  {:>6} s  {:>12.0}  {:>14.0}  {:>7.1} / {:.0} ms  {:>15.0} ms  {:>5.0} % of a core, {:.0} MiB; {}",
            self.members,
            self.seconds,
            self.requests / self.minutes,
            self.events / self.minutes / 60.0,
            millis(middle),
            millis(late),
            millis(self.notes.seen_late()),
            self.cpu,
            self.resident_mib,
            if self.carried() {
                "carried".to_owned()
            } else {
                format!(
                    "NOT carried: {} failed ({}), {:.1} s between two renewals, {:.1} s unseen",
                    self.notes.failed(),
                    self.notes.first_failure().unwrap_or_default(),
                    self.notes.longest_between().as_secs_f64(),
                    self.notes.longest_unseen().as_secs_f64()
                )
            }
        )
    }
}

async fn look(plane: &ControlPlane, members: &[Member], seconds: u64) -> Result<Seen> {
    let client = plane.admin()?;
    let pid = plane.apiserver_pid().context("an API server")?;
    let period = Duration::from_secs(seconds) / 3;
    let notes = Arc::new(Notes::default());
    let version = member::newest(&client).await?;
    let tasks: Vec<_> = members
        .iter()
        .enumerate()
        .flat_map(|(nth, member)| {
            // Spread over one period, as daemons are that started one by one.
            let first = period.mul_f64(nth as f64 / members.len() as f64);
            let renew = tokio::spawn(member.clone().renew(period, first, seconds, notes.clone()));
            [renew, tokio::spawn(member.clone().watch(version.clone(), notes.clone()))]
        })
        .collect();
    // The first round creates Leases and opens connections.
    tokio::time::sleep(period + period / 4).await;
    notes.forget();
    let (before, used, began) = (Served::of(&client).await?, Usage::of(pid)?, now());
    tokio::time::sleep(AT_LEAST.max(period * RENEWALS)).await;
    let (took, after, usage) = (now().since(began), Served::of(&client).await?, Usage::of(pid)?);
    let told = notes.close();
    for task in &tasks {
        task.abort();
    }
    for task in tasks {
        // Each ends by being aborted.
        let _ = task.await;
    }
    Ok(Seen {
        members: members.len(),
        seconds,
        minutes: took.as_secs_f64() / 60.0,
        requests: after.patches - before.patches,
        events: told as f64,
        notes,
        cpu: (usage.cpu - used.cpu).as_secs_f64() / took.as_secs_f64() * 100.0,
        resident_mib: usage.rss_kib as f64 / 1024.0,
    })
}
