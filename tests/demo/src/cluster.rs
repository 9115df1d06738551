//! The demonstration's cluster: lab, API server, allocator, daemons, prober.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use purelb_api::{LBNodeAgent, ServiceGroup};
use purelb_kit::controlplane::fixtures;
use purelb_kit::embedded::EmbeddedApi;
use purelb_kit::lab::{API_ADDRESS, API_PORT, AddressWatch, Lab, Prober, Probing, Process, Report, Timeline};
use purelb_kit::wait::eventually;
use serde_json::json;

use crate::screen::Row;

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
const NAMESPACE: &str = "purelb-system";

pub struct Cluster {
    // Dropped first: the processes, then what they stand on.
    daemons: BTreeMap<String, Process>,
    allocator: std::process::Child,
    prober: Option<Prober>,
    addresses: AddressWatch,
    /// Service name by address.
    vips: BTreeMap<IpAddr, String>,
    client: Client,
    kubeconfig: PathBuf,
    programs: PathBuf,
    lab: Lab,
    _api: EmbeddedApi,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It may have ended by itself; either way it shall not outlive us.
        let _ = self.allocator.kill();
        let _ = self.allocator.wait();
    }
}

impl Cluster {
    pub async fn start() -> Result<Self> {
        let programs = programs()?;
        let api = EmbeddedApi::start().await?;
        let mut builder =
            Lab::builder().segment("lan", ["192.0.2.0/24", "2001:db8:1::/64"]).api(api.address());
        for node in NODES {
            builder = builder.node(node, ["lan"]);
        }
        let lab = builder.client("client", ["lan"]).build()?;
        let client = api.client("demo")?;
        create_objects(&client).await?;
        let kubeconfig = api.kubeconfig("operator", lab.dir())?;
        let allocator = start_allocator(&programs, &api.kubeconfig("allocator", lab.dir())?, lab.dir())?;
        let mut daemons = BTreeMap::new();
        for node in NODES {
            daemons.insert(node.to_owned(), start_daemon(&programs, &lab, node)?);
        }
        let addresses = lab.watch_addresses()?;
        Ok(Self {
            daemons,
            allocator,
            prober: None,
            addresses,
            vips: BTreeMap::new(),
            client,
            kubeconfig,
            programs,
            lab,
            _api: api,
        })
    }

    pub fn describe(&self) -> String {
        format!(
            "Nodes: {}. Segment: 192.0.2.0/24 and 2001:db8:1::/64. An API server, the allocator, and purelbd on every node are running. The ServiceGroup skips duplicate address detection for IPv6, so that its addresses can be used at once.",
            NODES.join(", ")
        )
    }

