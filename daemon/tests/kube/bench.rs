//! An embedded API, a fault proxy before it, a Kubernetes side behind the proxy, and
//! what it told so far.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use purelb_api::names;
use purelb_core::facts::{AgentFacts, EndpointFacts, GroupFacts, LeaseFacts, NodeFacts, ServiceFacts};
use purelb_core::messages::{
    FactsUpdate, Input, LeaseContent, LeaseError, LeaseMode, LeaseRenewal, LeaseWrite, Source,
};
use purelb_core::{InstanceId, Mono, NodeName};
use purelb_kit::controlplane::fixtures;
use purelb_kit::embedded::{EmbeddedApi, Verb};
use purelb_kit::faults::Proxy;
use purelb_kit::wait::eventually;
use purelbd::kube::{ApiAccess, Credentials, KubeConfig, KubeHandle, KubeTuning};
use serde_json::{Value, json};
use tokio::sync::mpsc;

pub const SOON: Duration = Duration::from_secs(20);
pub const SYSTEM: &str = "purelb-system";
pub const ME: &str = "node-1";

/// Everything the Kubernetes side said, as an engine would keep it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub services: BTreeMap<String, ServiceFacts>,
    pub groups: BTreeMap<String, GroupFacts>,
    pub agents: BTreeMap<String, AgentFacts>,
    pub endpoints: BTreeMap<String, EndpointFacts>,
    pub nodes: BTreeMap<String, NodeFacts>,
    pub leases: BTreeMap<String, LeaseFacts>,
    pub lists: BTreeMap<Source, usize>,
    /// Updates of single objects, by source.
    pub changes: BTreeMap<Source, usize>,
    pub written: BTreeMap<u64, (Mono, Result<LeaseRenewal, LeaseError>)>,
    pub deleted: Vec<Result<(), String>>,
    /// Sources in the order their inputs came.
    pub order: Vec<Source>,
}

impl Seen {
    fn take<T, K: ToString>(
        &mut self,
        source: Source,
        update: FactsUpdate<T, K>,
        map: impl Fn(&mut Self) -> &mut BTreeMap<String, T>,
        key: impl Fn(&T) -> String,
    ) {
        self.order.push(source);
        match update {
            FactsUpdate::All(all) => {
                *map(self) = all.into_iter().map(|t| (key(&t), t)).collect();
                *self.lists.entry(source).or_default() += 1;
            }
            FactsUpdate::Set(one) => {
                map(self).insert(key(&one), one);
                *self.changes.entry(source).or_default() += 1;
            }
            FactsUpdate::Gone(gone) => {
                map(self).remove(&gone.to_string());
                *self.changes.entry(source).or_default() += 1;
            }
        }
    }

    fn input(&mut self, input: Input) {
        use Source as S;
        match input {
            Input::Services(u) => self.take(S::Services, u, |s| &mut s.services, |t| t.key.to_string()),
            Input::Groups(u) => self.take(S::ServiceGroups, u, |s| &mut s.groups, |t| t.name.clone()),
            Input::Agents(u) => self.take(S::NodeAgents, u, |s| &mut s.agents, |t| t.key.to_string()),
            Input::Endpoints(u) => {
                self.take(S::EndpointSlices, u, |s| &mut s.endpoints, |t| t.slice.to_string());
            }
            Input::Nodes(u) => self.take(S::Nodes, u, |s| &mut s.nodes, |t| t.name.to_string()),
            Input::Leases(u) => self.take(S::Leases, u, |s| &mut s.leases, |t| t.node.to_string()),
            Input::LeaseWritten { seq, sent_at, result } => {
                self.written.insert(seq, (sent_at, result));
            }
            Input::LeaseDeleted(result) => self.deleted.push(result),
            other => panic!("the Kubernetes side has no business saying {other:?}"),
        }
    }

    pub fn whole(&self) -> bool {
        Source::ALL.iter().filter(|s| **s != Source::Kernel).all(|s| self.lists.contains_key(s))
    }

    pub fn listed(&self, source: Source) -> usize {
        self.lists.get(&source).copied().unwrap_or(0)
    }

    pub fn changed(&self, source: Source) -> usize {
        self.changes.get(&source).copied().unwrap_or(0)
    }
}

/// The receiving end.
#[derive(Clone, Debug, Default)]
pub struct View(Arc<Mutex<Seen>>);

