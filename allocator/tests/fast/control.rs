//! The allocator as a client of the daemons' control API, over mutual TLS.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use futures::Stream;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use purelb_kit::controlplane::{LabCa, fixtures};
use purelb_kit::embedded::EmbeddedApi;
use purelb_kit::faults::{End, Matcher, Proxy};
use purelb_kit::wait::eventually;
use purelb_proto::control::v1::control_server::{Control, ControlServer};
use purelb_proto::control::v1::*;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tonic::{Request, Response, Status};

use crate::common::{Cluster, PATIENCE, SYSTEM, local, settings};
use crate::site::Running;

/// Remembers what it was asked. Answers only what the allocator may ask.
#[derive(Clone, Default)]
struct Daemon {
    calls: Arc<Mutex<Vec<String>>>,
}

impl Daemon {
    fn note(&self, call: &str) {
        self.calls.lock().unwrap().push(call.to_owned());
    }
}

macro_rules! nobodys_business {
    ($($method:ident($request:ty) -> $response:ty;)*) => {
        // As `async_trait` would write it: it does not see what a macro makes.
        $(fn $method<'a, 'b>(
            &'a self,
            _: Request<$request>,
        ) -> Pin<Box<dyn Future<Output = Result<Response<$response>, Status>> + Send + 'b>>
        where
            'a: 'b,
            Self: 'b,
        {
            Box::pin(async { Err(Status::permission_denied(stringify!($method))) })
        })*
    };
}

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Control for Daemon {
    nobodys_business! {
        get_status(GetStatusRequest) -> GetStatusResponse;
        list_members(ListMembersRequest) -> ListMembersResponse;
        list_vips(ListVipsRequest) -> ListVipsResponse;
        list_subnets(ListSubnetsRequest) -> ListSubnetsResponse;
        list_pools(ListPoolsRequest) -> ListPoolsResponse;
        list_events(ListEventsRequest) -> ListEventsResponse;
        explain(ExplainRequest) -> ExplainResponse;
        get_config(GetConfigRequest) -> GetConfigResponse;
        watch_vips(WatchVipsRequest) -> Self::WatchVipsStream;
        watch_events(WatchEventsRequest) -> Self::WatchEventsStream;
    }
    type WatchVipsStream = Messages<WatchVipsResponse>;
    type WatchEventsStream = Messages<Event>;
    type DrainStream = Messages<DrainProgress>;

    async fn winner(&self, request: Request<WinnerRequest>) -> Result<Response<WinnerResponse>, Status> {
        let ip = request.into_inner().ips.remove(0);
        self.note(&format!("winner {ip}"));
        let election = Election { ip, winner: "n1".into(), order: Vec::new() };
        Ok(Response::new(WinnerResponse { results: vec![election] }))
    }

    async fn resync(&self, _: Request<ResyncRequest>) -> Result<Response<ResyncResponse>, Status> {
        self.note("resync");
        Ok(Response::new(ResyncResponse::default()))
    }

    async fn undrain(&self, _: Request<UndrainRequest>) -> Result<Response<UndrainResponse>, Status> {
        self.note("undrain");
        Ok(Response::new(UndrainResponse { was_draining: true }))
    }

    async fn drain(&self, _: Request<DrainRequest>) -> Result<Response<Self::DrainStream>, Status> {
        self.note("drain");
        Ok(Response::new(Box::pin(futures::stream::empty())))
    }
}

/// Serves the daemon; who has no certificate of the authority does not get in.
async fn serve(daemon: Daemon, ca: &LabCa) -> Result<SocketAddr> {
    let plain = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let inside = plain.local_addr()?;
    let server = tonic::transport::Server::builder().add_service(ControlServer::new(daemon));
    let incoming = tonic::transport::server::TcpIncoming::from(plain);
    tokio::spawn(server.serve_with_incoming(incoming));
    let identity = ca.serving(&["127.0.0.1".into()])?;
    let chain =
        CertificateDer::pem_slice_iter(identity.cert_pem.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(ca.cert_der()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tls = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let outside = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = outside.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = outside.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                let mut outer = tls.accept(stream).await.ok()?;
                let mut inner = TcpStream::connect(inside).await.ok()?;
                tokio::io::copy_bidirectional(&mut outer, &mut inner).await.ok()
            });
        }
    });
    Ok(address)
}

async fn asked(daemon: &Daemon, expected: &[&str]) -> Result<()> {
    eventually(&format!("the daemon was asked {expected:?}"), PATIENCE, || async {
        let calls = daemon.calls.lock().unwrap().clone();
        if calls == expected { Ok(()) } else { Err(calls) }
    })
    .await
}

async fn furnish(api: &EmbeddedApi, ca: &LabCa, endpoint: SocketAddr) -> Result<()> {
    let client = api.client("user")?;
    let identity = ca.client("purelb-allocator", None)?;
    let bytes = |text: String| k8s_openapi::ByteString(text.into_bytes());
    let secret: Secret = serde_json::from_value(
        json!({"metadata": {"name": "purelb-control-client"}, "data": {
        "ca.crt": bytes(ca.cert_pem()), "tls.crt": bytes(identity.cert_pem), "tls.key": bytes(identity.key_pem)}}),
    )?;
    Api::<Secret>::namespaced(client.clone(), SYSTEM).create(&PostParams::default(), &secret).await?;
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(jiff::Timestamp::now());
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": "purelb-node-n1",
            "labels": {"app.kubernetes.io/name": "purelb", "app.kubernetes.io/component": "lbnodeagent"},
            "annotations": {"purelb.io/subnets": "192.0.2.0/24", "purelb.io/control-endpoint": endpoint.to_string()}},
        "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 600, "renewTime": now}}))?;
    Api::<Lease>::namespaced(client.clone(), SYSTEM).create(&PostParams::default(), &lease).await?;
    Api::<Node>::all(client).create(&PostParams::default(), &fixtures::node("n1")).await?;
    Ok(())
}

