//! The allocator as a client of the daemons' control API, over mutual TLS.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use futures::Stream;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use purelb_kit::controlplane::{LabCa, fixtures};
use purelb_kit::embedded::{EmbeddedApi, Verb};
use purelb_kit::faults::{End, Fault, Matcher, Proxy};
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

/// The Lease of a node whose daemon listens there.
async fn lease(api: &EmbeddedApi, node: &str, endpoint: SocketAddr) -> Result<()> {
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(jiff::Timestamp::now());
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": format!("purelb-node-{node}"),
            "labels": {"app.kubernetes.io/name": "purelb", "app.kubernetes.io/component": "lbnodeagent"},
            "annotations": {"purelb.io/subnets": "192.0.2.0/24", "purelb.io/control-endpoint": endpoint.to_string()}},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 600, "renewTime": now}}))?;
    Api::<Lease>::namespaced(api.client("user")?, SYSTEM).create(&PostParams::default(), &lease).await?;
    Ok(())
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
    lease(api, "n1", endpoint).await?;
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

/// A watch that breaks says nothing about Nodes. The label that keeps a Node out of load
/// balancing is no reason for a drain: its daemon heeds it, or is told not to.
#[tokio::test]
async fn a_cordoned_node_stays_drained_while_the_watch_is_broken_and_a_labelled_one_is_not() -> Result<()> {
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
    let cordon = |on: bool| Patch::Merge(json!({"spec": {"unschedulable": on}}));
    nodes.patch("n1", &merge, &Patch::Merge(label(json!("")))).await?;
    nodes.patch("n1", &merge, &cordon(true)).await?;
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
    // Labelled all the while.
    nodes.patch("n1", &merge, &cordon(false)).await?;
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

/// A daemon that does not answer is not the only one to ask; nor is one that takes the
/// connection and says nothing.
#[tokio::test]
async fn a_dead_daemon_is_not_the_only_one_asked() -> Result<()> {
    let api = EmbeddedApi::start().await?;
    let (ca, daemon) = (LabCa::new()?, Daemon::default());
    furnish(&api, &ca, serve(daemon.clone(), &ca).await?).await?;
    let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    lease(&api, "a-dead", closed).await?;
    lease(&api, "b-silent", silent.local_addr()?).await?;
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

/// The list of drained nodes cannot be read at first: nothing on it is forgotten.
#[tokio::test]
async fn drains_are_remembered_when_the_list_cannot_be_read_at_once() -> Result<()> {
    let api = EmbeddedApi::start().await?;
    let proxy = Proxy::before(&api).start().await?;
    let (ca, daemon) = (LabCa::new()?, Daemon::default());
    furnish(&api, &ca, serve(daemon.clone(), &ca).await?).await?;
    let nodes: Api<Node> = Api::all(api.client("user")?);
    let leases: Api<Lease> = Api::namespaced(api.client("user")?, SYSTEM);
    let merge = PatchParams::default();
    let mut settings = settings();
    settings.drain_cordoned = true;
    let cordon = |on: bool| Patch::Merge(json!({"spec": {"unschedulable": on}}));
    nodes.patch("n1", &merge, &cordon(true)).await?;
    let first = Running::start(api.client("first")?, settings.clone()).await?;
    asked(&daemon, &["drain"]).await?;
    let mark = json!({"metadata": {"annotations": {"purelb.io/draining": "2026-01-01T00:00:00Z"}}});
    leases.patch("purelb-node-n1", &merge, &Patch::Merge(mark)).await?;
    first.stop().await?;
    // The successor wins, and then cannot read the Lease for a while: its first read is the
    // election's, the next ones are of the list.
    let seen = Arc::new(AtomicU64::new(0));
    let count = seen.clone();
    let refused = proxy.inject(
        Fault::answer(500)
            .on(Verb::Get)
            .of("leases")
            .times(2)
            .when(move |_| count.fetch_add(1, Ordering::Relaxed) >= 1),
    );
    let second = Running::start(proxy.client("second")?, settings).await?;
    second.leads().await?;
    nodes.patch("n1", &merge, &cordon(false)).await?;
    asked(&daemon, &["drain", "undrain"]).await?;
    let reads = seen.load(Ordering::Relaxed);
    assert!(refused.hits() == 2 && reads > 3, "{} of {reads}", refused.hits());
    second.stop().await
}

/// A Node that was deleted and made anew is another one: a drain of it is not ours.
#[tokio::test]
async fn a_drain_of_a_node_made_anew_is_left_alone() -> Result<()> {
    let api = EmbeddedApi::start().await?;
    let (ca, daemon) = (LabCa::new()?, Daemon::default());
    furnish(&api, &ca, serve(daemon.clone(), &ca).await?).await?;
    let nodes: Api<Node> = Api::all(api.client("user")?);
    let leases: Api<Lease> = Api::namespaced(api.client("user")?, SYSTEM);
    let merge = PatchParams::default();
    let mut settings = settings();
    settings.drain_cordoned = true;
    let running = Running::start(api.client("allocator")?, settings.clone()).await?;
    running.leads().await?;
    nodes.patch("n1", &merge, &Patch::Merge(json!({"spec": {"unschedulable": true}}))).await?;
    asked(&daemon, &["drain"]).await?;
    let mark = json!({"metadata": {"annotations": {"purelb.io/draining": "2026-01-01T00:00:00Z"}}});
    leases.patch("purelb-node-n1", &merge, &Patch::Merge(mark)).await?;
    let noted = async |what: &str, is: &(dyn Fn(&str) -> bool + Sync)| {
        eventually(what, PATIENCE, || async {
            let lease = leases.get("purelb-allocator").await.map_err(|e| e.to_string())?;
            let text = lease.metadata.annotations.unwrap_or_default().remove("purelb.io/drained-nodes");
            if is(text.as_deref().unwrap_or_default()) { Ok(()) } else { Err(format!("{text:?}")) }
        })
        .await
    };
    let uid = nodes.get("n1").await?.metadata.uid.unwrap_or_default();
    noted("noted with its uid", &|text| text == format!("n1/{uid}")).await?;
    // While nobody looks, the machine is replaced, and its operator drains the new one.
    running.stop().await?;
    nodes.delete("n1", &kube::api::DeleteParams::default()).await?;
    nodes.create(&PostParams::default(), &fixtures::node("n1")).await?;
    let second = Running::start(api.client("second")?, settings).await?;
    noted("forgotten", &str::is_empty).await?;
    second.stop().await?;
    asked(&daemon, &["drain"]).await
}
