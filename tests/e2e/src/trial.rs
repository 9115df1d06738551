//! One fault, watched from all sides: the client, the wire, the kernels.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use purelb_core::Mono;
use purelb_core::election::score;
use purelb_kit::lab::{AddressWatch, Change, Observer, Prober, Probing, Report, Timeline, now};
use purelb_kit::wait::eventually;

use crate::cluster::{Cluster, PATIENCE};

/// Instruments on some addresses, from now until it is finished.
#[derive(Debug)]
pub struct Trial {
    pub vips: Vec<IpAddr>,
    pub wire: Observer,
    pub kernel: AddressWatch,
    prober: Prober,
    /// When the fault began; `begin` sets it.
    pub at: Mono,
}

impl Trial {
    /// Probes from host `client` until at least some were answered for each address, so
    /// that losses count from the first one on.
    pub async fn start(cluster: &Cluster<'_>, client: &str, vips: &[IpAddr]) -> Result<Self> {
        let (wire, kernel) = (cluster.lab.observe()?, cluster.lab.watch_addresses()?);
        let prober = cluster.node(client).probe(Probing::udp(vips.iter().copied()))?;
        let trial = Self { vips: vips.to_vec(), wire, kernel, prober, at: now() };
        trial.until_answered_by(|_| true).await?;
        Ok(trial)
    }

    /// From here on the fault is there.
    pub fn begin(&mut self) -> Mono {
        self.at = now();
        self.at
    }

    /// Waits until the last answer for every address is from a node that fits.
    pub async fn until_answered_by(&self, fits: impl Fn(&str) -> bool) -> Result<()> {
        eventually("every address is answered by whom we expect", PATIENCE, || {
            let report = self.prober.report();
            let owners: Vec<_> =
                self.vips.iter().map(|v| report.vip(*v).owner().map(str::to_owned)).collect();
            let good = owners.iter().all(|o| o.as_deref().is_some_and(&fits));
            async move { if good { Ok(()) } else { Err(owners) } }
        })
        .await
    }

    /// Ends the probes.
    pub fn finish(self) -> (Report, Instruments) {
        let Self { vips, wire, kernel, prober, at } = self;
        (prober.stop(), Instruments { vips, wire, kernel, at })
    }

    pub fn timeline(&self, vip: IpAddr) -> Result<Timeline> {
        self.kernel.owners_timeline(vip)
    }

    /// Waits until the address is on another host than `from`, and says on which and
    /// how long after the fault.
    pub async fn taken_over(&self, vip: IpAddr, from: &str) -> Result<(String, Duration)> {
        eventually(&format!("{vip} is taken over"), PATIENCE, || {
            let found =
                taken(&self.kernel, vip, from, self.at).ok_or_else(|| format!("{:?}", self.timeline(vip)));
            async { found }
        })
        .await
    }

    /// Waits until `host` has announced the address; how long after the fault.
    pub async fn announced(&self, vip: IpAddr, host: &str) -> Result<Duration> {
        eventually(&format!("{host} announces {vip}"), PATIENCE, || {
            let claims = self.wire.announcements(vip);
            let found = claims.iter().find(|c| c.at >= self.at && c.host.as_deref() == Some(host));
            let found = found.map(|c| c.at.since(self.at)).ok_or(claims.len());
            async move { found }
        })
        .await
    }

    /// Waits until the kernel of `host` has removed the address; how long after.
    pub async fn withdrawn(&self, vip: IpAddr, host: &str) -> Result<Duration> {
        eventually(&format!("{host} withdraws {vip}"), PATIENCE, || {
            let events = self.kernel.events(vip);
            let gone = events
                .iter()
                .find(|e| e.at >= self.at && e.host == host && e.change == Change::Removed)
                .map(|e| e.at.since(self.at));
            async move { gone.ok_or(events.len()) }
        })
        .await
    }
}

/// Lost probes by address: how many in a row, and when after the fault.
pub fn losses(report: &Report, at: Mono) -> String {
    let mut words = Vec::new();
    for (vip, one) in &report.vips {
        for loss in &one.losses {
            let when = if loss.first >= at {
                format!("+{:?}", loss.first.since(at))
            } else {
                format!("-{:?}", at.since(loss.first))
            };
            words.push(format!("{vip}: {} at {when}", loss.probes));
        }
    }
    words.join(", ")
}

/// What is left to read after the probes.
#[derive(Debug)]
pub struct Instruments {
    pub vips: Vec<IpAddr>,
    pub wire: Observer,
    pub kernel: AddressWatch,
    pub at: Mono,
}

impl Instruments {
    pub fn two_owners(&self) -> Result<Duration> {
        let each = self.vips.iter().map(|vip| Ok(self.kernel.owners_timeline(*vip)?.two_owner_time()));
        each.collect::<Result<Vec<_>>>().map(|all| all.into_iter().max().unwrap_or_default())
    }

    /// Whether two ever held one of them at the same time, however shortly.
    pub fn never_two(&self) -> Result<bool> {
        let mut never = true;
        for vip in &self.vips {
            never &= self.kernel.owners_timeline(*vip)?.two_owners().next().is_none();
        }
        Ok(never)
    }

    pub fn no_owner(&self) -> Result<Duration> {
        let each = self.vips.iter().map(|vip| Ok(self.kernel.owners_timeline(*vip)?.no_owner_time()));
        each.collect::<Result<Vec<_>>>().map(|all| all.into_iter().max().unwrap_or_default())
    }

    pub fn timelines(&self) -> Result<String> {
        let each = self.vips.iter().map(|vip| Ok(self.kernel.owners_timeline(*vip)?.to_string()));
        each.collect::<Result<Vec<_>>>().map(|all| all.join(" "))
    }
}

fn taken(kernel: &AddressWatch, vip: IpAddr, from: &str, at: Mono) -> Option<(String, Duration)> {
    let events = kernel.events(vip);
    let taken = events.iter().find(|e| e.at >= at && e.host != from && e.change == Change::Set);
    taken.map(|e| (e.host.clone(), e.at.since(at)))
}

impl Cluster<'_> {
    /// Addresses of both families in the lab's first segment, all of which `winner` wins
    /// among these nodes: `count` of each, those after `skip` others.
    pub fn won_by(&self, winner: &str, among: &[&str], count: usize, skip: usize) -> Result<Vec<IpAddr>> {
        let names: Vec<(&str, String)> = among.iter().map(|n| (*n, self.node_name(n))).collect();
        let mut found = Vec::new();
        let segment = self.lab.segments().first().context("a lab with a segment")?;
        for net in &segment.nets {
            let candidates = (100..u32::from(u16::MAX)).map(|n| match net {
                ipnet::IpNet::V4(net) => IpAddr::V4((u32::from(net.network()) + n).into()),
                ipnet::IpNet::V6(net) => IpAddr::V6((u128::from(net.network()) + u128::from(n)).into()),
            });
            let won = candidates.filter(|ip| {
                let key = ip.to_string();
                let best = names.iter().min_by_key(|(_, name)| score(name, &key));
                best.is_some_and(|(name, _)| *name == winner)
            });
            found.extend(won.filter(|ip| net.contains(ip)).skip(skip).take(count));
        }
        Ok(found)
    }
}
