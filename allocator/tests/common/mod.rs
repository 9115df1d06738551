//! What the tests of the allocator share: objects, and ways to wait for them.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Event, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use purelb_allocator::kube::service_request::ALLOCATED;
use purelb_allocator::settings::Settings;
use purelb_api::ServiceGroup;
use purelb_kit::controlplane::fixtures;
use purelb_kit::wait::eventually;
use serde_json::{Value, json};

pub const SYSTEM: &str = "purelb-system";
/// Long enough for a machine that does other things as well.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Ephemeral port, quick elections.
pub fn settings() -> Settings {
    let mut settings = Settings::defaults();
    settings.metrics_address = ([127, 0, 0, 1], 0).into();
    settings.lease_duration = Duration::from_secs(3);
    settings.renew_deadline = Duration::from_secs(2);
    settings.retry_period = Duration::from_millis(250);
    settings
}

/// A cluster as its administrator and its users see it.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub ips: Vec<String>,
    /// Status, reason and message of our condition.
    pub told: Option<(String, String, String)>,
    pub annotations: BTreeMap<String, String>,
}

pub fn local(pools: Value) -> Value {
    json!({ "local": pools })
}

impl Cluster {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    pub fn services(&self, namespace: &str) -> Api<Service> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub fn groups(&self) -> Api<ServiceGroup> {
        Api::namespaced(self.client.clone(), SYSTEM)
    }

    pub async fn namespace(&self, name: &str) -> Result<()> {
        fixtures::ensure_namespace(&self.client, name).await
    }

    pub async fn group(&self, name: &str, spec: Value) -> Result<()> {
        let group: ServiceGroup = fixtures::object(json!({
            "apiVersion": "purelb.io/v2", "kind": "ServiceGroup",
            "metadata": {"name": name, "namespace": SYSTEM}, "spec": spec,
        }));
        self.groups().create(&PostParams::default(), &group).await.context("creating a ServiceGroup")?;
        Ok(())
    }

