use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use prometheus_client::encoding::text::encode;
use purelb_core::config::EngineConfig;
use purelb_core::facts::PoolType;
use purelb_core::ids::{IfName, ObjectKey};
use purelb_core::reason::Reason;
use purelb_core::shared_table::SharedTable;
use purelb_core::snapshot::{FenceView, MemberView, Snapshot, VipView};
use purelb_core::{Engine, InstanceId, Mono, NodeName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{broadcast, mpsc, watch};

use super::*;
use crate::config::Config;
use crate::host::drain_mark::DrainMark;
use crate::netlink::{AddressOwnership, KernelMonitor, MonitorSettings};

fn mk_snapshot() -> Snapshot {
    let config = EngineConfig::new(NodeName::new("a").unwrap(), InstanceId::new("one").unwrap());
    let mut snapshot = Engine::new(config).snapshot(Mono::ZERO);
    snapshot.counters.renewals = 7;
    Arc::make_mut(&mut snapshot.candidates).insert("192.0.2.0/24".parse().unwrap(), 3);
    snapshot.vips.set(VipView {
        vip: "192.0.2.9".parse().unwrap(),
        group: None,
        pool: PoolType::Local,
        services: vec![ObjectKey::of("default", "web").unwrap()],
        reason: Reason::Announcing { interface: IfName::new("eth0").unwrap() },
        winner: None,
        slot: None,
        on_interface: Some(IfName::new("eth0").unwrap()),
        announced: true,
    });
    snapshot.unsynced.clear();
    snapshot
}

struct Rig {
    snapshots: watch::Sender<Arc<Snapshot>>,
    handle: EngineHandle,
    sources: MetricSources,
}

fn mk_rig() -> Rig {
    let (snapshots, snapshot) = watch::channel(Arc::new(mk_snapshot()));
    let mark = Arc::new(DrainMark::in_directory(std::path::Path::new("/nowhere")));
    let handle =
        EngineHandle { snapshot, events: broadcast::channel(1).0, requests: mpsc::channel(1).0, mark };
    let (inputs, _) = mpsc::channel(1);
    let monitor =
        KernelMonitor::open(&MonitorSettings::default(), AddressOwnership::kernel(), inputs).unwrap();
    let sources = MetricSources {
        adapters: Arc::default(),
        segments: Arc::default(),
        monitor: monitor.handle(),
        kube: Arc::default(),
    };
    Rig { snapshots, handle, sources }
}

fn text(rig: &Rig) -> String {
    let mut text = String::new();
    encode(&mut text, &registry(rig.handle.clone(), rig.sources.clone())).unwrap();
    text
}

/// What dashboards ask for, with the types they expect.
const NAMES: [(&str, &str); 48] = [
    ("election_lease_healthy", "gauge"),
    ("election_lease_renewals", "counter"),
    ("election_lease_renewal_failures", "counter"),
    ("election_member_count", "gauge"),
    ("election_subnet_count", "gauge"),
    ("election_local_subnet_count", "gauge"),
    ("election_winner_changes", "counter"),
    ("election_candidates", "gauge"),
    ("election_affinity_fallback", "counter"),
    ("lease_healthy", "gauge"),
    ("lease_live_nodes", "gauge"),
    ("lease_renewal_failures", "counter"),
    ("lbnodeagent_announced", "gauge"),
    ("lbnodeagent_garp_sent", "counter"),
    ("lbnodeagent_garp_errors", "counter"),
    ("lbnodeagent_na_sent", "counter"),
    ("lbnodeagent_na_errors", "counter"),
    ("lbnodeagent_address_additions", "counter"),
    ("lbnodeagent_address_withdrawals", "counter"),
    ("lbnodeagent_address_renewals", "counter"),
    ("lbnodeagent_address_renewal_errors", "counter"),
    ("lbnodeagent_election_wins", "counter"),
    ("lbnodeagent_election_losses", "counter"),
    ("lbnodeagent_announce_slot_steal", "counter"),
    ("lbnodeagent_selector_state", "gauge"),
    ("address_renewals_active", "gauge"),
    ("address_renewal_latency_seconds", "histogram"),
    ("address_watchdog_recoveries", "counter"),
    ("garp_sent", "counter"),
    ("lbnodeagent_vips", "gauge"),
    ("netlink_overruns", "counter"),
    ("api_requests", "counter"),
    ("api_errors", "counter"),
    ("queue_drops", "counter"),
    ("build_info", "gauge"),
    ("fence_margin_seconds", "gauge"),
    ("riding", "gauge"),
    ("rides", "counter"),
    ("rides_claimed", "counter"),
    ("fence_margin_ratio", "histogram"),
    ("handoff_duration_seconds", "histogram"),
    ("event_to_applied_seconds", "histogram"),
    ("vip_in_kernel", "gauge"),
    ("vip_announced", "gauge"),
    ("lbnodeagent_held", "gauge"),
    ("lbnodeagent_draining", "gauge"),
    ("lbnodeagent_synced", "gauge"),
    ("netlink_dumps", "counter"),
];

#[tokio::test]
async fn every_name_is_there_once() {
    let text = text(&mk_rig());
    for (name, kind) in NAMES {
        let line = format!("# TYPE purelb_{name} {kind}");
        assert_eq!(text.lines().filter(|l| *l == line).count(), 1, "{line}\n{text}");
    }
    assert!(text.contains("\npurelb_election_lease_renewals_total 7\n"), "{text}");
}

#[tokio::test]
async fn series_come_and_go_with_their_objects() {
    let rig = mk_rig();
    let announced = "purelb_lbnodeagent_announced{service=\"default/web\",ip=\"192.0.2.9\"} 1";
    let before = text(&rig);
    assert!(before.contains(announced), "{before}");
    assert!(before.contains("purelb_election_candidates{subnet=\"192.0.2.0/24\"} 3"), "{before}");
    assert!(before.contains("purelb_lbnodeagent_selector_state{state=\"unselected\"} 1"), "{before}");
    let mut snapshot = mk_snapshot();
    snapshot.vips = SharedTable::default();
    snapshot.candidates = Arc::default();
    rig.snapshots.send_replace(Arc::new(snapshot));
    let after = text(&rig);
    assert!(!after.contains("192.0.2"), "{after}");
}

/// What the alert reckons with: when they end, and the whole of their time.
#[tokio::test]
async fn the_end_of_the_credentials_is_told_as_it_is() {
    let rig = mk_rig();
    assert!(!text(&rig).contains("purelb_credentials"), "they do not say: no series");
    rig.sources.kube.credentials.set(1_900_000_000, 31_536_000);
    let told = text(&rig);
    for line in [
        "purelb_credentials_expiry_timestamp_seconds 1900000000",
        "purelb_credentials_lifetime_seconds 31536000",
    ] {
        assert!(told.lines().any(|l| l == line), "{line} is missing in\n{told}");
    }
    rig.sources.kube.credentials.set(0, 0);
    assert!(!text(&rig).contains("purelb_credentials"), "gone with a token that says nothing");
}

fn mk_member(name: &str) -> MemberView {
    MemberView {
        node: NodeName::new(name).unwrap(),
        live: true,
        expires: None,
        draining: false,
        excluded: false,
        rank: purelb_core::rank::Rank::First,
        out_of_service: false,
        announced: None,
        declined: Default::default(),
        subnets: ["192.0.2.0/24".parse().unwrap()].into(),
        control_endpoint: None,
    }
}

/// The series of one metric, without its name.
fn series(text: &str, name: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|l| l.strip_prefix(&format!("purelb_{name}{{")));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn an_address_is_spoken_of_by_who_has_or_won_it() {
    let rig = mk_rig();
    let show = |change: &dyn Fn(&mut VipView)| {
        let mut snapshot = mk_snapshot();
        snapshot.members = [mk_member("b"), mk_member("a")].into_iter().collect();
        let mut view = snapshot.vips.iter().next().unwrap().clone();
        change(&mut view);
        snapshot.vips.set(view);
        rig.snapshots.send_replace(Arc::new(snapshot));
        let text = text(&rig);
        (series(&text, "vip_in_kernel"), series(&text, "vip_announced"))
    };
    let says = |value: u8| vec![format!("ip=\"192.0.2.9\",pool=\"local\"}} {value}")];
    let winner = |name: &str| Some(NodeName::new(name).unwrap());
    assert_eq!(show(&|_| {}), (says(1), says(1)), "held, whoever won");
    let unsaid = |v: &mut VipView| v.announced = false;
    assert_eq!(show(&unsaid), (says(1), says(0)), "the kernel has it, nobody was told");
    let won = |v: &mut VipView| (v.on_interface, v.winner) = (None, winner("a"));
    assert_eq!(show(&won), (says(0), says(0)), "won and not there");
    let lost = |v: &mut VipView| (v.on_interface, v.winner) = (None, winner("b"));
    assert_eq!(show(&lost), (vec![], vec![]), "another's to speak of");
    let nobodys = |v: &mut VipView| (v.on_interface, v.reason) = (None, Reason::NoEligibleNode);
    assert_eq!(show(&nobodys), (says(0), says(0)), "nobody won it: the first of all says so");
    let idle = |v: &mut VipView| (v.on_interface, v.reason) = (None, Reason::NoEndpoints);
    assert_eq!(show(&idle), (vec![], vec![]), "a Service without endpoints is not our fault");
    let elsewhere = |v: &mut VipView| {
        (v.on_interface, v.pool, v.reason) = (None, PoolType::Remote, Reason::Draining { held: false });
    };
    assert_eq!(show(&elsewhere), (vec![], vec![]), "not expected here");

    let mut snapshot = mk_snapshot();
    snapshot.members = [mk_member("0"), mk_member("a")].into_iter().collect();
    let mut view = snapshot.vips.iter().next().unwrap().clone();
    (view.on_interface, view.reason) = (None, Reason::NoEligibleNode);
    snapshot.vips.set(view);
    rig.snapshots.send_replace(Arc::new(snapshot.clone()));
    assert!(series(&text(&rig), "vip_in_kernel").is_empty(), "one of many is enough");
    snapshot.vips = SharedTable::default();
    rig.snapshots.send_replace(Arc::new(snapshot));
    assert!(!text(&rig).contains("192.0.2.9"), "gone with its Service");
}

#[tokio::test]
async fn the_margin_runs_out_also_when_the_engine_hangs() {
    let rig = mk_rig();
    let value = |name: &str| -> f64 {
        let text = text(&rig);
        let line = text.lines().find_map(|l| l.strip_prefix(&format!("purelb_{name} ")).map(str::to_owned));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
    };
    let mut snapshot = mk_snapshot();
    snapshot.fence = FenceView::Healthy { until: crate::host::clock::now() + Duration::from_secs(100) };
    rig.snapshots.send_replace(Arc::new(snapshot.clone()));
    assert!((99.0..=100.0).contains(&value("fence_margin_seconds")));
    assert_eq!(value("lease_healthy"), 1.0);
    snapshot.fence = FenceView::Healthy { until: Mono::ZERO };
    rig.snapshots.send_replace(Arc::new(snapshot));
    assert_eq!((value("fence_margin_seconds"), value("lease_healthy")), (0.0, 0.0));
}

/// Without the bucket that holds all, Prometheus computes no quantile.
#[tokio::test]
async fn every_histogram_ends_with_all_of_them() {
    let rig = mk_rig();
    let mut snapshot = mk_snapshot();
    snapshot.times.to_kernel.record_time(Duration::from_secs(60));
    rig.snapshots.send_replace(Arc::new(snapshot));
    let text = text(&rig);
    let kinds = text.lines().filter(|l| l.starts_with("# TYPE ") && l.ends_with(" histogram")).count();
    let counts: Vec<&str> = text.lines().filter(|l| l.contains("_count") && !l.starts_with('#')).collect();
    let all: Vec<&str> = text.lines().filter(|l| l.contains("le=\"+Inf\"")).collect();
    assert_eq!(kinds, 4);
    // One without labels, one of three outcomes, one of two steps, one without labels.
    assert_eq!(all.len(), 7, "{text}");
    let beyond = "purelb_event_to_applied_seconds_bucket{le=\"+Inf\",step=\"kernel\"} 1";
    assert!(all.contains(&beyond), "{all:#?}");
    assert!(counts.contains(&"purelb_event_to_applied_seconds_count{step=\"kernel\"} 1"), "{counts:#?}");
}

#[tokio::test]
async fn every_kind_of_error_is_there_before_it_happens() {
    let rig = mk_rig();
    let mut snapshot = mk_snapshot();
    snapshot.times.handoff_confirmed.record_time(Duration::from_millis(40));
    rig.snapshots.send_replace(Arc::new(snapshot));
    rig.sources.adapters.applier_drops.store(2, Ordering::Relaxed);
    let text = text(&rig);
    for line in [
        "purelb_api_errors_total{kind=\"timeout\"} 0",
        "purelb_queue_drops_total{queue=\"kernel\"} 2",
        "purelb_handoff_duration_seconds_bucket{le=\"0.05\",outcome=\"confirmed\"} 1",
        "purelb_handoff_duration_seconds_count{outcome=\"timed_out\"} 0",
        "purelb_event_to_applied_seconds_count{step=\"kernel\"} 0",
        "purelb_fence_margin_ratio_bucket{le=\"0.2\"} 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
    }
    let version =
        format!("purelb_build_info{{program=\"purelbd\",version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&version), "{text}");
}

#[tokio::test]
async fn the_server_answers_one_path_and_moves_with_the_configuration() {
    let rig = mk_rig();
    rig.sources.adapters.garp_sent.store(3, Ordering::Relaxed);
    let port = |_| std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (first, second) = (port(1), port(2));
    let mut config = Config::default();
    config.metrics.listen = first;
    let (change, current) = watch::channel(Arc::new(config.clone()));
    let task = tokio::spawn(serve(
        RunningDaemon { handle: rig.handle.clone(), config: current, kube: Arc::default() },
        rig.sources.clone(),
    ));
    let found = ask(first, "GET /metrics").await;
    assert!(found.starts_with("HTTP/1.1 200") && found.contains("purelb_garp_sent_total 3"), "{found}");
    assert!(ask(first, "GET /").await.starts_with("HTTP/1.1 404"));
    assert!(ask(first, "POST /metrics").await.starts_with("HTTP/1.1 405"));
    config.metrics.listen = second;
    change.send_replace(Arc::new(config.clone()));
    assert!(ask(second, "GET /metrics").await.starts_with("HTTP/1.1 200"));
    left(first).await;
    config.metrics.enabled = false;
    change.send_replace(Arc::new(config));
    left(second).await;
    task.abort();
}

/// Waits until nobody listens there. A closed socket may listen for a moment longer: in a process
/// that another test has just forked, until that one runs its program.
async fn left(address: SocketAddr) {
    let closed = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), closed).await.expect("it stops listening");
}