#[tokio::test]
async fn a_cordoned_node_is_drained_and_taken_back() -> Result<()> {
    let api = EmbeddedApi::start().await?;
    let (ca, daemon) = (LabCa::new()?, Daemon::default());
    furnish(&api, &ca, serve(daemon.clone(), &ca).await?).await?;
    let mut settings = settings();
    settings.drain_cordoned = true;
    let running = Running::start(api.client("allocator")?, settings.clone()).await?;
    running.leads().await?;
    let nodes: Api<Node> = Api::all(api.client("user")?);
    let leases: Api<Lease> = Api::namespaced(api.client("user")?, SYSTEM);
    let merge = PatchParams::default();
    nodes.patch("n1", &merge, &Patch::Merge(json!({"spec": {"unschedulable": true}}))).await?;
    asked(&daemon, &["drain"]).await?;
    let mark = |at: serde_json::Value| json!({"metadata": {"annotations": {"purelb.io/draining": at}}});
    leases.patch("purelb-node-n1", &merge, &Patch::Merge(mark(json!("2026-01-01T00:00:00Z")))).await?;
    // Another replica knows whose drain it was.
    running.stop().await?;
    let second = Running::start(api.client("second")?, settings).await?;
    second.leads().await?;
    nodes.patch("n1", &merge, &Patch::Merge(json!({"spec": {"unschedulable": false}}))).await?;
    asked(&daemon, &["drain", "undrain"]).await?;
    leases.patch("purelb-node-n1", &merge, &Patch::Merge(mark(serde_json::Value::Null))).await?;
    eventually("the drain is forgotten", PATIENCE, || async {
        let lease = leases.get("purelb-allocator").await.map_err(|e| e.to_string())?;
        let text = lease.metadata.annotations.unwrap_or_default().remove("purelb.io/drained-nodes");
        if text.as_deref() == Some("") { Ok(()) } else { Err(format!("{text:?}")) }
    })
    .await?;
    // An operator's own drain stays.
    leases.patch("purelb-node-n1", &merge, &Patch::Merge(mark(json!("2026-01-01T00:00:00Z")))).await?;
    nodes.patch("n1", &merge, &Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}))).await?;
    second.stop().await?;
    asked(&daemon, &["drain", "undrain"]).await
}

/// A label asks for the same as a cordon; a watch that breaks says nothing about Nodes.
#[tokio::test]
async fn an_excluded_node_stays_drained_while_the_watch_is_broken() -> Result<()> {
    let api = EmbeddedApi::start().await?;
    let proxy = Proxy::before(&api).start().await?;
    let (ca, daemon) = (LabCa::new()?, Daemon::default());
    furnish(&api, &ca, serve(daemon.clone(), &ca).await?).await?;
    let mut settings = settings();
    settings.drain_cordoned = true;
    let running = Running::start(proxy.client("allocator")?, settings).await?;
    running.leads().await?;
    let nodes: Api<Node> = Api::all(api.client("user")?);
    let leases: Api<Lease> = Api::namespaced(api.client("user")?, SYSTEM);
    let merge = PatchParams::default();
    let label = |value: serde_json::Value| json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": value}}});
    nodes.patch("n1", &merge, &Patch::Merge(label(json!("")))).await?;
    asked(&daemon, &["drain"]).await?;
    let mark = json!({"metadata": {"annotations": {"purelb.io/draining": "2026-01-01T00:00:00Z"}}});
    leases.patch("purelb-node-n1", &merge, &Patch::Merge(mark)).await?;
    let before = proxy.counters().watches_opened;
    proxy.end_watches(&Matcher::all(), End::Stale);
    eventually("everything is watched again", PATIENCE, || async {
        let opened = proxy.counters().watches_opened - before;
        if opened >= 5 { Ok(()) } else { Err(opened) }
    })
    .await?;
    asked(&daemon, &["drain"]).await?;
    nodes.patch("n1", &merge, &Patch::Merge(label(serde_json::Value::Null))).await?;
    asked(&daemon, &["drain", "undrain"]).await?;
    running.stop().await
}

#[tokio::test]
async fn an_address_nobody_announces_is_asked_about() -> Result<()> {
    let api = EmbeddedApi::start().await?;
    let (ca, daemon) = (LabCa::new()?, Daemon::default());
    furnish(&api, &ca, serve(daemon.clone(), &ca).await?).await?;
    let mut settings = settings();
    settings.announce_patience = Duration::from_millis(200);
    let running = Running::start(api.client("allocator")?, settings).await?;
    let c = Cluster::new(api.client("user")?);
    c.namespace("shop").await?;
    c.group("default", local(json!({"v4pool": {"pool": "192.0.2.10", "subnet": "192.0.2.0/24"}}))).await?;
    c.service("shop/a", &[]).await?;
    c.has("shop/a", &["192.0.2.10"]).await?;
    asked(&daemon, &["winner 192.0.2.10", "resync"]).await?;
    running.stop().await
}
