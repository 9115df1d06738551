//! A cluster whose nodes boot systemd, and what its clients see.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node as NodeObject, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use purelb_kit::controlplane::fixtures::{allocated, node, service, status_with};
use purelb_kit::controlplane::manifests::apply;
use purelb_kit::controlplane::process::Process;
use purelb_kit::controlplane::{ControlPlane, ServiceAccount};
use purelb_kit::lab::{API_ADDRESS, API_PORT, AddressWatch, Lab, Prober, Probing, Report, Timeline};
use purelb_kit::wait::eventually;
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::cargo::programs;
use crate::guide;
use crate::machine::{Machine, PACKAGES};
use crate::packages::Packages;
use crate::prepared::Prepared;

/// Long enough for a busy machine; what is measured is measured apart.
pub const PATIENCE: Duration = Duration::from_secs(40);
const NAMESPACE: &str = "purelb-system";
const SEGMENT: &str = "lan";
const SUBNET: &str = "192.0.2.0/24";

/// One for all tests of a binary, with purelb's objects as the guide installs them.
async fn plane() -> Result<&'static ControlPlane> {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    PLANE
        .get_or_try_init(|| async {
            let plane = ControlPlane::builder().also_reached_as(&API_ADDRESS.to_string()).start().await?;
            let kubectl = Kubectl::of(&plane)?;
            let manifests = format!("{}/usr/share/purelb/k8s", Packages::get()?.ctl().display());
            kubectl.sh(&guide::block("cluster")?, &[("MANIFESTS", &manifests)])?;
            kubectl.sh(&guide::block("pool")?, &[("SUBNET", SUBNET), ("POOL", "192.0.2.200-192.0.2.250")])?;
            kubectl.sh(&guide::block("allocator")?, &[("IMAGE", "registry.invalid/purelb-allocator:1")])?;
            Ok(plane)
        })
        .await
}

/// An administrator's shell, with a kubeconfig, kubectl and the shipped purelbctl.
#[derive(Debug)]
pub struct Kubectl {
    kubeconfig: PathBuf,
    directory: tempfile::TempDir,
    path: String,
}

impl Kubectl {
    fn of(plane: &ControlPlane) -> Result<Self> {
        let kubectl = Prepared::find()?.kubectl;
        let tools = kubectl.parent().context("kubectl is in a directory")?.display().to_string();
        let ctl = Packages::get()?.ctl().join("usr/bin");
        let path = format!("{}:{tools}:{}", ctl.display(), std::env::var("PATH").unwrap_or_default());
        let kubeconfig = plane.admin_kubeconfig(&plane.url())?;
        Ok(Self { kubeconfig, directory: tempfile::tempdir()?, path })
    }

    /// Runs a script of the guide's in a directory of its own.
    pub fn sh(&self, script: &str, variables: &[(&str, &str)]) -> Result<String> {
        let done = Command::new("sh")
            .args(["-euc", script])
            .current_dir(&self.directory)
            .env("PATH", &self.path)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.directory.path())
            .envs(variables.iter().copied())
            .output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(done.status.success(), "{script}\n{}{}", text(&done.stdout), text(&done.stderr));
        Ok(text(&done.stdout))
    }

    fn read(&self, name: &str) -> Result<String> {
        fs::read_to_string(self.directory.path().join(name))
            .with_context(|| format!("the script made no {name}"))
    }
}

/// How a package gets onto a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Deb,
    Rpm,
}

/// One at a time: they share the control plane, and figures are measured.
pub struct Site {
    pub client: Client,
    pub kubectl: Kubectl,
    pub machines: BTreeMap<String, Machine>,
    pub lab: Lab,
    pub packages: &'static Packages,
    plane: &'static ControlPlane,
    _turn: MutexGuard<'static, ()>,
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {:?}", self.machines.keys(), self.lab)
    }
}

impl Site {
    /// Bare nodes, booted, known to the cluster, without purelb; and a client `c`.
    pub async fn bare(nodes: &[&str]) -> Result<Self> {
        static TURN: Mutex<()> = Mutex::const_new(());
        let turn = TURN.lock().await;
        let packages = Packages::get()?;
        let prepared = Prepared::find()?;
        let plane = plane().await?;
        let client = plane.admin()?;
        forget_earlier_tests(&client).await?;
        let mut lab = Lab::builder().segment(SEGMENT, [SUBNET]).client("c", [SEGMENT]);
        for name in nodes {
            lab = lab.node(name, [SEGMENT]);
        }
        let lab = lab.api(([127, 0, 0, 1], plane.port()).into()).build()?;
        let objects: Api<NodeObject> = Api::all(client.clone());
        let mut machines = BTreeMap::new();
        for name in nodes {
            objects.create(&PostParams::default(), &node(name)).await?;
            let machine = Machine::power_on(lab.node(name), &prepared, packages.dir())?;
            machines.insert((*name).to_owned(), machine);
        }
        for machine in machines.values() {
            machine.wait_up()?;
        }
        let kubectl = Kubectl::of(plane)?;
        Ok(Self { client, kubectl, machines, lab, packages, plane, _turn: turn })
    }

