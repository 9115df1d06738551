//! The allocator and real daemons: from a Service to an address on a node, and what the
//! leader asks over the control API. Needs root, for the nodes' network namespaces.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use purelb_e2e::{Cluster, shared_plane, vip};
use purelb_kit::controlplane::process::Process;
use purelb_kit::controlplane::{ServiceAccount, fixtures};
use purelb_kit::lab::Lab;
use purelb_kit::wait::eventually;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);
const PORT: u16 = 7473;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Result<Authority> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "purelb-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

/// Certificate and key as PEM.
fn signed(authority: &Authority, params: CertificateParams) -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    Ok((params.signed_by(&key, authority)?.pem(), key.serialize_pem()))
}

/// What `docs/allocation.md` tells an administrator to make.
async fn client_secret(cluster: &Cluster<'_>, authority: &Authority) -> Result<()> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "purelb-allocator");
    params.subject_alt_names.push(SanType::URI("urn:purelb:role:operator".try_into()?));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let (certificate, key) = signed(authority, params)?;
    let bytes = |text: String| ByteString(text.into_bytes());
    let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "purelb-control-client"},
        "data": {"ca.crt": bytes(authority.pem()), "tls.crt": bytes(certificate), "tls.key": bytes(key)}}))?;
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    secrets.create(&PostParams::default(), &secret).await?;
    Ok(())
}

fn write(dir: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = dir.join(name);
    std::fs::write(&path, text)?;
    Ok(path)
}

/// Two nodes whose daemons listen on TCP, reached through the host's loopback.
async fn nodes(cluster: &mut Cluster<'_>, authority: &Authority) -> Result<()> {
    let dir = cluster.node("a").dir();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let (certificate, key) = signed(authority, params)?;
    let (ca, certificate, key) = (
        write(&dir, "ca.crt", &authority.pem())?,
        write(&dir, "tls.crt", &certificate)?,
        write(&dir, "tls.key", &key)?,
    );
    for name in ["a", "b"] {
        let outside = cluster.node(name).expose(PORT)?;
        let inside = cluster.node(name).management_address().context("a management address")?;
        cluster.settings.toml = format!(
            "[control]\nlisten = \"{inside}:{PORT}\"\nadvertise = \"{outside}\"\ncertificate = {certificate:?}\nkey = {key:?}\nclient_ca = {ca:?}\n"
        );
        cluster.join(name).await?;
    }
    for name in ["a", "b"] {
        cluster.daemon(name).ready(PATIENCE).await?;
    }
    Ok(())
}

async fn allocator(cluster: &Cluster<'_>) -> Result<Process> {
    let account = ServiceAccount::new(&cluster.namespace, "purelb-allocator");
    let kubeconfig = cluster.plane.kubeconfig_for(&account, &cluster.plane.url()).await?;
    let args = [
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--namespace={}", cluster.namespace),
        format!("--class={}", cluster.class),
        "--metrics-address=127.0.0.1:0".into(),
        "--drain-cordoned=true".into(),
        "--announce-patience=2s".into(),
    ];
    let log = cluster.node("a").dir().join("allocator.log");
    Process::start("purelb-allocator", Path::new(env!("CARGO_BIN_EXE_purelb-allocator")), &args, &log)
}

async fn create(cluster: &Cluster<'_>, name: &str, group: &str) -> Result<()> {
    let mut service = fixtures::service(&cluster.namespace, name);
    service.spec.as_mut().unwrap().load_balancer_class = Some(cluster.class.clone());
    service.annotations_mut().insert("purelb.io/service-group".into(), group.into());
    cluster.services().create(&PostParams::default(), &service).await?;
    Ok(())
}

/// Whether the node's Lease says that it drains.
async fn draining(cluster: &Cluster<'_>, node: &str, wanted: bool, allocator: &Process) -> Result<()> {
    let what = format!("{node} drains: {wanted}");
    let waited = eventually(&what, PATIENCE, || async {
        let lease = cluster.lease(node).await.map_err(|e| e.to_string())?.ok_or("no Lease")?;
        let drains = lease.annotations().contains_key("purelb.io/draining");
        if drains == wanted { Ok(()) } else { Err(format!("{:?}", lease.annotations())) }
    });
    waited.await.with_context(|| allocator.log_tail())
}

#[tokio::test]
async fn from_a_service_to_a_node_and_away_when_the_node_is_cordoned() -> Result<()> {
    let plane = shared_plane().await?;
    let lab = Lab::builder().segment("lan", ["192.0.2.0/24"]).node("a", ["lan"]).node("b", ["lan"]);
    let mut cluster = Cluster::new(plane, lab).await?;
    let authority = authority()?;
    client_secret(&cluster, &authority).await?;
    nodes(&mut cluster, &authority).await?;
    let pool = |pool: &str, subnet: &str| json!({"local": {"v4pool": {"pool": pool, "subnet": subnet}}});
    cluster.group("lan", pool("192.0.2.200-192.0.2.210", "192.0.2.0/24")).await?;
    cluster.group("nowhere", pool("198.51.100.200", "198.51.100.0/24")).await?;
    let allocator = allocator(&cluster).await?;

    create(&cluster, "web", "lan").await?;
    let ip = vip("192.0.2.200");
    let holder = cluster.one_holder(ip).await.with_context(|| allocator.log_tail())?;
    let other = if holder == "a" { "b" } else { "a" };
    let node = cluster.node_name(&holder);
    let cordon = |on: bool| Patch::Merge(json!({"spec": {"unschedulable": on}}));
    cluster.nodes().patch(&node, &PatchParams::default(), &cordon(true)).await?;
    draining(&cluster, &holder, true, &allocator).await?;
    cluster.holder_where(ip, "handed over", |name| name == other).await?;
    cluster.nodes().patch(&node, &PatchParams::default(), &cordon(false)).await?;
    draining(&cluster, &holder, false, &allocator).await?;

    // An address nobody announces: the daemons are asked who should.
    create(&cluster, "lost", "nowhere").await?;
    eventually("the daemons were asked", PATIENCE, || async {
        let log = allocator.log_tail();
        let asked = log.contains("no node can take it") && log.contains("198.51.100.200");
        if asked { Ok(()) } else { Err(log) }
    })
    .await?;
    let told: Value = json!(cluster.services().get("lost").await?.status);
    assert_eq!(told["loadBalancer"]["ingress"][0]["ip"], "198.51.100.200", "given, if not announced");
    Ok(())
}