    /// Creates the Services and waits for the allocator to give them their addresses.
    pub async fn create_services(&mut self, count: usize) -> Result<()> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), "default");
        for n in 1..=count {
            let service: Service = fixtures::object(json!({
                "metadata": {"namespace": "default", "name": format!("web-{n}")},
                "spec": {
                    "type": "LoadBalancer",
                    "loadBalancerClass": fixtures::CLASS,
                    "ipFamilyPolicy": "PreferDualStack",
                    "ipFamilies": ["IPv4", "IPv6"],
                    "ports": [{"name": "http", "protocol": "TCP", "port": 80}],
                },
            }));
            services.create(&PostParams::default(), &service).await?;
        }
        let allocated =
            eventually("every Service has its two addresses", Duration::from_secs(20), || async {
                let list = services.list(&ListParams::default()).await.map_err(|e| e.to_string())?;
                let found: BTreeMap<IpAddr, String> = list
                    .items
                    .iter()
                    .flat_map(|s| ingress(s).into_iter().map(|ip| (ip, s.name_any())))
                    .collect();
                if found.len() == 2 * count { Ok(found) } else { Err(format!("{found:?}")) }
            });
        self.vips = allocated.await.with_context(|| self.logs())?;
        Ok(())
    }

    pub fn vips(&self) -> Vec<IpAddr> {
        self.vips.keys().copied().collect()
    }

    pub fn start_probing(&mut self) -> Result<()> {
        self.prober = Some(self.lab.node("client").probe(Probing::udp(self.vips()))?);
        Ok(())
    }

    pub fn stop_probing(&mut self) -> Option<Report> {
        self.prober.take().map(Prober::stop)
    }

    fn live_nodes(&self) -> impl Iterator<Item = &str> {
        NODES.into_iter().filter(|n| self.daemons.contains_key(*n))
    }

    /// Addresses of ours in a node's kernel.
    pub fn held_by(&self, node: &str) -> Result<Vec<IpAddr>> {
        let addresses = self.lab.node(node).addresses()?;
        Ok(addresses.iter().map(|a| a.net.addr()).filter(|ip| self.vips.contains_key(ip)).collect())
    }

    pub fn all_owned(&self) -> Result<bool> {
        Ok(self.rows()?.iter().all(|row| row.on.len() == 1))
    }

    /// The node that holds most, and the first of those.
    pub fn busiest(&self) -> Result<String> {
        let mut best = (0, String::new());
        for node in self.live_nodes() {
            let held = self.held_by(node)?.len();
            if held > best.0 {
                best = (held, node.to_owned());
            }
        }
        ensure!(best.0 > 0, "no node holds an address");
        Ok(best.1)
    }

    pub fn rows(&self) -> Result<Vec<Row>> {
        let report = self.prober.as_ref().map(Prober::report);
        let mut on: BTreeMap<IpAddr, Vec<String>> = BTreeMap::new();
        for node in self.live_nodes() {
            for ip in self.held_by(node)? {
                on.entry(ip).or_default().push(node.to_owned());
            }
        }
        let row = |(ip, service): (&IpAddr, &String)| {
            let seen = report.as_ref().map(|r| r.vip(*ip));
            Row {
                service: service.clone(),
                vip: *ip,
                on: on.get(ip).cloned().unwrap_or_default(),
                answers: seen.and_then(|s| s.owner()).unwrap_or("-").to_owned(),
                sent: seen.map_or(0, |s| s.sent),
                lost: seen.map_or(0, |s| s.lost),
            }
        };
        Ok(self.vips.iter().map(row).collect())
    }

    /// Who held each address since the begin, by the kernels' own word.
    pub fn timelines(&self) -> Result<Vec<Timeline>> {
        self.vips().into_iter().map(|vip| self.addresses.owners_timeline(vip)).collect()
    }

    /// How long a node's Lease is good for without being renewed.
    pub async fn lease_of(&self, node: &str) -> Result<Duration> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let lease = leases.get(&format!("purelb-node-{node}")).await?;
        let seconds = lease.spec.and_then(|s| s.lease_duration_seconds).context("a Lease has a duration")?;
        Ok(Duration::from_secs(u64::try_from(seconds)?))
    }

    /// Runs `purelbctl` against a node's daemon, as an operator on that node would.
    pub async fn purelbctl(&self, node: &str, arguments: &[&str]) -> Result<String> {
        let socket = self.lab.node(node).dir().join("control.sock");
        let output = tokio::process::Command::new(self.programs.join("purelbctl"))
            .arg("--socket")
            .arg(socket)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .await?;
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            bail!("purelbctl {} on {node}: {}\n{said}\n{}", arguments.join(" "), output.status, self.logs());
        }
        Ok(said)
    }

    pub fn power_off(&mut self, node: &str) -> Result<()> {
        self.lab.node(node).power_off()?;
        self.daemons.remove(node);
        Ok(())
    }

    /// The last words of every program, for a failure.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        let allocator = std::fs::read_to_string(self.lab.dir().join("allocator.log")).unwrap_or_default();
        let daemons = self.daemons.iter().map(|(name, process)| (name.clone(), process.log()));
        for (name, log) in daemons.chain([("allocator".to_owned(), allocator)]) {
            let lines: Vec<&str> = log.lines().collect();
            let _ = writeln!(text, "--- {name}\n{}", lines[lines.len().saturating_sub(15)..].join("\n"));
        }
        text
    }

    /// What to type while it is kept running.
    pub fn hands_on(&self) -> String {
        let ctl = self.programs.join("purelbctl");
        let mut text =
            String::from("\nIt keeps running; Ctrl-C ends it. To look around, in another shell as root:\n");
        for node in self.live_nodes() {
            let at = self.lab.node(node);
            let _ = writeln!(text, "  {node}: ip netns exec {} ip addr show eth0", at.netns().name());
            let _ = writeln!(
                text,
                "          {} --socket {} status",
                ctl.display(),
                at.dir().join("control.sock").display()
            );
            let _ = writeln!(text, "          tail -f {}", self.daemons[node].log_path().display());
        }
        let client = self.lab.node("client");
        let _ = writeln!(text, "  client: ip netns exec {} ip neigh", client.netns().name());
        let _ = writeln!(
            text,
            "  cluster: kubectl --kubeconfig {} get svc,leases,sg -A",
            self.kubeconfig.display()
        );
        text
    }
}