impl View {
    pub fn collect(mut inputs: mpsc::Receiver<Input>) -> View {
        let view = View::default();
        let into = view.clone();
        tokio::spawn(async move {
            while let Some(input) = inputs.recv().await {
                into.0.lock().unwrap().input(input);
            }
        });
        view
    }

    pub fn now(&self) -> Seen {
        self.0.lock().unwrap().clone()
    }

    /// Waits until what was told satisfies.
    pub async fn until<T: Debug>(&self, what: &str, look: impl Fn(&Seen) -> Option<T>) -> Result<T> {
        eventually(what, SOON, || async {
            let seen = self.now();
            look(&seen).ok_or_else(|| Seen { order: Vec::new(), ..seen })
        })
        .await
    }

    pub async fn holds(&self, what: &str, look: impl Fn(&Seen) -> bool) -> Result<()> {
        self.until(what, |seen| look(seen).then_some(())).await
    }
}

/// Short enough that a test waits for the fault, not for us.
pub fn quick() -> KubeTuning {
    KubeTuning {
        backoff_least: Duration::from_millis(10),
        backoff_most: Duration::from_millis(100),
        condition_delay: Duration::from_millis(20),
        ..KubeTuning::default()
    }
}

pub fn instance(name: &str) -> InstanceId {
    InstanceId::new(name).unwrap()
}

pub fn mk_config(access: ApiAccess, tuning: KubeTuning) -> KubeConfig {
    KubeConfig {
        node: NodeName::new(ME).unwrap(),
        instance: instance("me"),
        namespace: SYSTEM.into(),
        classes: Default::default(),
        control_endpoint: Some("node-1.example:7473".into()),
        access,
        tuning,
        last_good: purelbd::kube::LastGoodConfig::in_memory(),
    }
}

pub fn mk_write(seq: u64, mode: LeaseMode) -> LeaseWrite {
    let content = LeaseContent {
        instance: instance("me"),
        duration: Duration::from_secs(10),
        subnets: ["192.0.2.0/24".parse().unwrap()].into(),
        draining: None,
        rank: purelb_core::facts::Rank::First,
        announced: std::sync::Arc::new(["192.0.2.7".parse().unwrap()].into()),
        declined: Default::default(),
        macs: Default::default(),
        node_uid: "6a0fb2f1-0000-4000-8000-000000000001".into(),
    };
    LeaseWrite { seq, mode, content, timeout: Duration::from_secs(5) }
}

pub struct Bench {
    pub api: EmbeddedApi,
    pub proxy: Proxy,
    pub handle: KubeHandle,
    pub view: View,
    pub admin: Client,
    dir: tempfile::TempDir,
}

impl Bench {
    pub async fn start() -> Result<Bench> {
        Self::with(quick()).await
    }

    pub async fn with(tuning: KubeTuning) -> Result<Bench> {
        Self::furnished(tuning, async |_| Ok(())).await
    }

    /// With something in the cluster before anybody looks.
    pub async fn furnished(
        tuning: KubeTuning,
        furnish: impl AsyncFnOnce(&Client) -> Result<()>,
    ) -> Result<Bench> {
        let api = EmbeddedApi::start().await?;
        let proxy = Proxy::before(&api).start().await?;
        let dir = tempfile::tempdir()?;
        let admin = api.client("admin")?;
        create(&admin, &json!(fixtures::node(ME))).await?;
        furnish(&admin).await?;
        let (inputs, receiver) = mpsc::channel(64);
        let view = View::collect(receiver);
        let access = ApiAccess::kubeconfig(proxy.kubeconfig("daemon", "daemon", dir.path())?);
        let handle = purelbd::kube::start(mk_config(access, tuning), inputs).await?;
        let bench = Bench { api, proxy, handle, view, admin, dir };
        bench.view.holds("everything is listed", Seen::whole).await?;
        bench.watching().await?;
        Ok(bench)
    }

    /// Another process of the same daemon, at the same API.
    pub async fn restarted(&self) -> Result<(KubeHandle, View)> {
        self.restarted_with(quick()).await
    }

    pub async fn restarted_with(&self, tuning: KubeTuning) -> Result<(KubeHandle, View)> {
        let (inputs, receiver) = mpsc::channel(64);
        let view = View::collect(receiver);
        let handle = self.another(inputs, tuning).await?;
        view.holds("everything is listed", Seen::whole).await?;
        Ok((handle, view))
    }

