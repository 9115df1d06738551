//! Which daemons a command asks: the local one, one by name, or all.

use kube::ResourceExt;
use purelb_api::names;
use purelb_core::facts::LeaseFacts;

use crate::cli::Target;
use crate::connect::{self, Client};
use crate::error::{Failure, Outcome};
use crate::saved::Saved;
use crate::{cluster, target};

/// A daemon that answered, or why it did not.
#[derive(Debug)]
pub struct Asked {
    /// Empty for the local one.
    pub node: String,
    pub client: Outcome<Client>,
}

/// The one daemon meant; `--all` is refused by commands that use this.
pub async fn one(target: &Target) -> Outcome<Client> {
    if target.all {
        let next = "name one with --node, or leave both out for the daemon on this machine";
        return Err(Failure::new("this command takes one node at a time").next(next));
    }
    if let Some(endpoint) = &target.endpoint {
        return connect::remote(target, endpoint).await;
    }
    match &target.node {
        None => connect::local(&target.socket, target.request_timeout).await,
        Some(node) => {
            let leases = leases(target).await?;
            target::check_node(node, leases.iter().map(|l| l.node.as_str()))?;
            let lease = leases.iter().find(|l| l.node.as_str() == node);
            let Some(endpoint) = lease.and_then(|l| l.control_endpoint.as_ref()) else {
                return Err(no_endpoint(node));
            };
            connect::remote(target, endpoint).await
        }
    }
}

/// All that are meant, in order of their names; each may fail on its own.
pub async fn every(target: &Target) -> Outcome<Vec<Asked>> {
    if !target.all {
        let client = one(target).await?;
        return Ok(vec![Asked { node: String::new(), client: Ok(client) }]);
    }
    let leases = leases(target).await?;
    if leases.is_empty() {
        return Err(Failure::new("there are no node Leases")
            .next("is purelbd running anywhere, and is --install-namespace right?"));
    }
    let mut tasks = Vec::new();
    for lease in leases {
        let target = target.clone();
        tasks.push(tokio::spawn(async move {
            let node = lease.node.to_string();
            let client = match &lease.control_endpoint {
                Some(endpoint) => connect::remote(&target, endpoint).await,
                None => Err(no_endpoint(&node)),
            };
            Asked { node, client }
        }));
    }
    let mut asked = Vec::new();
    for task in tasks {
        asked.push(task.await.map_err(|e| Failure::new("asking a daemon failed").because(e))?);
    }
    Ok(asked)
}

fn no_endpoint(node: &str) -> Failure {
    Failure::new(format!("the daemon of {node} cannot be reached from here"))
        .because(format!("its Lease has no {}", names::CONTROL_ENDPOINT))
        .next("set control.listen and certificates in its configuration, or run purelbctl on that node")
}

async fn leases(target: &Target) -> Outcome<Vec<LeaseFacts>> {
    let client = cluster::client(target).await?;
    let mut leases = cluster::leases(&client, &target.install_namespace).await?;
    leases.sort_by_key(ResourceExt::name_any);
    Ok(Saved { leases, ..Saved::default() }.lease_facts())
}
