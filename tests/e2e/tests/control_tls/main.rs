//! The control API over TCP: who gets in, who does not, and what each is told.

mod certs;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use certs::{Authority, Client};
use purelb_e2e::{Answer, Cluster, Running, Wish, purelbctl, shared_plane};
use purelb_kit::controlplane::ServiceAccount;
use purelb_kit::lab::Lab;
use purelb_kit::wait::eventually;

const WITHIN: Duration = Duration::from_secs(40);
const PORT: u16 = 7473;

struct Rig<'p> {
    cluster: Cluster<'p>,
    good: Authority,
    bad: Authority,
    address: SocketAddr,
    served: certs::Files,
    kubeconfig: PathBuf,
}

/// Two nodes whose daemons listen on TCP, reached through the host's loopback.
async fn rig<'p>() -> Result<Rig<'p>> {
    let plane = shared_plane().await?;
    let lab = Lab::builder().segment("lan", ["192.0.2.0/24"]).node("a", ["lan"]).node("b", ["lan"]);
    let mut cluster = Cluster::new(plane, lab).await?;
    let directory = cluster.node("a").dir();
    let good = Authority::new(&directory, "good")?;
    let bad = Authority::new(&directory, "bad")?;
    let served = good.serving("purelbd")?;
    let mut first = None;
    for name in ["a", "b"] {
        let outside = cluster.node(name).expose(PORT)?;
        let inside = cluster.node(name).management_address().context("a management address")?;
        cluster.settings.toml = format!(
            "[control]\nlisten = \"{inside}:{PORT}\"\nadvertise = \"{outside}\"\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\n",
            served.cert,
            served.key,
            good.file(),
        );
        cluster.join(name).await?;
        first.get_or_insert(outside);
    }
    for name in ["a", "b"] {
        cluster.daemon(name).ready(WITHIN).await?;
    }
    let account = ServiceAccount::new(&cluster.namespace, "purelbd");
    // For reading, which a token that is bound to no node may.
    let kubeconfig = plane.kubeconfig_for(&account, &format!("https://127.0.0.1:{}", plane.port())).await?;
    let address = first.context("two nodes")?;
    Ok(Rig { cluster, good, bad, address, served, kubeconfig })
}

impl Rig<'_> {
    /// `purelbctl` with these certificates, straight to a's daemon.
    async fn ask(&self, ca: &Path, files: &certs::Files, arguments: &str) -> Result<Answer> {
        let endpoint = self.address.to_string();
        let flags = files.flags(ca);
        let mut all: Vec<&str> = vec!["--endpoint", &endpoint];
        all.extend(flags.iter().map(String::as_str));
        all.extend(arguments.split_whitespace());
        Running::start(&all, &[])?.finish(WITHIN).await
    }

    async fn log_has(&self, words: &str) -> Result<()> {
        eventually(&format!("the log says {words:?}"), WITHIN, || {
            let log = self.cluster.daemon("a").log();
            async move { if log.contains(words) { Ok(()) } else { Err(log) } }
        })
        .await
    }
}

#[tokio::test]
async fn a_certificate_decides_who_may_do_what() -> Result<()> {
    let rig = rig().await?;
    let ca = rig.good.file();
    let operator = rig.good.client("olga", Client { unit: Some("purelb:operator"), ..Client::default() })?;
    let reader =
        rig.good.client("rita", Client { uri: Some("urn:purelb:role:reader"), ..Client::default() })?;
    let nobody = rig.good.client("nora", Client { unit: Some("accounting"), ..Client::default() })?;

    for files in [&operator, &reader] {
        let seen = rig.ask(&ca, files, "get members -o name").await?;
        assert_eq!((seen.code, seen.out.lines().count()), (0, 2), "{seen:?}");
        let dry = rig.ask(&ca, files, "drain --dry-run").await?;
        assert_eq!(dry.code, 0, "looking is reading: {dry:?}");
    }
    for call in ["drain", "undrain", "resync"] {
        let refused = rig.ask(&ca, &reader, call).await?;
        assert_ne!(refused.code, 0, "{call}: {refused:?}");
        assert!(
            refused.err.contains("needs the role operator, and the certificate gives reader"),
            "{refused:?}"
        );
    }
    rig.log_has("audit: Drain by \"CN=rita\"").await?;
    rig.log_has("audit: Resync by \"CN=rita\"").await?;
    assert_eq!(rig.ask(&ca, &operator, "undrain").await?.code, 0);
    rig.log_has("audit: Undrain by \"CN=olga").await?;

    let refused = rig.ask(&ca, &nobody, "status").await?;
    assert!(refused.code == 2 && refused.err.contains("the certificate gives no role"), "{refused:?}");
    rig.log_has("audit: a call by \"CN=nora").await?;
    Ok(())
}