    /// The same, for whoever takes what it says himself.
    pub async fn another(&self, inputs: mpsc::Sender<Input>, tuning: KubeTuning) -> Result<KubeHandle> {
        let access = ApiAccess::kubeconfig(self.proxy.kubeconfig("daemon", "daemon", self.dir.path())?);
        Ok(purelbd::kube::start(mk_config(access, tuning), inputs).await?)
    }

    /// All watches are open: without Services that need them there is none of slices.
    pub async fn watching(&self) -> Result<()> {
        eventually("the watches are open", SOON, || async {
            let open = self.proxy.open_watches();
            if open >= 5 { Ok(()) } else { Err((open, self.handle.counters())) }
        })
        .await
    }

    pub fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.admin.clone(), SYSTEM)
    }

    pub fn services(&self, namespace: &str) -> Api<Service> {
        Api::namespaced(self.admin.clone(), namespace)
    }

    pub async fn my_lease(&self) -> Result<Lease> {
        self.leases().get("purelb-node-node-1").await.context("our Lease")
    }

    /// Writes and waits for the answer.
    pub async fn write(&self, seq: u64, mode: LeaseMode) -> Result<Result<LeaseRenewal, LeaseError>> {
        self.handle.write_lease(mk_write(seq, mode));
        self.answer(seq).await
    }

    pub async fn answer(&self, seq: u64) -> Result<Result<LeaseRenewal, LeaseError>> {
        let what = format!("the answer to write {seq}");
        self.view.until(&what, |seen| seen.written.get(&seq).map(|(_, r)| r.clone())).await
    }

    /// How often the daemon did this so far.
    pub fn requests(&self, verb: Verb, resource: &str) -> u64 {
        let all = self.api.requests();
        let ours = all.iter().filter(|(k, _)| k.client == "daemon");
        ours.filter(|(k, _)| k.verb == verb && k.resource == resource).map(|(_, n)| n).sum()
    }

    pub fn all_requests(&self) -> u64 {
        self.api.requests().iter().filter(|(k, _)| k.client == "daemon").map(|(_, n)| n).sum()
    }
}

fn resource_of(object: &Value) -> ApiResource {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind))
}

fn api_of(client: &Client, object: &Value) -> Api<DynamicObject> {
    let resource = resource_of(object);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Creates any object.
pub async fn create(client: &Client, object: &Value) -> Result<()> {
    let made = serde_json::from_value(object.clone())?;
    api_of(client, object).create(&PostParams::default(), &made).await.context("create")?;
    Ok(())
}

/// Merges into any object.
pub async fn change(client: &Client, object: &Value) -> Result<()> {
    let name = object["metadata"]["name"].as_str().context("a name")?;
    let params = PatchParams::default();
    api_of(client, object).patch(name, &params, &Patch::Merge(object)).await.context("patch")?;
    Ok(())
}

pub async fn allocated(client: &Client, name: &str, ips: &[&str]) -> Result<Service> {
    let service = fixtures::allocated(fixtures::service("default", name), "g", "local");
    let ips = ips.iter().map(|ip| ip.parse().unwrap()).collect::<Vec<_>>();
    fixtures::create_with_ingress(client, &service, &ips).await
}

pub fn mk_lease(node: &str, instance: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": format!("purelb-node-{node}"), "namespace": SYSTEM,
            "labels": {names::LABEL_NAME.0: names::LABEL_NAME.1, names::LABEL_COMPONENT.0: names::LABEL_COMPONENT.1},
            "annotations": {names::INSTANCE: instance, names::SUBNETS: "192.0.2.0/24"},
        },
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 10, "renewTime": "2026-01-02T03:04:05.000001Z"},
    })
}

pub fn mk_group(name: &str, pool: &str) -> Value {
    json!({
        "apiVersion": "purelb.io/v2", "kind": "ServiceGroup", "metadata": {"name": name, "namespace": SYSTEM},
        "spec": {"local": {"v4pool": {"pool": pool, "subnet": "192.0.2.0/24"}}},
    })
}

pub fn mk_agent(name: &str, interface: &str) -> Value {
    json!({
        "apiVersion": "purelb.io/v2", "kind": "LBNodeAgent", "metadata": {"name": name, "namespace": SYSTEM},
        "spec": {"local": {"localInterface": interface}},
    })
}

pub fn token_access(servers: &[&str], token_file: PathBuf) -> ApiAccess {
    ApiAccess {
        credentials: Credentials::Token { token_file, ca_file: None },
        servers: servers.iter().map(ToString::to_string).collect(),
        own_token: None,
    }
}
