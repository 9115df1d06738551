//! A cluster: Nodes with daemons, in a lab, on a control plane.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use purelb_api::node_agent::LBNodeAgent;
use purelb_kit::controlplane::fixtures::{ensure_namespace, node, object};
use purelb_kit::controlplane::manifests::{apply, base_dir, read_kustomization};
use purelb_kit::controlplane::{ControlPlane, ServiceAccount};
use purelb_kit::lab::{API_ADDRESS, API_PORT, Lab, LabBuilder, Node};
use purelb_kit::wait::eventually;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::daemon::{Daemon, Settings};

/// Long enough for a busy machine; what is measured is measured apart.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Where the manifests install.
const SHIPPED_NAMESPACE: &str = "purelb-system";
const MARKS: &str = "purelb-marks";
/// Objects without a namespace, which every cluster needs under a name of its own.
const CLUSTER_WIDE: [&str; 7] = [
    "purelb-purelbd",
    "purelb-allocator",
    "purelb-services",
    MARKS,
    "purelb-bound-tokens",
    "purelb-leases",
    "purelb-tokens",
];

/// One for all tests of a test binary; it ends with the process.
pub async fn shared_plane() -> Result<&'static ControlPlane> {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    PLANE.get_or_try_init(own_plane).await
}

/// For a test that takes the API server away from everybody.
pub async fn own_plane() -> Result<ControlPlane> {
    let plane = ControlPlane::builder()
        .also_reached_as(&API_ADDRESS.to_string())
        .with_controller_manager()
        .start()
        .await?;
    let mut objects = read_kustomization(&base_dir())?;
    objects.iter_mut().for_each(|object| minds_only(object, SHIPPED_NAMESPACE));
    apply(&plane.admin()?, &objects).await?;
    Ok(plane)
}

/// Of several clusters in one, each minds its own Services: the policy that only purelb
/// writes its marks knows the accounts of one.
fn minds_only(object: &mut Value, namespace: &str) {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if object["kind"] == "ValidatingAdmissionPolicy" && name.starts_with(MARKS) {
        object["spec"]["matchConstraints"]["namespaceSelector"] =
            json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    }
}

pub struct Cluster<'p> {
    pub plane: &'p ControlPlane,
    pub client: Client,
    pub lab: Lab,
    /// The install namespace. Services live there, too.
    pub namespace: String,
    pub class: String,
    pub settings: Settings,
    daemons: BTreeMap<String, Daemon>,
}

impl fmt::Debug for Cluster<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cluster {}: {:?}", self.namespace, self.lab)
    }
}

impl<'p> Cluster<'p> {
    /// A cluster without Nodes.
    pub async fn new(plane: &'p ControlPlane, lab: LabBuilder) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let namespace = format!("lab{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let lab = lab.api(([127, 0, 0, 1], plane.port()).into()).build()?;
        let client = plane.admin()?;
        install(&client, &namespace).await?;
        let class = format!("purelb.io/{namespace}");
        let settings = Settings::default();
        let cluster = Self { plane, client, lab, namespace, class, settings, daemons: BTreeMap::new() };
        cluster.agent("default", json!({})).await?;
        Ok(cluster)
    }

    /// The same with a Node and a daemon for every node of the lab, all of them ready.
    pub async fn start(plane: &'p ControlPlane, lab: LabBuilder) -> Result<Self> {
        let mut cluster = Self::new(plane, lab).await?;
        let names: Vec<String> = cluster.lab.nodes().iter().map(|n| n.name().to_owned()).collect();
        for name in &names {
            cluster.join(name).await?;
        }
        for name in &names {
            cluster.daemon(name).ready(PATIENCE).await?;
        }
        Ok(cluster)
    }

    /// The name of a lab's node in Kubernetes.
    pub fn node_name(&self, name: &str) -> String {
        format!("{}-{name}", self.namespace)
    }

    /// Registers the Node and starts its daemon.
    pub async fn join(&mut self, name: &str) -> Result<&Daemon> {
        self.register(name).await?;
        self.launch(name).await
    }