/// The shipped programs, built beside this one.
fn programs() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let directory = here.parent().context("a program lies in a directory")?.to_owned();
    for program in ["purelbd", "purelb-allocator", "purelbctl"] {
        ensure!(
            directory.join(program).exists(),
            "{program} is not in {}: run 'make demo', which builds it",
            directory.display()
        );
    }
    Ok(directory)
}

fn ingress(service: &Service) -> Vec<IpAddr> {
    let status = service.status.as_ref().and_then(|s| s.load_balancer.as_ref());
    let entries = status.and_then(|l| l.ingress.as_ref()).into_iter().flatten();
    entries.filter_map(|i| i.ip.as_ref()?.parse().ok()).collect()
}

/// Nodes, one LBNodeAgent for all of them, one ServiceGroup.
async fn create_objects(client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    for name in NODES {
        nodes.create(&PostParams::default(), &fixtures::node(name)).await?;
    }
    let agents: Api<LBNodeAgent> = Api::namespaced(client.clone(), NAMESPACE);
    let agent = fixtures::object(json!({
        "apiVersion": "purelb.io/v2", "kind": "LBNodeAgent",
        "metadata": {"namespace": NAMESPACE, "name": "default"},
        "spec": {"local": {"localInterface": "default"}},
    }));
    agents.create(&PostParams::default(), &agent).await?;
    let groups: Api<ServiceGroup> = Api::namespaced(client.clone(), NAMESPACE);
    let group = fixtures::object(json!({
        "apiVersion": "purelb.io/v2", "kind": "ServiceGroup",
        "metadata": {"namespace": NAMESPACE, "name": "default"},
        "spec": {"local": {
            "v4pool": {"subnet": "192.0.2.0/24", "pool": "192.0.2.100-192.0.2.120"},
            "v6pool": {"subnet": "2001:db8:1::/64", "pool": "2001:db8:1::f:0/112"},
            "skipIPv6DAD": true,
        }},
    }));
    groups.create(&PostParams::default(), &group).await?;
    Ok(())
}

fn start_allocator(programs: &Path, kubeconfig: &Path, directory: &Path) -> Result<std::process::Child> {
    let log = std::fs::File::create(directory.join("allocator.log"))?;
    Command::new(programs.join("purelb-allocator"))
        .env("KUBECONFIG", kubeconfig)
        .env("PURELB_METRICS_ADDRESS", "127.0.0.1:0")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("starting the allocator")
}

/// The daemon of one node, in its namespace, with a configuration file as on a real one.
fn start_daemon(programs: &Path, lab: &Lab, name: &str) -> Result<Process> {
    let node = lab.node(name);
    let dir = node.dir();
    let kubeconfig = dir.join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "demo",
        "clusters": [{"name": "demo", "cluster": {"server": format!("http://{API_ADDRESS}:{API_PORT}")}}],
        "users": [{"name": name, "user": {"token": name}}],
        "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": name}}],
    });
    std::fs::write(&kubeconfig, config.to_string())?;
    let file = dir.join("purelbd.toml");
    let text = format!(
        "[node]\nname = \"{name}\"\n[kubernetes]\nkubeconfig = \"{}\"\n[control]\nsocket = \"{}\"\nsocket_group = \"\"\n\
         [metrics]\nlisten = \"127.0.0.1:7472\"\n[paths]\nstate = \"{}\"\nruntime = \"{}\"\n",
        kubeconfig.display(),
        dir.join("control.sock").display(),
        dir.join("state").display(),
        dir.join("run").display()
    );
    std::fs::write(&file, text)?;
    let mut command = Command::new(programs.join("purelbd"));
    command.arg("--config").arg(&file).env_clear().stdin(Stdio::null());
    node.spawn("purelbd", command)
}