    pub async fn edit_group(&self, name: &str, spec: Value) -> Result<()> {
        let patch = json!({ "spec": spec });
        self.groups().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    pub async fn drop_group(&self, name: &str) -> Result<()> {
        self.groups().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Creates a Service of our class; `annotations` by their name after `purelb.io/`.
    pub async fn service(&self, key: &str, annotations: &[(&str, &str)]) -> Result<()> {
        self.service_with(key, annotations, |_| {}).await
    }

    pub async fn service_with(
        &self,
        key: &str,
        annotations: &[(&str, &str)],
        edit: impl FnOnce(&mut Service),
    ) -> Result<()> {
        let (namespace, name) = split(key);
        let mut service = fixtures::service(namespace, name);
        let wanted = annotations.iter().map(|(k, v)| (format!("purelb.io/{k}"), (*v).to_owned()));
        service.metadata.annotations = Some(wanted.collect());
        edit(&mut service);
        self.services(namespace)
            .create(&PostParams::default(), &service)
            .await
            .with_context(|| format!("creating Service {key}"))?;
        Ok(())
    }

    pub async fn patch(&self, key: &str, patch: Value) -> Result<()> {
        let (namespace, name) = split(key);
        self.services(namespace).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Sets (or with null removes) an annotation.
    pub async fn annotate(&self, key: &str, name: &str, value: Value) -> Result<()> {
        let name = format!("purelb.io/{name}");
        self.patch(key, json!({"metadata": {"annotations": {name: value}}})).await
    }

    pub async fn delete(&self, key: &str) -> Result<()> {
        let (namespace, name) = split(key);
        self.services(namespace).delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    pub async fn state(&self, key: &str) -> Result<State> {
        let (namespace, name) = split(key);
        Ok(state_of(&self.services(namespace).get(name).await?))
    }

    /// Waits until the Service has exactly these addresses.
    pub async fn has(&self, key: &str, ips: &[&str]) -> Result<State> {
        self.until(key, &format!("{key} has {ips:?}"), |state| state.ips == ips).await
    }

    /// Waits until the Service has an address, whichever.
    pub async fn has_some(&self, key: &str) -> Result<State> {
        self.until(key, &format!("{key} has an address"), |state| !state.ips.is_empty()).await
    }

    /// Waits until the Service is told this reason, and returns its message.
    pub async fn told(&self, key: &str, reason: &str) -> Result<State> {
        let is = |state: &State| state.told.as_ref().is_some_and(|(_, found, _)| found == reason);
        self.until(key, &format!("{key} is told {reason}"), is).await
    }

    pub async fn until(&self, key: &str, what: &str, is: impl Fn(&State) -> bool) -> Result<State> {
        eventually(what, PATIENCE, || async {
            let state = self.state(key).await.map_err(|e| e.to_string())?;
            if is(&state) { Ok(state) } else { Err(format!("{state:?}")) }
        })
        .await
    }

    /// Reasons and messages of all events about a Service.
    pub async fn events(&self, key: &str) -> Result<Vec<(String, String)>> {
        let (namespace, name) = split(key);
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let all = events.list(&ListParams::default()).await?;
        let about = all.items.into_iter().filter(|e| e.involved_object.name.as_deref() == Some(name));
        Ok(about.map(|e| (e.reason.unwrap_or_default(), e.message.unwrap_or_default())).collect())
    }

    /// Waits until a Service has so many events of a kind, and not one more.
    pub async fn events_of(&self, key: &str, reason: &str, count: usize) -> Result<()> {
        eventually(&format!("{count} events {reason} for {key}"), PATIENCE, || async {
            let events = self.events(key).await.map_err(|e| e.to_string())?;
            let found = events.iter().filter(|(r, _)| r == reason).count();
            if found == count { Ok(()) } else { Err(format!("{events:?}")) }
        })
        .await
    }

    /// Waits until so many Services of a namespace have addresses.
    pub async fn until_count(&self, namespace: &str, count: usize) -> Result<()> {
        eventually(&format!("{count} Services of {namespace} have addresses"), PATIENCE, || async {
            let list =
                self.services(namespace).list(&ListParams::default()).await.map_err(|e| e.to_string())?;
            let have = list.items.iter().filter(|s| !state_of(s).ips.is_empty()).count();
            if have >= count { Ok(()) } else { Err(format!("{have} of {}", list.items.len())) }
        })
        .await
    }

    pub async fn group_status(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually(&format!("ServiceGroup {name}: {what}"), PATIENCE, || async {
            let group = self.groups().get(name).await.map_err(|e| e.to_string())?;
            let status = json!(group.status);
            if is(&status) { Ok(status) } else { Err(status.to_string()) }
        })
        .await
    }
}

pub fn state_of(service: &Service) -> State {
    let status = service.status.clone().unwrap_or_default();
    let ingress = status.load_balancer.and_then(|b| b.ingress).unwrap_or_default();
    let told = status.conditions.unwrap_or_default().into_iter().find(|c| c.type_ == ALLOCATED);
    State {
        ips: ingress.into_iter().filter_map(|i| i.ip).collect(),
        told: told.map(|c| (c.status, c.reason, c.message)),
        annotations: service.annotations().clone(),
    }
}

/// A figure for the summary of a test run, past what the test harness captures.
pub fn figure(what: &str, bar: &str, measured: &str) {
    let _ = writeln!(std::io::stderr(), "figure: {what} | {bar} | {measured}");
}

/// The API server's clock of creation has whole seconds: whatever is made after this is
/// younger than what was made before.
pub async fn next_second() -> Result<()> {
    let at = jiff::Timestamp::now().as_second();
    eventually("the next second", Duration::from_secs(3), || async {
        if jiff::Timestamp::now().as_second() > at { Ok(()) } else { Err(at) }
    })
    .await
}

pub fn split(key: &str) -> (&str, &str) {
    key.split_once('/').expect("a key is namespace/name")
}
