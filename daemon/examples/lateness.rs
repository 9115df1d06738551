//! How late the kernel ends an address that nobody gives more time: figures for
//! `make bench`, and the reason for the margin between renew deadline and duration (R3).
//!
//! Each sample is a network namespace of its own with one IPv4 and one IPv6 address that
//! the daemon's applier put there once, as a daemon leaves them that is killed right after
//! a renewal. When they go is what the daemon's monitor hears from the kernel. A namespace
//! to itself, since any change of an address makes the kernel look at all of them anew.
//!
//!   lateness [LIFETIME…]      seconds; default: 7 25 50
//!
//! Needs root.

#![allow(clippy::print_stdout, reason = "the table is what this program is for")]

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, unshare};
use purelb_core::Mono;
use purelb_core::config::kernel_lateness;
use purelb_core::messages::{AddressSpec, Input, KernelChange};
use purelbd::host::clock;
use purelbd::netlink::{AddressOwnership, KernelApplier, KernelMonitor, MonitorSettings};
use tokio::sync::mpsc;

/// Namespaces per lifetime.
const SAMPLES: u32 = 12;
/// What follows one after the other is not in step with the kernel's whole seconds.
const APART: Duration = Duration::from_millis(173);
const ADDRESSES: [&str; 2] = ["192.0.2.1/24", "2001:db8::1/64"];

fn main() -> Result<()> {
    let mut lifetimes: Vec<u32> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with("--"))
        .map(|a| a.parse())
        .collect::<Result<_, _>>()?;
    if lifetimes.is_empty() {
        lifetimes = vec![7, 25, 50];
    }
    let mut runs = Vec::new();
    for lifetime in &lifetimes {
        for sample in 0..SAMPLES {
            let lifetime = *lifetime;
            runs.push((lifetime, std::thread::spawn(move || alone(lifetime, APART * sample))));
        }
    }
    let mut seen: Vec<(u32, bool, Duration)> = Vec::new();
    for (lifetime, run) in runs {
        let Ok(late) = run.join() else { bail!("a sample panicked") };
        seen.extend(late?.into_iter().map(|(v6, late)| (lifetime, v6, late)));
    }
    println!("how late the kernel ends an address that nobody gives more time");
    for lifetime in lifetimes {
        for v6 in [false, true] {
            let mut late: Vec<Duration> = seen
                .iter()
                .filter(|(l, six, _)| *l == lifetime && *six == v6)
                .map(|(_, _, late)| *late)
                .collect();
            late.sort();
            println!(
                "  lifetime {lifetime:3} s  {}  {} expiries  median {:5.2} s  worst {:5.2} s  (room kept {:5.2} s)",
                if v6 { "IPv6" } else { "IPv4" },
                late.len(),
                late[late.len() / 2].as_secs_f64(),
                late[late.len() - 1].as_secs_f64(),
                kernel_lateness(Duration::from_secs(lifetime.into())).as_secs_f64(),
            );
        }
    }
    Ok(())
}

/// One sample: how late the addresses went, IPv4 (false) and IPv6 (true).
fn alone(lifetime: u32, wait: Duration) -> Result<Vec<(bool, Duration)>> {
    unshare(CloneFlags::CLONE_NEWNET).context("making a network namespace: run this as root")?;
    let ip = |arguments: &str| -> Result<()> {
        let status = Command::new("ip").args(arguments.split(' ')).status().context("running ip")?;
        if status.success() { Ok(()) } else { bail!("ip {arguments} failed") }
    };
    ip("link add a0 type veth peer name a1")?;
    ip("link set a0 up")?;
    ip("link set a1 up")?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
        let (sender, mut inputs) = mpsc::channel(1024);
        let monitor = KernelMonitor::open(&MonitorSettings::default(), AddressOwnership::kernel(), sender)?;
        let monitor = tokio::spawn(monitor.run());
        let Some(Input::Kernel(dump)) = inputs.recv().await else { bail!("the first input is a dump") };
        let shown = dump.links.iter().find(|l| l.name.as_str() == "a0").map(|l| l.index);
        let index = shown.context("the kernel shows no interface a0")?;
        tokio::time::sleep(wait).await;
        let put = |net: &str| -> Result<KernelChange> {
            Ok(KernelChange::Put(AddressSpec {
                index,
                net: net.parse()?,
                until: None,
                valid: Some(lifetime),
                preferred: None,
                no_prefix_route: true,
                no_dad: true,
            }))
        };
        let ops: Vec<(u64, KernelChange)> =
            (1..).zip(ADDRESSES.iter().map(|a| put(a)).collect::<Result<Vec<_>>>()?).collect();
        let answers = KernelApplier::open(AddressOwnership::kernel())?.apply(ops);
        let added: Mono = clock::now();
        if let Some(Input::Applied { result: Err(error), .. }) =
            answers.into_iter().find(|a| matches!(a, Input::Applied { result: Err(_), .. }))
        {
            bail!("not added: {error}");
        }
        let ours: Vec<ipnet::IpNet> = ADDRESSES.iter().map(|a| a.parse()).collect::<Result<_, _>>()?;
        let mut late = Vec::new();
        while late.len() < ours.len() {
            let Some(input) = inputs.recv().await else { bail!("the monitor ended") };
            if let Input::AddressGone { net, .. } = input
                && ours.contains(&net)
            {
                let lived = clock::now().since(added);
                late.push((net.addr().is_ipv6(), lived.saturating_sub(Duration::from_secs(lifetime.into()))));
            }
        }
        monitor.abort();
        Ok(late)
    })
}
