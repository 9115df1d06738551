//! A member as the Go agents are: their election, their Lease, their addresses.
//!
//! What they do, and what they do not:
//! - The winner of an address is the lowest SHA-256(node "#" address) among all Leases
//!   that have not run out, by the wall clock of the one who looks: `renewTime` plus
//!   duration against its own time. `purelb.io/draining`, `purelb.io/announced`, Node
//!   taints and handoffs are unknown to them.
//! - What they win they take at once, what they lose they drop at once, whatever the other
//!   side does.
//! - Where they have an address they say so in its slot on the Service; a slot of another
//!   that has lost it they replace.
//! - They renew with GET and PUT every half duration. Three failures in a row, and they
//!   count as winner of nothing.
//! - Killed, they leave their addresses behind, for as long as these last (300 s).
//!
//! The addresses are real ones, put into the node's kernel, which answers for them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{Stream, StreamExt};
use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, ResourceExt};
use purelb_api::{names, slots};
use purelb_core::election::score;
use purelb_core::facts::AnnouncingSlot;
use purelb_core::{Family, IfName, NodeName, Vip};
use purelb_kit::controlplane::{ServiceAccount, manifests};
use purelb_kit::lab::{AddressFlags, NewAddress, Node};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;

const DURATION: Duration = Duration::from_secs(10);
const FAILURES: u32 = 3;
/// How long their addresses last without being renewed.
const VALID: u32 = 300;
const PREFIX: &str = "purelb-node-";

/// Runs until it is stopped, or dropped: then it is gone as after a SIGKILL.
#[derive(Debug)]
pub struct OlderMember {
    task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
}

impl OlderMember {
    /// On a node of the lab that has no daemon. `skew` is what its clock is off by.
    pub async fn start(cluster: &Cluster<'_>, name: &str, skew: SignedDuration) -> Result<Self> {
        let node = cluster.node(name);
        let port = node.ports().first().cloned().context("a node on a segment")?;
        let owner =
            cluster.nodes().get(&cluster.node_name(name)).await?.uid().context("a Node with a UID")?;
        let agent = Agent {
            leases: cluster.leases(),
            services: Api::namespaced(account(cluster).await?, &cluster.namespace),
            class: cluster.class.clone(),
            lease: cluster.lease_name(name),
            name: cluster.node_name(name),
            owner,
            subnets: port.addresses.iter().map(IpNet::trunc).collect(),
            dev: port.dev,
            node,
            skew,
            failures: 0,
            held: BTreeSet::new(),
        };
        agent.create_lease().await?;
        let (stop, stopped) = oneshot::channel();
        Ok(Self { task: tokio::spawn(agent.run(stopped)), stop: Some(stop) })
    }

    /// An orderly end: it withdraws, then deletes its Lease.
    pub async fn stop(mut self) -> Result<()> {
        if let Some(stop) = self.stop.take() {
            // Gone already is what we want.
            let _ = stop.send(());
        }
        (&mut self.task).await.context("the older member's task")
    }
}

impl Drop for OlderMember {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The account their manifests have, which the policies know.
async fn account(cluster: &Cluster<'_>) -> Result<Client> {
    let (namespace, name) = (&cluster.namespace, "lbnodeagent");
    let rbac = "rbac.authorization.k8s.io";
    let objects = [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role",
            "metadata": {"name": name, "namespace": namespace},
            "rules": [{"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch", "patch"]}]}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]}),
    ];
    manifests::apply(&cluster.client, &objects).await?;
    cluster.plane.client_for(&ServiceAccount::new(namespace, name)).await
}

struct Agent {
    leases: Api<Lease>,
    services: Api<Service>,
    class: String,
    lease: String,
    name: String,
    owner: String,
    subnets: Vec<IpNet>,
    dev: String,
    node: Node,
    skew: SignedDuration,
    failures: u32,
    held: BTreeSet<IpAddr>,
}

