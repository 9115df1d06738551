//! Who talks to the API server, and with which rights.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Node, ServiceAccount as ServiceAccountObject};
use kube::api::PostParams;
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};

use super::ControlPlane;

/// How long tokens are good for: longer than any test, short enough to be refused
/// by nothing (the server's least is ten minutes).
const TOKEN_SECONDS: i64 = 3600;

/// A service account by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccount {
    pub namespace: String,
    pub name: String,
}

impl ServiceAccount {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// The account of the node daemons in the manifests.
    pub fn node_daemon() -> Self {
        Self::new("purelb-system", "purelbd")
    }

    /// The account of the allocator in the manifests.
    pub fn allocator() -> Self {
        Self::new("purelb-system", "purelb-allocator")
    }
}

impl ControlPlane {
    /// A client with every right, for a test's own hands. A new one at each call:
    /// a client belongs to the runtime that made it.
    pub fn admin(&self) -> Result<Client> {
        self.client_with_token(&self.url(), &self.admin_token)
    }

    /// A client that is this service account: its rights and nothing more.
    pub async fn client_for(&self, account: &ServiceAccount) -> Result<Client> {
        self.client_with_token(&self.url(), &self.token_for(account).await?)
    }

    /// A client with this bearer token, verifying the server by the lab's CA.
    pub fn client_with_token(&self, server_url: &str, token: &str) -> Result<Client> {
        let mut config =
            Config::new(server_url.parse().with_context(|| format!("server address {server_url:?}"))?);
        config.root_cert = Some(vec![self.ca.cert_der()]);
        config.auth_info.token = Some(token.to_owned().into());
        Ok(Client::try_from(config)?)
    }

    /// A real token of the account, from the TokenRequest API.
    pub async fn token_for(&self, account: &ServiceAccount) -> Result<String> {
        self.request_token(account, None).await
    }

    /// A token that also says on which Node it is used, and ends with that Node.
    pub async fn token_for_node(&self, account: &ServiceAccount, node: &Node) -> Result<String> {
        let bound = BoundObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Node".into()),
            name: Some(node.name_any()),
            uid: node.uid(),
        };
        self.request_token(account, Some(bound)).await
    }

    /// The daemon of a node that is there: its token is bound to it.
    pub async fn daemon_of(&self, node: &str) -> Result<Client> {
        let node = Api::<Node>::all(self.admin()?).get(node).await?;
        let token = self.token_for_node(&ServiceAccount::node_daemon(), &node).await?;
        self.client_with_token(&self.url(), &token)
    }

    async fn request_token(
        &self,
        account: &ServiceAccount,
        bound: Option<BoundObjectReference>,
    ) -> Result<String> {
        let accounts: Api<ServiceAccountObject> = Api::namespaced(self.admin()?, &account.namespace);
        let spec = TokenRequestSpec {
            bound_object_ref: bound,
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = accounts
            .create_token_request(&account.name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("a token for {account:?} (are the manifests applied?)"))?;
        answer.status.and_then(|s| s.token).context("the token request was answered without a token")
    }

    /// Writes a kubeconfig for a daemon that reaches the server at `server_url`: its
    /// own address, another one it is reached as, or a proxy with a certificate of
    /// the lab's CA. The file disappears with the control plane.
    pub async fn kubeconfig_for(&self, account: &ServiceAccount, server_url: &str) -> Result<PathBuf> {
        self.kubeconfig_with_token(server_url, &self.token_for(account).await?)
    }

    /// The same with any token, such as one bound to a node.
    pub fn kubeconfig_with_token(&self, server_url: &str, token: &str) -> Result<PathBuf> {
        self.write_kubeconfig(&self.kubeconfig_text(server_url, &json!({"token": token})))
    }

    /// The same with the token in a file beside it, which a test may replace while
    /// the daemon runs. Answers (kubeconfig, token file).
    pub fn kubeconfig_with_token_file(&self, server_url: &str, token: &str) -> Result<(PathBuf, PathBuf)> {
        let file = self.dir().join(format!("{}.token", uuid::Uuid::new_v4()));
        fs::write(&file, token)?;
        let kubeconfig =
            self.write_kubeconfig(&self.kubeconfig_text(server_url, &json!({"tokenFile": file})))?;
        Ok((kubeconfig, file))
    }

    /// The administrator's kubeconfig, for commands an operator would run.
    pub fn admin_kubeconfig(&self, server_url: &str) -> Result<PathBuf> {
        self.kubeconfig_with_token(server_url, &self.admin_token)
    }

    fn write_kubeconfig(&self, text: &str) -> Result<PathBuf> {
        let path = self.dir().join(format!("{}.kubeconfig", uuid::Uuid::new_v4()));
        fs::write(&path, text)?;
        Ok(path)
    }

    /// A kubeconfig is YAML, and JSON is YAML: no writer needed.
    fn kubeconfig_text(&self, server_url: &str, user: &Value) -> String {
        let ca = ByteString(self.ca.cert_pem().into_bytes());
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": {"server": server_url, "certificate-authority-data": ca}}],
            "users": [{"name": "lab", "user": user}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab", "namespace": "purelb-system"}}],
            "current-context": "lab",
        });
        config.to_string()
    }
}

/// What the server answers to a bare request: the status code and its words.
pub async fn ask(client: &Client, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, String)> {
    let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
    let request =
        http::Request::builder().method(method).uri(path).header("Content-Type", content).body(body)?;
    match client.request_text(request).await {
        Ok(text) => Ok((200, text)),
        Err(kube::Error::Api(status)) => Ok((status.code, status.message)),
        Err(e) => Err(e).with_context(|| format!("{method} {path}")),
    }
}