/// A key pair and certificate for 127.0.0.1, in files.
fn mk_certificate(dir: &std::path::Path, name: &str) -> rcgen::CertifiedKey<rcgen::KeyPair> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(dir.join(format!("{name}.crt")), made.cert.pem()).unwrap();
    std::fs::write(dir.join(format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
    made
}

/// Asks over TLS, trusting one certificate, with one of our own if given.
async fn ask_tls(
    address: SocketAddr,
    trusted: &rcgen::CertifiedKey<rcgen::KeyPair>,
    own: Option<&rcgen::CertifiedKey<rcgen::KeyPair>>,
) -> std::io::Result<String> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let client = match own {
        None => client.with_no_client_auth(),
        Some(own) => {
            let key = rustls::pki_types::PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
            client.with_client_auth_cert(vec![own.cert.der().clone()], key).unwrap()
        }
    };
    let stream = connected(address).await;
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = tokio_rustls::TlsConnector::from(Arc::new(client)).connect(name, stream).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn over_tls_for_those_who_may_and_with_certificates_as_they_come() {
    let (rig, dir) = (mk_rig(), tempfile::tempdir().unwrap());
    let at = |name: &str| dir.path().join(name);
    let first = mk_certificate(dir.path(), "tls");
    let scraper = mk_certificate(dir.path(), "scraper");
    let mut config = Config::default();
    config.metrics.listen = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    (config.metrics.certificate, config.metrics.key) = (at("tls.crt"), at("tls.key"));
    config.check().unwrap();
    let address = config.metrics.listen;
    let (change, current) = watch::channel(Arc::new(config.clone()));
    let running = RunningDaemon { handle: rig.handle.clone(), config: current, kube: Arc::default() };
    let task = tokio::spawn(serve(running, rig.sources.clone()));
    let answer = ask_tls(address, &first, None).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("purelb_garp_sent_total"), "{answer}");
    let mut plain = connected(address).await;
    plain.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said).await;
    assert!(!String::from_utf8_lossy(&said).contains("purelb_"), "nothing in the clear");

    // Renewed: nobody has to tell us.
    let second = mk_certificate(dir.path(), "tls");
    assert!(ask_tls(address, &second, None).await.unwrap().contains("purelb_garp_sent_total"));
    assert!(ask_tls(address, &first, None).await.is_err(), "the old one is not shown any more");

    // Only for whom the authority made a certificate.
    config.metrics.client_ca = at("scraper.crt");
    config.metrics.listen = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = config.metrics.listen;
    change.send_replace(Arc::new(config.clone()));
    assert!(ask_tls(address, &second, Some(&scraper)).await.unwrap().starts_with("HTTP/1.1 200"));
    assert!(ask_tls(address, &second, None).await.is_err());
    task.abort();

    // Half of it is refused when the configuration is read.
    config.metrics.key = std::path::PathBuf::new();
    assert!(config.check().unwrap_err().to_string().contains("metrics.key"));
    (config.metrics.key, config.metrics.certificate) = (at("tls.key"), std::path::PathBuf::new());
    assert!(config.check().unwrap_err().to_string().contains("metrics.certificate"));
}

async fn connected(address: SocketAddr) -> TcpStream {
    let connected = async {
        loop {
            match TcpStream::connect(address).await {
                Ok(stream) => return stream,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), connected).await.expect("it listens")
}

async fn ask(address: SocketAddr, what: &str) -> String {
    let mut stream = connected(address).await;
    stream.write_all(format!("{what} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
