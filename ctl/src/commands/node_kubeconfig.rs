//! `node-kubeconfig`: a node daemon's way into the cluster, made by an administrator.
//!
//! The credential is a token of the daemons' ServiceAccount that is bound to the Node:
//! it has that account's few rights, writes no other node's Lease, and ends with the
//! Node object. Before it ends the daemon asks for the next one by itself; an administrator
//! can renew it, too, by replacing its file.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Node, ServiceAccount};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Config, ResourceExt};
use purelb_api::kubeconfig::{Cluster, Credential, DAEMON_ACCOUNT, kubeconfig, token_request};

use crate::cli::TargetArgs;
use crate::client::cluster::{self, MANIFEST_DIRECTORY, error_cause};
use crate::error::{CommandError, CommandResult, did_you_mean, exit_code};
use crate::output::{print_notes, print_text};

/// What the API server's tokens last at least.
const SHORTEST_TOKEN: Duration = Duration::from_secs(600);
/// Where a cluster publishes the authority of its API server.
const ROOT_CA_CONFIGMAP: &str = "kube-root-ca.crt";

#[derive(Debug, Args)]
pub struct NodeKubeconfigArgs {
    /// The node, as `kubectl get nodes` shows it
    pub node: String,
    /// How long the token is good for; if the API server gives less, the exit code is 3
    #[arg(long, value_name = "TIME", default_value = "8760h", value_parser = purelb_core::durations::parse)]
    pub duration: Duration,
    /// Where the node reaches the API server, if not where your kubeconfig does
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// Write the files `kubeconfig` and `token` into this directory, instead of printing
    /// one kubeconfig with the token inside
    #[arg(long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,
    /// Where the file `token` will be on the node
    #[arg(long, value_name = "PATH", default_value = "/etc/purelb/token")]
    pub token_file: String,
    /// Only a new token, for a node that has its kubeconfig
    #[arg(long)]
    pub token_only: bool,
}

pub async fn run(target: &TargetArgs, args: &NodeKubeconfigArgs) -> CommandResult {
    if args.duration < SHORTEST_TOKEN {
        return Err(CommandError::new("--duration is too short").next("a token lasts 10m or longer"));
    }
    let config = cluster::cluster_config(target).await?;
    let client = cluster::client_from_config(config.clone())?;
    let server = ApiServer::find(&config, &client, target, args).await?;
    let node = get_node(&client, &args.node).await?;
    let NodeToken { token, ends, shorter } = request_token(&client, target, args, &node).await?;
    let done = match &args.output_dir {
        None if args.token_only => print_text(&format!("{token}\n")),
        None => print_text(&server.kubeconfig(target, &Credential::Token(&token))),
        Some(dir) => {
            let mut written = vec!["token"];
            // Without an end of line, as pods have theirs: not every client takes one.
            write_private(dir, "token", &token)?;
            if !args.token_only {
                let credential = Credential::TokenFile(&args.token_file);
                write_private(dir, "kubeconfig", &server.kubeconfig(target, &credential))?;
                written.insert(0, "kubeconfig");
            }
            let files = written.join(" ");
            let restart = if args.token_only { "" } else { " && systemctl restart purelbd" };
            print_text(&format!(
                "wrote to {}: {files}; the token ends {ends}\non {}, as root, beside them: install -m 0640 -g purelb {files} /etc/purelb/{restart}\n",
                dir.display(),
                args.node,
            ))
        }
    }?;
    // A script that asked for a year and has an hour shall not find out in an hour.
    Ok(if shorter { exit_code::INCOMPLETE } else { done })
}

/// A token, when it ends, and whether that is earlier than asked for.
struct NodeToken {
    token: String,
    ends: jiff::Timestamp,
    shorter: bool,
}

/// Where the API server is, and how to know that it is the right one.
struct ApiServer {
    server: String,
    ca_pem: Option<String>,
    tls_name: Option<String>,
}

impl ApiServer {
    async fn find(
        config: &Config,
        client: &Client,
        target: &TargetArgs,
        args: &NodeKubeconfigArgs,
    ) -> CommandResult<Self> {
        let own = config.cluster_url.to_string();
        let server = args.server.clone().unwrap_or(own).trim_end_matches('/').to_owned();
        let uri: http::Uri = server.parse().map_err(|e| bad_server(&server).because(e))?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if uri.scheme_str() != Some("https") || host.is_empty() {
            return Err(bad_server(&server));
        }
        let here = host.parse::<std::net::IpAddr>().map_or(host == "localhost", |ip| ip.is_loopback());
        if here {
            print_notes(&[format!("{server} is this machine only; where do nodes reach it? (--server)")]);
        }
        let ca_pem = match &config.root_cert {
            Some(certificates) => Some(certificates.iter().map(|der| to_pem(der)).collect()),
            None if config.accept_invalid_certs => {
                Some(read_published_ca(client, &target.install_namespace).await?)
            }
            // Verified by the system's authorities here, and so on the node.
            None => None,
        };
        // A name for another host's sake says nothing about the server given.
        let tls_name = config.tls_server_name.clone().filter(|_| args.server.is_none());
        Ok(Self { server, ca_pem, tls_name })
    }

    fn kubeconfig(&self, target: &TargetArgs, credential: &Credential<'_>) -> String {
        let cluster = Cluster {
            server: &self.server,
            ca_pem: self.ca_pem.as_deref(),
            tls_server_name: self.tls_name.as_deref(),
        };
        kubeconfig(&cluster, &target.install_namespace, credential)
    }
}