    /// The Node with its own addresses, as its kubelet would tell them.
    pub async fn register(&self, name: &str) -> Result<NodeObject> {
        let nodes = self.nodes();
        let wanted = node(&self.node_name(name));
        let made = nodes.create(&PostParams::default(), &wanted).await.context("creating a Node")?;
        let host = self.node(name);
        let own = host.ports().first().map_or(&[][..], |port| &port.addresses);
        if own.is_empty() {
            return Ok(made);
        }
        let told: Vec<_> =
            own.iter().map(|net| json!({"type": "InternalIP", "address": net.addr()})).collect();
        let patch = Patch::Merge(json!({"status": {"addresses": told}}));
        let (name, params) = (self.node_name(name), PatchParams::default());
        nodes.patch_status(&name, &params, &patch).await.context("the addresses of a Node")
    }

    /// Starts the daemon of a node that has none yet.
    pub async fn launch(&mut self, name: &str) -> Result<&Daemon> {
        let account = ServiceAccount::new(&self.namespace, "purelbd");
        let url = format!("https://{API_ADDRESS}:{API_PORT}");
        let node = self.nodes().get(&self.node_name(name)).await.context("the Node of a daemon")?;
        let token = self.plane.token_for_node(&account, &node).await?;
        let kubeconfig = self.plane.kubeconfig_with_token(&url, &token)?;
        let daemon = Daemon::start(self, name, &kubeconfig)?;
        self.daemons.insert(name.to_owned(), daemon);
        Ok(self.daemon(name))
    }

    pub fn daemon(&self, name: &str) -> &Daemon {
        self.daemons.get(name).expect("the test started a daemon there")
    }

    pub fn daemon_mut(&mut self, name: &str) -> &mut Daemon {
        self.daemons.get_mut(name).expect("the test started a daemon there")
    }

    pub fn node(&self, name: &str) -> Node {
        self.lab.node(name)
    }

    pub fn nodes(&self) -> Api<NodeObject> {
        Api::all(self.client.clone())
    }

    pub fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn lease_name(&self, name: &str) -> String {
        format!("purelb-node-{}", self.node_name(name))
    }

    pub async fn lease(&self, name: &str) -> Result<Option<Lease>> {
        Ok(self.leases().get_opt(&self.lease_name(name)).await?)
    }

    pub async fn delete_lease(&self, name: &str) -> Result<()> {
        self.leases().delete(&self.lease_name(name), &DeleteParams::default()).await?;
        Ok(())
    }

    /// Creates or changes an LBNodeAgent.
    pub async fn agent(&self, name: &str, spec: Value) -> Result<()> {
        let agents: Api<LBNodeAgent> = Api::namespaced(self.client.clone(), &self.namespace);
        let wanted = json!({
            "apiVersion": "purelb.io/v2", "kind": "LBNodeAgent",
            "metadata": {"name": name, "namespace": self.namespace}, "spec": spec,
        });
        let params = PatchParams::apply("purelb-e2e").force();
        agents.patch(name, &params, &Patch::Apply(wanted)).await?;
        Ok(())
    }

    /// Creates or changes a ServiceGroup.
    pub async fn group(&self, name: &str, spec: Value) -> Result<()> {
        let wanted = json!({
            "apiVersion": "purelb.io/v2", "kind": "ServiceGroup",
            "metadata": {"name": name, "namespace": self.namespace}, "spec": spec,
        });
        apply(&self.client, &[object(wanted)]).await?;
        Ok(())
    }

    /// Who has the address, and on which interface.
    pub fn holders(&self, vip: IpAddr) -> Result<Vec<(String, String)>> {
        let mut found = Vec::new();
        for node in self.lab.nodes() {
            if let Some(address) = node.address(vip)?.filter(|a| a.usable()) {
                found.push((node.name().to_owned(), address.dev));
            }
        }
        Ok(found)
    }

