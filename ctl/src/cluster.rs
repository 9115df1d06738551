//! The cluster, by kubeconfig. Made only when a command needs it.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Resource};
use purelb_api::names;
use serde::de::DeserializeOwned;

use crate::cli::Target;
use crate::error::{Failure, Outcome};
use crate::saved::{Origin, Saved};

const HOW: &str = "give a kubeconfig with --kubeconfig or KUBECONFIG, and check it with `kubectl get nodes`";

pub async fn client(target: &Target) -> Outcome<Client> {
    client_of(config(target).await?)
}

pub async fn config(target: &Target) -> Outcome<Config> {
    let config = match &target.kubeconfig {
        Some(path) => from_file(path).await,
        None => {
            Config::infer().await.map_err(|e| Failure::new("no cluster is configured").because(e).next(HOW))
        }
    };
    let mut config = config?;
    config.connect_timeout = Some(Duration::from_secs(5));
    config.read_timeout = Some(target.request_timeout);
    Ok(config)
}

pub fn client_of(config: Config) -> Outcome<Client> {
    Client::try_from(config).map_err(|e| Failure::new("cannot use the kubeconfig").because(e).next(HOW))
}

async fn from_file(path: &Path) -> Outcome<Config> {
    let wrong = |e: &dyn std::fmt::Display| {
        Failure::new(format!("cannot use the kubeconfig {}", path.display())).because(e).next(HOW)
    };
    let file = Kubeconfig::read_from(path).map_err(|e| wrong(&e))?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(|e| wrong(&e))
}

/// A message for people out of a client error.
pub fn cause(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => format!("not allowed: {}", status.message),
        kube::Error::Api(status) if status.code == 404 => {
            "the cluster does not know this kind or version".into()
        }
        kube::Error::Api(status) => status.message.clone(),
        other => {
            // The interesting part is at the bottom: "connection refused", "expired".
            let mut deepest: &dyn std::error::Error = other;
            while let Some(next) = deepest.source() {
                deepest = next;
            }
            format!("the API server cannot be reached: {deepest}")
        }
    }
}

async fn list<K>(api: Api<K>, what: &str, labels: Option<&str>) -> Outcome<Vec<K>>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut params = ListParams::default();
    if let Some(labels) = labels {
        params = params.labels(labels);
    }
    let list = api.list(&params).await;
    list.map(|l| l.items)
        .map_err(|e| Failure::new(format!("cannot list {what}")).because(cause(&e)).next(HOW))
}

fn in_namespace<K>(client: &Client, namespace: &str) -> Api<K>
where
    K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), namespace)
}

pub async fn leases(client: &Client, namespace: &str) -> Outcome<Vec<Lease>> {
    list(in_namespace(client, namespace), "Leases", Some(names::LEASE_SELECTOR)).await
}

/// Everything the checks look at.
pub async fn everything(client: &Client, namespace: &str) -> Outcome<Saved> {
    let from = |object| Origin { file: "cluster".to_owned(), object };
    let groups: Vec<purelb_api::ServiceGroup> =
        list(in_namespace(client, namespace), "ServiceGroups", None).await?;
    let agents: Vec<purelb_api::LBNodeAgent> =
        list(in_namespace(client, namespace), "LBNodeAgents", None).await?;
    Ok(Saved {
        leases: leases(client, namespace).await?,
        services: list(Api::all(client.clone()), "Services", None).await?,
        nodes: list(Api::all(client.clone()), "Nodes", None).await?,
        slices: list(Api::all(client.clone()), "EndpointSlices", None).await?,
        groups: groups.into_iter().map(from).collect(),
        agents: agents.into_iter().map(|object| Origin { file: "cluster".to_owned(), object }).collect(),
        ..Saved::default()
    })
}
