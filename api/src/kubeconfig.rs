//! How a node daemon gets at the API server: a token of its account that is bound to
//! the Node, and a kubeconfig around it. Pure; whoever calls the API server is
//! somebody else.

use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::{Value, json};

/// The daemons' ServiceAccount in the manifests.
pub const DAEMON_ACCOUNT: &str = "purelbd";

/// To be sent to `serviceaccounts/purelbd/token` in the install namespace. The token
/// ends with the Node object, and a policy of the manifests lets it write that node's
/// Lease only: a stolen one cannot fence other nodes.
pub fn token_request(node: &Node, seconds: i64) -> TokenRequest {
    let bound = BoundObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: Some(node.name_any()),
        uid: node.uid(),
    };
    let spec = TokenRequestSpec {
        bound_object_ref: Some(bound),
        expiration_seconds: Some(seconds),
        ..TokenRequestSpec::default()
    };
    TokenRequest { spec: Some(spec), ..TokenRequest::default() }
}

/// What a daemon authenticates with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential<'a> {
    Token(&'a str),
    /// A file beside the kubeconfig that somebody renews.
    TokenFile(&'a str),
}

/// Where the API server is, and how a daemon knows that it is the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster<'a> {
    pub server: &'a str,
    /// None: the system's authorities are trusted.
    pub ca_pem: Option<&'a str>,
    /// The name in its certificate, where that is not the host of `server`.
    pub tls_server_name: Option<&'a str>,
}

/// The kubeconfig's text. It is YAML by being JSON.
pub fn kubeconfig(cluster: &Cluster<'_>, namespace: &str, credential: &Credential<'_>) -> String {
    let user: Value = match credential {
        Credential::Token(token) => json!({ "token": token }),
        Credential::TokenFile(path) => json!({ "tokenFile": path }),
    };
    let mut entry = json!({ "server": cluster.server });
    if let Some(pem) = cluster.ca_pem {
        entry["certificate-authority-data"] = json!(ByteString(pem.as_bytes().to_vec()));
    }
    if let Some(name) = cluster.tls_server_name {
        entry["tls-server-name"] = json!(name);
    }
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": entry}],
        "users": [{"name": DAEMON_ACCOUNT, "user": user}],
        "contexts": [{"name": "purelb", "context": {
            "cluster": "cluster", "user": DAEMON_ACCOUNT, "namespace": namespace,
        }}],
        "current-context": "purelb",
    });
    format!("{config:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_bound_to_its_node() {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1", "uid": "u1"}})).unwrap();
        let spec = token_request(&node, 3600).spec.unwrap();
        let bound = spec.bound_object_ref.unwrap();
        assert_eq!((bound.kind.as_deref(), bound.name.as_deref()), (Some("Node"), Some("n1")));
        assert_eq!((bound.uid.as_deref(), spec.expiration_seconds), (Some("u1"), Some(3600)));
    }

    #[test]
    fn kube_reads_the_kubeconfig() {
        let of = |server, ca_pem| Cluster { server, ca_pem, tls_server_name: None };
        let text = kubeconfig(&of("https://api:6443", Some("PEM")), "purelb-system", &Credential::Token("t"));
        let read: kube::config::Kubeconfig = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read.current_context.as_deref(), Some("purelb"));
        let cluster = read.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://api:6443"));
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("UEVN"));
        let file = kubeconfig(&of("https://api", None), "ns", &Credential::TokenFile("/etc/purelb/token"));
        assert!(file.contains("\"tokenFile\": \"/etc/purelb/token\""));
        assert!(!file.contains("certificate-authority"), "nothing that says less than it seems to");
    }
}