    /// Waits until one node holds it, and says which.
    pub async fn one_holder(&self, vip: IpAddr) -> Result<String> {
        self.holder_where(vip, "one holder", |_| true).await
    }

    /// Waits until one node holds it and it is one of those wanted.
    pub async fn holder_where(
        &self,
        vip: IpAddr,
        what: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<String> {
        let what = format!("{vip}: {what}");
        eventually(&what, PATIENCE, || {
            let seen = self.holders(vip);
            let seen = match &seen {
                Ok(holders) => match holders.as_slice() {
                    [(node, _)] if wanted(node) => Ok(node.clone()),
                    other => Err(format!("{other:?}")),
                },
                Err(error) => Err(format!("{error:#}")),
            };
            async { seen }
        })
        .await
        .map_err(|error| error.context(self.words()))
    }

    /// What every daemon said last, for the report of a failure.
    pub fn words(&self) -> String {
        let mut words = String::new();
        for (name, daemon) in &self.daemons {
            let told = daemon.told().into_iter().rev().find(|(_, text)| text.contains("STATUS="));
            let log = daemon.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(8)..].join("\n    ");
            words.push_str(&format!("{name}: {}\n    {last}\n", told.map(|(_, t)| t).unwrap_or_default()));
        }
        words
    }

    /// Waits until a node holds these, and its daemon has seen that it does: what is in
    /// the kernel is shown to others a moment later.
    pub async fn announced_by(&self, node: &str, vips: &[IpAddr]) -> Result<()> {
        for vip in vips {
            self.holder_where(*vip, &format!("on {node}"), |n| n == node).await?;
        }
        let line = format!("purelb_lbnodeagent_vips{{reason=\"Announcing\"}} {}", vips.len());
        self.metric_says(node, &line).await
    }

    /// Waits until a node's metrics have this line.
    pub async fn metric_says(&self, node: &str, line: &str) -> Result<()> {
        self.until(&format!("the metrics of {node} say {line}"), PATIENCE, || {
            let text = self.daemon(node).metrics().map_err(|e| e.to_string())?;
            if text.lines().any(|l| l == line) { Ok(()) } else { Err(text) }
        })
        .await
    }

    /// Waits for any condition that can be looked at without waiting.
    pub async fn until(
        &self,
        what: &str,
        within: Duration,
        mut look: impl FnMut() -> Result<(), String>,
    ) -> Result<()> {
        eventually(what, within, || {
            let seen = look();
            async { seen }
        })
        .await
        .map_err(|error| error.context(self.words()))
    }
}

/// The shipped rights and rules, in another namespace and beside others.
async fn install(client: &Client, namespace: &str) -> Result<()> {
    ensure_namespace(client, namespace).await?;
    let mut objects = Vec::new();
    for value in read_kustomization(&base_dir())? {
        if value["kind"] == "CustomResourceDefinition" || value["kind"] == "Namespace" {
            continue;
        }
        let mut text = value.to_string().replace(SHIPPED_NAMESPACE, namespace);
        let wide = value["metadata"]["namespace"].is_null();
        for name in CLUSTER_WIDE {
            // Only names of objects without a namespace, and references to them.
            if wide {
                let own = format!("\"{name}-{namespace}\"");
                text = text.replace(&format!("\"name\":\"{name}\""), &format!("\"name\":{own}"));
                text = text.replace(&format!("\"policyName\":\"{name}\""), &format!("\"policyName\":{own}"));
            }
        }
        let mut own: Value = serde_json::from_str(&text)?;
        minds_only(&mut own, namespace);
        // A subject is an account of the namespace, under its shipped name.
        if let Some(subjects) = own.get_mut("subjects").and_then(Value::as_array_mut) {
            for subject in subjects {
                let shipped =
                    subject["name"].as_str().unwrap_or_default().replace(&format!("-{namespace}"), "");
                subject["name"] = json!(shipped);
            }
        }
        objects.push(own);
    }
    apply(client, &objects).await?;
    Ok(())
}