impl Agent {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let mut leases = std::pin::pin!(changes(self.leases.clone()));
        let mut services = std::pin::pin!(changes(self.services.clone()));
        let mut renewals = tokio::time::interval(DURATION / 2);
        // Their informers show everything anew once per duration: so they see what ran out.
        let mut resync = tokio::time::interval(DURATION);
        loop {
            tokio::select! {
                _ = &mut stopped => break,
                _ = renewals.tick() => {
                    self.failures = if self.renew().await.is_ok() { 0 } else { self.failures + 1 };
                    if self.failures < FAILURES { continue }
                }
                _ = resync.tick() => {}
                Some(()) = leases.next() => {}
                Some(()) = services.next() => {}
            }
            if let Err(error) = self.reconcile().await {
                eprintln!("the older member on {}: {error:#}", self.name);
            }
        }
        let held: Vec<IpAddr> = self.held.iter().copied().collect();
        held.into_iter().for_each(|ip| self.withdraw(ip));
        let _ = self.leases.delete(&self.lease, &DeleteParams::default()).await;
    }

    fn now(&self) -> Timestamp {
        Timestamp::now() + self.skew
    }

    /// Everything there is, decided anew.
    async fn reconcile(&mut self) -> Result<()> {
        let leases = self.leases.list(&ListParams::default()).await?;
        let services = self.services.list(&ListParams::default()).await?;
        let wanted = services.items.iter().filter(|s| self.ours(s)).flat_map(ingress);
        let won: Vec<IpAddr> =
            wanted.filter(|ip| self.winner(&leases.items, *ip) == Some(&self.name)).collect();
        let lost: Vec<IpAddr> = self.held.iter().filter(|ip| !won.contains(ip)).copied().collect();
        lost.into_iter().for_each(|ip| self.withdraw(ip));
        for ip in won {
            self.take(ip)?;
        }
        for service in services.items.iter().filter(|s| self.ours(s)) {
            self.say(service).await?;
        }
        Ok(())
    }

    /// Writes the slots of what it holds, if they are not there.
    async fn say(&self, service: &Service) -> Result<()> {
        let ips = ingress(service);
        let held = ips.iter().filter(|ip| self.held.contains(ip)).map(|ip| Vip::new(*ip));
        let slot = AnnouncingSlot { node: NodeName::new(&self.name)?, interface: IfName::new(&self.dev)? };
        let ours: BTreeMap<Vip, AnnouncingSlot> = held.map(|vip| (vip, slot.clone())).collect();
        let mut annotations = serde_json::Map::new();
        for family in [Family::V4, Family::V6] {
            let key = names::announcing(family);
            let now = service.annotations().get(key).map(String::as_str).unwrap_or_default();
            let text = slots::merge(now, family, &ours);
            if text != now {
                annotations.insert(key.to_owned(), json!(text));
            }
        }
        if annotations.is_empty() {
            return Ok(());
        }
        let version = service.resource_version();
        let patch = json!({"metadata": {"resourceVersion": version, "annotations": annotations}});
        let params = PatchParams::default();
        match self.services.patch(&service.name_any(), &params, &Patch::Merge(patch)).await {
            // Changed or gone meanwhile: the watch shows it, and it is looked at again.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
            other => other.map(drop).context("writing a slot"),
        }
    }

    fn ours(&self, service: &Service) -> bool {
        let class = service.spec.as_ref().and_then(|s| s.load_balancer_class.as_ref());
        let local = service.annotations().get("purelb.io/pool-type").is_some_and(|t| t == "local");
        class == Some(&self.class) && local && service.annotations().contains_key("purelb.io/allocated-by")
    }

    fn winner<'l>(&self, leases: &'l [Lease], ip: IpAddr) -> Option<&'l str> {
        if self.failures >= FAILURES {
            return None;
        }
        let now = self.now();
        let live = leases.iter().filter(|lease| !expired(lease, now));
        let candidates = live.filter_map(|lease| {
            let node = lease.metadata.name.as_deref()?.strip_prefix(PREFIX)?;
            let subnets = lease.metadata.annotations.as_ref()?.get("purelb.io/subnets")?;
            let nets = subnets.split(',').filter_map(|text| text.parse::<IpNet>().ok());
            nets.into_iter().any(|net| net.contains(&ip)).then_some(node)
        });
        let key = ip.to_string();
        candidates.min_by_key(|node| score(node, &key))
    }

    /// With the prefix of the interface, without a route for it, and finite.
    fn take(&mut self, ip: IpAddr) -> Result<()> {
        let Some(net) = self.subnets.iter().find(|net| net.contains(&ip)) else { return Ok(()) };
        if self.held.contains(&ip) {
            return Ok(());
        }
        let address = NewAddress::new(IpNet::new(ip, net.prefix_len())?)
            .flags(AddressFlags::Noprefixroute)
            .lifetimes(VALID, if ip.is_ipv6() { 0 } else { VALID })
            .no_dad()
            .replace();
        self.node.add_address(&self.dev, &address)?;
        self.held.insert(ip);
        // As `sendgarp` has it.
        self.node.announce(&self.dev, ip)
    }

    fn withdraw(&mut self, ip: IpAddr) {
        self.held.remove(&ip);
        // A node without power has none.
        let _ = self.node.del_address(&self.dev, ip);
    }

    async fn create_lease(&self) -> Result<()> {
        let subnets: Vec<String> = self.subnets.iter().map(ToString::to_string).collect();
        let lease: Lease = serde_json::from_value(json!({
            "metadata": {
                "name": self.lease,
                "labels": {"app.kubernetes.io/name": "purelb", "app.kubernetes.io/component": "lbnodeagent"},
                "annotations": {
                    "purelb.io/subnets": subnets.join(","),
                    "purelb.io/instance": format!("older-{}", self.name),
                },
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Node", "name": self.name, "uid": self.owner,
                    "controller": false, "blockOwnerDeletion": false,
                }],
            },
            "spec": {
                "holderIdentity": self.name, "leaseDurationSeconds": DURATION.as_secs(),
                "renewTime": format!("{:.6}", self.now()),
            },
        }))?;
        match self.leases.create(&PostParams::default(), &lease).await {
            Err(kube::Error::Api(status)) if status.code == 409 => self.renew().await,
            other => other.map(drop).context("creating the Lease"),
        }
    }

    async fn renew(&self) -> Result<()> {
        let mut lease = self.leases.get(&self.lease).await?;
        let time = serde_json::from_value(json!(format!("{:.6}", self.now())))?;
        lease.spec.get_or_insert_default().renew_time = Some(time);
        self.leases.replace(&self.lease, &PostParams::default(), &lease).await?;
        Ok(())
    }
}

/// By the clock of whoever looks; both sides' clocks are in it.
fn expired(lease: &Lease, now: Timestamp) -> bool {
    let Some(spec) = &lease.spec else { return true };
    let (Some(renewed), Some(seconds)) = (&spec.renew_time, spec.lease_duration_seconds) else { return true };
    renewed.0 + SignedDuration::from_secs(seconds.into()) <= now
}

fn ingress(service: &Service) -> Vec<IpAddr> {
    let status = service.status.as_ref().and_then(|s| s.load_balancer.as_ref());
    let entries = status.and_then(|l| l.ingress.as_ref()).into_iter().flatten();
    entries.filter_map(|i| i.ip.as_ref()?.parse().ok()).collect()
}

/// One item per change; what changed is listed anew.
fn changes<K>(api: Api<K>) -> impl Stream<Item = ()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    watcher(api, watcher::Config::default()).filter_map(|event| async { event.ok().map(drop) })
}
