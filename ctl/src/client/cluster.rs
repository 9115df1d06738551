//! The cluster, by kubeconfig. Made only when a command needs it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Resource};
use purelb_api::names;
use serde::de::DeserializeOwned;

use crate::cli::TargetArgs;
use crate::error::{CommandError, CommandResult, did_you_mean};
use crate::offline::saved_objects::{SavedObjects, SourcedObject};

/// Where the package puts the manifests.
pub const MANIFEST_DIRECTORY: &str = "/usr/share/purelb/k8s";

const KUBECONFIG_HINT: &str =
    "give a kubeconfig with --kubeconfig or KUBECONFIG, and check it with `kubectl get nodes`";

pub async fn cluster_client(target: &TargetArgs) -> CommandResult<Client> {
    client_from_config(cluster_config(target).await?)
}

pub async fn cluster_config(target: &TargetArgs) -> CommandResult<Config> {
    let config = match (&target.kubeconfig, &target.context) {
        (Some(path), context) => config_from_files(path, context.as_deref()).await,
        (None, Some(context)) => {
            let file = Kubeconfig::read();
            let file = file
                .map_err(|e| CommandError::new("there is no kubeconfig").because(e).next(KUBECONFIG_HINT))?;
            config_of_context(file, Some(context), "of this user").await
        }
        (None, None) => Config::infer()
            .await
            .map_err(|e| CommandError::new("no cluster is configured").because(e).next(KUBECONFIG_HINT)),
    };
    let mut config = config?;
    config.connect_timeout = Some(Duration::from_secs(5));
    config.read_timeout = Some(target.request_timeout);
    Ok(config)
}

pub fn client_from_config(config: Config) -> CommandResult<Client> {
    Client::try_from(config)
        .map_err(|e| CommandError::new("cannot use the kubeconfig").because(e).next(KUBECONFIG_HINT))
}

/// One file, or a list as in `KUBECONFIG`: files that do not exist are skipped, and where
/// two files define the same thing the first one counts.
async fn config_from_files(paths: &Path, context: Option<&str>) -> CommandResult<Config> {
    let shown = paths.display().to_string();
    let wrong = |e: &dyn std::fmt::Display| {
        CommandError::new(format!("cannot use the kubeconfig {shown}")).because(e).next(KUBECONFIG_HINT)
    };
    let mut listed: Vec<PathBuf> =
        std::env::split_paths(paths).filter(|path| !path.as_os_str().is_empty()).collect();
    // A file whose very name has a colon is that file.
    if listed.len() < 2 || paths.exists() {
        listed = vec![paths.to_owned()];
    } else {
        listed.retain(|path| path.exists());
    }
    let mut merged: Option<Kubeconfig> = None;
    for path in &listed {
        let next = Kubeconfig::read_from(path).map_err(|e| wrong(&e))?;
        merged = Some(match merged {
            Some(before) => before.merge(next).map_err(|e| wrong(&e))?,
            None => next,
        });
    }
    let Some(file) = merged else { return Err(wrong(&"none of these files is there")) };
    config_of_context(file, context, &shown).await
}

async fn config_of_context(file: Kubeconfig, context: Option<&str>, shown: &str) -> CommandResult<Config> {
    if let Some(context) = context
        && !file.contexts.iter().any(|c| c.name == context)
    {
        let names: Vec<&str> = file.contexts.iter().map(|c| c.name.as_str()).collect();
        let next = match did_you_mean(context, names.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("there are {}", names.join(", ")),
        };
        return Err(CommandError::new(format!("the kubeconfig {shown} has no context {context}")).next(next));
    }
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(file, &options).await.map_err(|e| {
        CommandError::new(format!("cannot use the kubeconfig {shown}")).because(e).next(KUBECONFIG_HINT)
    })
}

/// A message for people out of a client error.
pub fn error_cause(error: &kube::Error) -> String {
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

async fn list_objects<K>(api: Api<K>, what: &str, labels: Option<&str>) -> CommandResult<Vec<K>>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut params = ListParams::default();
    if let Some(labels) = labels {
        params = params.labels(labels);
    }
    let list = api.list(&params).await;
    list.map(|l| l.items).map_err(|e| {
        CommandError::new(format!("cannot list {what}")).because(error_cause(&e)).next(KUBECONFIG_HINT)
    })
}

fn in_namespace<K>(client: &Client, namespace: &str) -> Api<K>
where
    K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), namespace)
}

pub async fn list_leases(client: &Client, namespace: &str) -> CommandResult<Vec<Lease>> {
    list_objects(in_namespace(client, namespace), "Leases", Some(names::LEASE_SELECTOR)).await
}

/// All objects that `validate` checks and a support bundle holds.
pub async fn read_all_objects(client: &Client, namespace: &str) -> CommandResult<SavedObjects> {
    let from = |object| SourcedObject { file: "cluster".to_owned(), object };
    let groups: Vec<purelb_api::ServiceGroup> =
        list_objects(in_namespace(client, namespace), "ServiceGroups", None).await?;
    let agents: Vec<purelb_api::LBNodeAgent> =
        list_objects(in_namespace(client, namespace), "LBNodeAgents", None).await?;
    Ok(SavedObjects {
        leases: list_leases(client, namespace).await?,
        services: list_objects(Api::all(client.clone()), "Services", None).await?,
        nodes: list_objects(Api::all(client.clone()), "Nodes", None).await?,
        slices: list_objects(Api::all(client.clone()), "EndpointSlices", None).await?,
        groups: groups.into_iter().map(from).collect(),
        agents: agents
            .into_iter()
            .map(|object| SourcedObject { file: "cluster".to_owned(), object })
            .collect(),
        ..SavedObjects::default()
    })
}