#[tokio::test]
async fn strangers_are_turned_away_with_a_reason() -> Result<()> {
    let rig = rig().await?;
    let ca = rig.good.file();
    let stranger = rig.bad.client("eve", Client { unit: Some("purelb:operator"), ..Client::default() })?;
    let refused = rig.ask(&ca, &stranger, "status").await?;
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("does not accept your certificate"), "{refused:?}");
    rig.log_has("refused: invalid peer certificate: UnknownIssuer").await?;

    // Our own program says it before it asks; another one is refused by the daemon.
    let expired = rig
        .good
        .client("old", Client { unit: Some("purelb:operator"), expired: true, ..Client::default() })?;
    let refused = rig.ask(&ca, &expired, "status").await?;
    assert!(refused.err.contains("has expired"), "{refused:?}");
    handshake(rig.address, &ca, Some(&expired), &rustls::version::TLS13)?;
    rig.log_has("refused: invalid peer certificate: certificate expired").await?;

    let good = rig.good.client("olga", Client { unit: Some("purelb:operator"), ..Client::default() })?;
    let old = handshake(rig.address, &ca, Some(&good), &rustls::version::TLS12)?;
    assert!(old.contains("ProtocolVersion") || old.contains("protocol version"), "{old}");
    rig.log_has("refused: peer is incompatible").await?;
    let bare = handshake(rig.address, &ca, None, &rustls::version::TLS13)?;
    assert!(bare.contains("ertificate"), "{bare}");
    rig.log_has("refused: peer sent no certificates").await?;

    // The daemon must show one that we trust, too.
    let other = rig.ask(&rig.bad.file(), &good, "status").await?;
    assert!(other.code == 2 && other.err.contains("not from the authority in --ca"), "{other:?}");
    let name = rig.ask(&ca, &good, "--tls-name elsewhere status").await?;
    assert!(name.err.contains("is not for elsewhere"), "{name:?}");
    Ok(())
}

/// A client of another make. What it was told, in words.
fn handshake(
    address: SocketAddr,
    ca: &Path,
    client: Option<&certs::Files>,
    version: &'static rustls::SupportedProtocolVersion,
) -> Result<String> {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])?
        .with_root_certificates(roots);
    let config = match client {
        Some(files) => config.with_client_auth_cert(
            vec![CertificateDer::from_pem_file(&files.cert)?],
            PrivateKeyDer::from_pem_file(&files.key)?,
        )?,
        None => config.with_no_client_auth(),
    };
    let mut session = rustls::ClientConnection::new(Arc::new(config), "purelbd".try_into()?)?;
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut tls = rustls::Stream::new(&mut session, &mut stream);
    let told = tls.write_all(b"hello").and_then(|()| tls.read(&mut [0; 16]));
    Ok(told.map_or_else(|e| e.to_string(), |n| format!("{n} bytes")))
}