    /// Nodes with the package, joined as the guide says, all of them ready.
    pub async fn running(nodes: &[&str], format: Format) -> Result<Self> {
        let site = Self::bare(nodes).await?;
        std::thread::scope(|scope| {
            let works: Vec<_> = nodes
                .iter()
                .map(|name| {
                    let site = &site;
                    scope.spawn(move || -> Result<()> {
                        site.install(name, format)?;
                        site.join(name)
                    })
                })
                .collect();
            works.into_iter().try_for_each(|work| match work.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
        for name in nodes {
            site.machine(name).wait_ready(0, PATIENCE)?;
        }
        Ok(site)
    }

    pub fn machine(&self, name: &str) -> &Machine {
        self.machines.get(name).expect("the test made a machine of that name")
    }

    /// Installs the shipped packages with the guide's commands.
    pub fn install(&self, name: &str, format: Format) -> Result<()> {
        let now = &self.packages.now;
        let (block, daemon, ctl) = match format {
            Format::Deb => ("install-deb", &now.deb, &now.ctl_deb),
            Format::Rpm => ("install-rpm", &now.rpm, &now.ctl_rpm),
        };
        let machine = self.machine(name);
        machine.sh(&format!("mkdir -p here; cd here; cp {PACKAGES}/{daemon} {PACKAGES}/{ctl} ."))?;
        machine.sh(&format!("cd here\n{}", guide::block(block)?))?;
        Ok(())
    }

    /// Joins a node to the cluster with the guide's commands.
    pub fn join(&self, name: &str) -> Result<()> {
        let api = format!("https://{API_ADDRESS}:{API_PORT}");
        let own = Kubectl {
            kubeconfig: self.kubectl.kubeconfig.clone(),
            directory: tempfile::tempdir()?,
            path: self.kubectl.path.clone(),
        };
        own.sh(&guide::block("credentials")?, &[("NODE", name), ("API", &api)])?;
        let machine = self.machine(name);
        for file in ["kubeconfig", "token"] {
            machine.write(&format!("/root/here/{file}"), &own.read(&format!("{name}/{file}"))?)?;
        }
        machine.sh(&format!("cd here\n{}", guide::block("join")?))?;
        Ok(())
    }

    /// Starts the allocator, with the rights of its account, until dropped.
    pub async fn allocator(&self) -> Result<Process> {
        let program = programs()?.join("purelb-allocator");
        let kubeconfig = self.plane.kubeconfig_for(&ServiceAccount::allocator(), &self.plane.url()).await?;
        let arguments = [
            format!("--kubeconfig={}", kubeconfig.display()),
            "--default-announcer=PureLB".to_owned(),
            "--metrics-address=127.0.0.1:0".to_owned(),
        ];
        Process::start("purelb-allocator", &program, &arguments, &self.lab.dir().join("allocator.log"))
    }

    /// Waits until a Service has an address.
    pub async fn address_of(&self, name: &str) -> Result<IpAddr> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), "default");
        eventually(&format!("Service {name} has an address"), PATIENCE, || async {
            let service = services.get(name).await.map_err(|e| e.to_string())?;
            let status = serde_json::to_value(&service.status).unwrap_or_default();
            let ip = status["loadBalancer"]["ingress"][0]["ip"].as_str().and_then(|ip| ip.parse().ok());
            ip.ok_or_else(|| status.to_string())
        })
        .await
    }