fn bad_server(server: &str) -> CommandError {
    CommandError::new(format!("{server:?} is not where an API server is"))
        .next("give --server https://HOST:PORT, as the nodes reach it")
}

/// A kubeconfig that verifies nothing names no authority; the cluster does.
async fn read_published_ca(client: &Client, namespace: &str) -> CommandResult<String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let published = maps.get_opt(ROOT_CA_CONFIGMAP).await.ok().flatten();
    published.and_then(|map| map.data?.remove("ca.crt")).ok_or_else(|| {
        CommandError::new("your kubeconfig verifies no certificate and names no authority")
            .next("a node has to know the API server: use a kubeconfig with certificate-authority-data")
    })
}

async fn get_node(client: &Client, name: &str) -> CommandResult<Node> {
    let nodes: Api<Node> = Api::all(client.clone());
    let wrong =
        |e: kube::Error| CommandError::new(format!("cannot read Node {name}")).because(error_cause(&e));
    if let Some(node) = nodes.get_opt(name).await.map_err(wrong)? {
        return Ok(node);
    }
    let all: Vec<String> = match nodes.list_metadata(&ListParams::default()).await {
        Ok(list) => list.items.iter().map(ResourceExt::name_any).collect(),
        Err(_) => Vec::new(),
    };
    let near = did_you_mean(name, all.iter().map(String::as_str));
    let next = near.map_or("see `kubectl get nodes`".to_owned(), |near| format!("did you mean {near}?"));
    Err(CommandError::new(format!("there is no Node {name}")).next(next))
}

async fn request_token(
    client: &Client,
    target: &TargetArgs,
    args: &NodeKubeconfigArgs,
    node: &Node,
) -> CommandResult<NodeToken> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &target.install_namespace);
    let seconds = i64::try_from(args.duration.as_secs()).unwrap_or(i64::MAX);
    let asked = token_request(node, seconds);
    let made = accounts.create_token_request(DAEMON_ACCOUNT, &PostParams::default(), &asked).await;
    let status = match made {
        Ok(made) => made.status.unwrap_or_default(),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let what = format!("there is no ServiceAccount {}/{DAEMON_ACCOUNT}", target.install_namespace);
            return Err(CommandError::new(what)
                .next(format!("install the manifests: `kubectl apply -k {MANIFEST_DIRECTORY}`")));
        }
        Err(error) => {
            return Err(CommandError::new("the API server gives no token")
                .because(error_cause(&error))
                .next("it takes an administrator, and Kubernetes 1.31 or newer for tokens bound to a Node"));
        }
    };
    let (Some(token), Some(ends)) = (status.token, status.expiration_timestamp) else {
        return Err(CommandError::new("the API server answered without a token"));
    };
    let ends = ends.0;
    let lasts = ends.as_second().saturating_sub(jiff::Timestamp::now().as_second());
    let mut notes = vec![format!(
        "the token ends {ends}; the daemon asks for its next one itself, see {MANIFEST_DIRECTORY}/README.md"
    )];
    // A minute for clocks that differ.
    let shorter = lasts.saturating_add(60) < seconds;
    if shorter {
        let (given, asked) = (lasts.max(0).unsigned_abs(), args.duration.as_secs());
        notes.push(format!(
            "the API server gave {} of the {} asked for: that is its limit (exit code {})",
            format_hours(given),
            format_hours(asked),
            exit_code::INCOMPLETE
        ));
    }
    print_notes(&notes);
    Ok(NodeToken { token, ends, shorter })
}

fn format_hours(seconds: u64) -> String {
    if seconds < 3600 { format!("{} min", seconds / 60) } else { format!("{} h", seconds / 3600) }
}

/// For nobody but the one who asked; replaces an earlier one as a whole.
fn write_private(dir: &Path, name: &str, text: &str) -> CommandResult<()> {
    let path = dir.join(name);
    let attempt = || -> std::io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let part = dir.join(format!(".{name}.{}", std::process::id()));
        let written = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&part)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| std::fs::rename(&part, &path));
        if written.is_err() {
            // Nothing of it is of use to anybody.
            let _ = std::fs::remove_file(&part);
        }
        written
    };
    attempt().map_err(|e| {
        let what = format!("cannot write {}", path.display());
        CommandError::new(what).because(e).next("give a directory you may write to with --output-dir")
    })
}

/// A certificate as kubeconfigs have it.
fn to_pem(der: &[u8]) -> String {
    let encoded = serde_json::json!(ByteString(der.to_vec()));
    let text = encoded.as_str().unwrap_or_default();
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|i| &text[i..text.len().min(i + 64)]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn certificates_are_wrapped_as_pem() {
        let text = to_pem(&[0xff; 60]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0], lines[1].len(), lines[2].len()), ("-----BEGIN CERTIFICATE-----", 64, 16));
        assert!(text.ends_with("-----END CERTIFICATE-----\n"));
    }

    #[test]
    fn files_are_private_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("worker-1");
        for text in ["one", "two"] {
            write_private(&inner, "token", text).unwrap();
            assert_eq!(std::fs::read_to_string(inner.join("token")).unwrap(), text);
        }
        let mode = std::fs::metadata(inner.join("token")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(&inner).unwrap().count(), 1, "no leftovers");
        let failure = write_private(&inner.join("token"), "token", "x").unwrap_err();
        assert!(failure.to_string().contains("--output-dir"), "{failure}");
    }
}