#[tokio::test]
async fn all_nodes_at_once_and_one_by_name() -> Result<()> {
    let rig = rig().await?;
    let operator = rig.good.client("olga", Client { unit: Some("purelb:operator"), ..Client::default() })?;
    let vips = rig.cluster.won_by("a", &["a", "b"], 1, 0)?;
    rig.cluster.serve(Wish::new("web", vips.clone())).await?;
    rig.cluster.announced_by("a", &vips).await?;
    let config = rig.kubeconfig.display().to_string();
    let flags = operator.flags(&rig.good.file());
    let run = async |words: &str| -> Result<Answer> {
        let mut all =
            vec!["--kubeconfig", config.as_str(), "--install-namespace", rig.cluster.namespace.as_str()];
        all.extend(flags.iter().map(String::as_str));
        all.extend(words.split_whitespace());
        Running::start(&all, &[])?.finish(WITHIN).await
    };
    let (a, b) = (rig.cluster.node_name("a"), rig.cluster.node_name("b"));
    let all = run("--all get vips -o json").await?;
    let seen = all.json()?;
    let reason = |i: usize| {
        (seen[i]["on"].as_str().unwrap_or_default(), seen[i]["reason"].as_str().unwrap_or_default())
    };
    assert_eq!([reason(0), reason(1)], [(a.as_str(), "Announcing"), (b.as_str(), "NotWinner")], "{all:?}");
    let one = run(&format!("--node {b} status -o name")).await?;
    assert_eq!((one.code, one.out.as_str()), (0, format!("{b} ok\n").as_str()), "{one:?}");
    let wrong = run(&format!("--node {a}x status")).await?;
    assert!(wrong.err.contains(&format!("did you mean {a}?")), "{wrong:?}");
    assert!(run("--all drain").await?.err.contains("one node at a time"));
    // One daemon that does not answer does not hide the other.
    rig.cluster.daemon("b").process().kill()?;
    let rest = run("--all status -o table").await?;
    assert!(rest.code == 2 && rest.out.contains(&a) && rest.out.contains(&format!("{b}:")), "{rest:?}");
    // And the cluster's objects are checked with the same rights.
    let checked = run("validate --cluster").await?;
    assert!(checked.out.contains("1 LBNodeAgents"), "{checked:?}");
    Ok(())
}

/// The way to a daemon is read from a Lease. One that leads to another node's daemon must
/// not have that one drained.
#[tokio::test]
async fn a_drain_that_was_meant_for_another_node_is_refused() -> Result<()> {
    let rig = rig().await?;
    let operator = rig.good.client("olga", Client { unit: Some("purelb:operator"), ..Client::default() })?;
    let forged = serde_json::json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": "purelb-node-ghost", "namespace": rig.cluster.namespace,
            "labels": {"app.kubernetes.io/name": "purelb", "app.kubernetes.io/component": "lbnodeagent"},
            "annotations": {"purelb.io/control-endpoint": rig.address.to_string(), "purelb.io/instance": "x"},
        },
        "spec": {"holderIdentity": "ghost", "leaseDurationSeconds": 10, "renewTime": "2026-01-02T03:04:05.000001Z"},
    });
    rig.cluster.leases().create(&kube::api::PostParams::default(), &serde_json::from_value(forged)?).await?;
    let config = rig.kubeconfig.display().to_string();
    let flags = operator.flags(&rig.good.file());
    for call in ["drain", "drain --dry-run", "undrain", "resync"] {
        let mut words =
            vec!["--kubeconfig", &config, "--install-namespace", &rig.cluster.namespace, "--node", "ghost"];
        words.extend(flags.iter().map(String::as_str));
        words.extend(call.split_whitespace());
        let refused = Running::start(&words, &[])?.finish(WITHIN).await?;
        let a = rig.cluster.node_name("a");
        let why = format!("ghost is meant, and this is the daemon of {a}");
        assert!(refused.code != 0 && refused.err.contains(&why), "{call}: {refused:?}");
    }
    rig.log_has("ghost is meant").await?;
    let lease = rig.cluster.lease("a").await?.context("a's Lease")?;
    let drains = lease.metadata.annotations.is_some_and(|a| a.contains_key("purelb.io/draining"));
    assert!(!drains, "a was left alone");
    // Old clients name nobody: whoever they reach is meant.
    assert_eq!(rig.ask(&rig.good.file(), &operator, "undrain").await?.code, 0);
    Ok(())
}