    /// Services with an address each, as the allocator would leave them; answers their
    /// addresses once each has one holder.
    pub async fn serve(&self, count: u8) -> Result<Vec<IpAddr>> {
        let group = json!({
            "apiVersion": "purelb.io/v2", "kind": "ServiceGroup",
            "metadata": {"name": "served", "namespace": "purelb-system"},
            "spec": {"local": {"v4pool": {"pool": "192.0.2.200-192.0.2.249", "subnet": "192.0.2.0/24"}}},
        });
        apply(&self.client, &[group]).await?;
        let services: Api<Service> = Api::namespaced(self.client.clone(), "default");
        let mut vips = Vec::new();
        for number in 0..count {
            let vip = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 200 + number));
            let name = format!("web{number}");
            let object = allocated(service("default", &name), "served", "local");
            services.create(&PostParams::default(), &object).await?;
            let status = json!({"status": status_with(&[vip])});
            services.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
            vips.push(vip);
        }
        self.settled(&vips).await?;
        Ok(vips)
    }

    /// Waits until each address has one holder.
    pub async fn settled(&self, vips: &[IpAddr]) -> Result<()> {
        eventually("each address has one holder", PATIENCE, || async {
            let seen: Vec<_> =
                vips.iter().map(|vip| (*vip, self.holders(*vip).unwrap_or_default())).collect();
            if seen.iter().all(|(_, holders)| holders.len() == 1) { Ok(()) } else { Err(seen) }
        })
        .await
        .with_context(|| self.machines.values().map(Machine::journal).collect::<String>())
    }

    pub fn holders(&self, vip: IpAddr) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for node in self.lab.nodes() {
            if node.address(vip)?.is_some() {
                found.push(node.name().to_owned());
            }
        }
        Ok(found)
    }

    /// The addresses a node has on its interfaces, of those given.
    pub fn held_by(&self, name: &str, vips: &[IpAddr]) -> Result<Vec<IpAddr>> {
        let held: Vec<IpAddr> = self.lab.node(name).addresses()?.iter().map(|a| a.ip()).collect();
        Ok(vips.iter().copied().filter(|vip| held.contains(vip)).collect())
    }

    /// A node that holds some of them, and which.
    pub fn some_holder(&self, vips: &[IpAddr]) -> Result<(&Machine, Vec<IpAddr>)> {
        for (name, machine) in &self.machines {
            let held = self.held_by(name, vips)?;
            if !held.is_empty() {
                return Ok((machine, held));
            }
        }
        bail!("no node holds any of {vips:?}")
    }

    pub async fn lease_exists(&self, name: &str) -> Result<bool> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        Ok(leases.get_opt(&format!("purelb-node-{name}")).await?.is_some())
    }

    /// Probes from the client at 1,000 per second, and watches the kernels, from now on.
    pub fn watch(&self, vips: &[IpAddr]) -> Result<Watching> {
        let kernels = self.lab.watch_addresses()?;
        let prober = self.lab.node("c").probe(Probing::udp(vips.iter().copied()))?;
        Ok(Watching { vips: vips.to_vec(), kernels, prober })
    }
}

async fn forget_earlier_tests(client: &Client) -> Result<()> {
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    for name in services.list(&ListParams::default()).await?.iter().map(ResourceExt::name_any) {
        if name != "kubernetes" {
            services.delete(&name, &DeleteParams::default()).await?;
        }
    }
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    leases.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    let nodes: Api<NodeObject> = Api::all(client.clone());
    nodes.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(())
}

/// Instruments that run.
#[derive(Debug)]
pub struct Watching {
    vips: Vec<IpAddr>,
    kernels: AddressWatch,
    prober: Prober,
}

/// What they saw.
#[derive(Debug)]
pub struct Seen {
    pub report: Report,
    pub timelines: Vec<Timeline>,
}

impl Watching {
    /// Waits until every address is answered for by a node that suits.
    pub async fn answered_by(&self, what: &str, suits: impl Fn(&str) -> bool) -> Result<()> {
        eventually(what, PATIENCE, || async {
            let report = self.prober.report();
            let owners: BTreeMap<_, _> =
                report.vips.iter().map(|(vip, seen)| (*vip, seen.owner().map(str::to_owned))).collect();
            let all = owners.values().all(|owner| owner.as_deref().is_some_and(&suits));
            if all { Ok(()) } else { Err(owners) }
        })
        .await
    }

    /// Waits until this many more probes were sent, a thousand each second: long enough
    /// for what would go wrong later.
    pub async fn probes(&self, more: u64) -> Result<()> {
        let until = self.prober.report().sent() + more;
        let within = Duration::from_millis(more) + PATIENCE;
        eventually("more probes", within, || async {
            let sent = self.prober.report().sent();
            if sent >= until { Ok(()) } else { Err(sent) }
        })
        .await
    }

    pub fn stop(self) -> Result<Seen> {
        let report = self.prober.stop();
        let timelines =
            self.vips.iter().map(|vip| self.kernels.owners_timeline(*vip)).collect::<Result<_>>()?;
        Ok(Seen { report, timelines })
    }
}

impl Seen {
    pub fn lost(&self) -> String {
        format!("{} of {} lost", self.report.lost(), self.report.sent())
    }

    pub fn nothing_lost(&self) -> bool {
        self.report.lost() == 0
    }

    /// No address left its holder or got another, not for a moment.
    pub fn nothing_moved(&self) -> bool {
        self.timelines.iter().all(|timeline| timeline.spans.len() == 1)
    }

    /// How long the longest address had no owner.
    pub fn unowned(&self) -> Duration {
        self.timelines.iter().map(Timeline::no_owner_time).max().unwrap_or_default()
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.report)?;
        self.timelines.iter().try_for_each(|timeline| writeln!(f, "{timeline}"))
    }
}
