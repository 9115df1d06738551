//! Which daemons a command asks: the local one, one by name, or all.

use kube::ResourceExt;
use purelb_api::names;
use purelb_core::facts::LeaseFacts;

use crate::cli::TargetArgs;
use crate::client::cluster;
use crate::client::daemon_client::{DaemonClient, connect_local, connect_remote};
use crate::error::{CommandError, CommandResult, check_node_known};
use crate::offline::saved_objects::SavedObjects;

/// The connection to one daemon, or why there is none.
#[derive(Debug)]
pub struct DaemonConnection {
    /// Empty for the local one.
    pub node: String,
    pub client: CommandResult<DaemonClient>,
}

/// The one daemon meant; `--all` is refused by commands that use this.
pub async fn connect_one(target: &TargetArgs) -> CommandResult<DaemonClient> {
    if target.all {
        let next = "name one with --node, or leave both out for the daemon on this machine";
        return Err(CommandError::new("this command takes one node at a time").next(next));
    }
    if let Some(endpoint) = &target.endpoint {
        return connect_remote(target, endpoint).await;
    }
    match &target.node {
        None => connect_local(&target.socket, target.request_timeout).await,
        Some(node) => {
            let leases = read_leases(target).await?;
            check_node_known(node, leases.iter().map(|l| l.node.as_str()))?;
            let lease = leases.iter().find(|l| l.node.as_str() == node);
            let Some(endpoint) = lease.and_then(|l| l.control_endpoint.as_ref()) else {
                return Err(no_endpoint(node));
            };
            connect_remote(target, endpoint).await
        }
    }
}

/// All that are meant, in order of their names; each may fail on its own.
pub async fn connect_all(target: &TargetArgs) -> CommandResult<Vec<DaemonConnection>> {
    if !target.all {
        let client = connect_one(target).await?;
        return Ok(vec![DaemonConnection { node: String::new(), client: Ok(client) }]);
    }
    let leases = read_leases(target).await?;
    if leases.is_empty() {
        return Err(CommandError::new("there are no node Leases")
            .next("is purelbd running anywhere, and is --install-namespace right?"));
    }
    let mut tasks = Vec::new();
    for lease in leases {
        let target = target.clone();
        tasks.push(tokio::spawn(async move {
            let node = lease.node.to_string();
            let client = match &lease.control_endpoint {
                Some(endpoint) => connect_remote(&target, endpoint).await,
                None => Err(no_endpoint(&node)),
            };
            DaemonConnection { node, client }
        }));
    }
    let mut asked = Vec::new();
    for task in tasks {
        asked.push(task.await.map_err(|e| CommandError::new("asking a daemon failed").because(e))?);
    }
    Ok(asked)
}

fn no_endpoint(node: &str) -> CommandError {
    CommandError::new(format!("the daemon of {node} cannot be reached from here"))
        .because(format!("its Lease has no {}", names::CONTROL_ENDPOINT))
        .next("set control.listen and certificates in its configuration, or run purelbctl on that node")
}

async fn read_leases(target: &TargetArgs) -> CommandResult<Vec<LeaseFacts>> {
    let client = cluster::cluster_client(target).await?;
    let mut leases = cluster::list_leases(&client, &target.install_namespace).await?;
    leases.sort_by_key(ResourceExt::name_any);
    Ok(SavedObjects { leases, ..SavedObjects::default() }.lease_facts())
}