#[tokio::test]
async fn new_certificates_are_taken_without_a_restart() -> Result<()> {
    let rig = rig().await?;
    let (old, fresh) = (&rig.good, &rig.bad);
    let before = old.client("olga", Client { unit: Some("purelb:operator"), ..Client::default() })?;
    let after = fresh.client("olga", Client { unit: Some("purelb:operator"), ..Client::default() })?;
    assert_eq!(rig.ask(&old.file(), &before, "status").await?.code, 0);
    // Somebody watches, with the certificate that is about to count no more.
    let (endpoint, flags) = (rig.address.to_string(), before.flags(&old.file()));
    let mut words: Vec<&str> = vec!["--endpoint", &endpoint];
    words.extend(flags.iter().map(String::as_str));
    words.extend(["get", "vips", "--watch"]);
    let watch = Running::start(&words, &[])?;
    // Half of it first: that is not usable, said so, and the old one stays.
    let new = fresh.serving("purelbd")?;
    std::fs::copy(&new.cert, &rig.served.cert)?;
    rig.log_has("not usable; what was good before stays").await?;
    let still = rig.ask(&old.file(), &before, "status").await?;
    assert!(still.code == 1 && still.out.contains("do not go together"), "works, and warns: {still:?}");
    std::fs::copy(&new.key, &rig.served.key)?;
    let trusted = std::fs::read(fresh.file())?;
    std::fs::write(old.file(), trusted)?;
    eventually("the new authority counts", WITHIN, || async {
        match rig.ask(&fresh.file(), &after, "status").await {
            Ok(answer) if answer.code == 0 => Ok(()),
            other => Err(other),
        }
    })
    .await?;
    let gone = rig.ask(&fresh.file(), &before, "status").await?;
    assert_eq!(gone.code, 2, "the old authority does not: {gone:?}");
    let ended = watch.finish(WITHIN).await?;
    assert_ne!(ended.code, 0, "the watch was cut off: {ended:?}");
    rig.log_has("its certificate is no longer good: cut off").await?;
    assert!(rig.cluster.daemon("a").process().is_running());
    Ok(())
}

/// The socket is for root and its group; also where its mode was opened by mistake.
#[tokio::test]
async fn other_users_may_not_use_the_socket() -> Result<()> {
    let lab = Lab::builder().segment("lan", ["192.0.2.0/24"]).node("a", ["lan"]);
    let cluster = Cluster::start(shared_plane().await?, lab).await?;
    let a = cluster.daemon("a");
    let socket = a.node.dir().join("control.sock");
    assert_eq!(std::fs::metadata(&socket)?.permissions().mode() & 0o777, 0o660);
    // Where another user can reach both: the lab's own directory is ours alone.
    let open = PathBuf::from(format!("/tmp/purelb-e2e-{}", std::process::id()));
    std::fs::create_dir_all(&open)?;
    let done = as_nobody(&open, &socket);
    std::fs::remove_dir_all(&open)?;
    let (denied, opened) = done?;
    assert!(denied.contains("you may not open it") && denied.contains("join the group root"), "{denied}");
    assert!(opened.contains("user 65534 may not use the control socket"), "{opened}");
    let log = a.log();
    assert!(log.contains("audit: a call by uid 65534 gid 65534"), "{log}");
    Ok(())
}

fn as_nobody(open: &Path, socket: &Path) -> Result<(String, String)> {
    std::fs::set_permissions(open, PermissionsExt::from_mode(0o755))?;
    let program = open.join("purelbctl");
    std::fs::copy(purelbctl()?, &program)?;
    // A hard link is the socket itself, in a place that can be reached.
    let reachable = open.join("control.sock");
    if std::fs::hard_link(socket, &reachable).is_err() {
        anyhow::bail!("the lab's directory and /tmp must be on one file system for this test");
    }
    let ask = || -> Result<String> {
        let out = Command::new(&program)
            .arg("--socket")
            .arg(&reachable)
            .arg("status")
            .uid(65534)
            .gid(65534)
            .output()?;
        anyhow::ensure!(!out.status.success(), "{out:?}");
        Ok(String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let denied = ask()?;
    std::fs::set_permissions(&reachable, PermissionsExt::from_mode(0o666))?;
    Ok((denied, ask()?))
}
