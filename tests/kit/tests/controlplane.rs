//! The control plane itself: it starts, it is verified, it can be taken away and
//! brought back, and it leaves nothing behind.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, Config, ResourceExt};
use purelb_kit::controlplane::{ControlPlane, ServiceAccount, fixtures};
use purelb_kit::wait::eventually;
use serde_json::json;

const SOON: Duration = Duration::from_secs(20);

fn config_map(name: &str) -> ConfigMap {
    fixtures::object(json!({"metadata": {"name": name}, "data": {"k": "v"}}))
}

#[tokio::test]
async fn starts_in_time_and_survives_outages_with_its_data() -> Result<()> {
    let plane = ControlPlane::start().await?;
    println!("{}: ready in {:?} (bar: 15 s)", plane.version(), plane.started_in());

    let maps: Api<ConfigMap> = Api::namespaced(plane.admin()?, "default");
    maps.create(&PostParams::default(), &config_map("kept")).await?;

    // Paused: the connection is taken, nothing is answered.
    plane.pause()?;
    let asked = tokio::time::timeout(Duration::from_millis(300), maps.get("kept")).await;
    assert!(asked.is_err(), "a paused server answered: {asked:?}");
    plane.resume()?;
    eventually("answers again", SOON, || async { maps.get("kept").await.map_err(|e| e.to_string()) }).await?;

    // Killed: refused; back on the same port with the same data.
    let port = plane.port();
    plane.stop_apiserver();
    assert!(maps.get("kept").await.is_err());
    let began = Instant::now();
    plane.start_apiserver().await?;
    println!("API server restarted in {:?}", began.elapsed());
    assert_eq!(plane.port(), port);
    assert_eq!(maps.get("kept").await?.data.unwrap_or_default()["k"], "v");
    assert!(plane.start_apiserver().await.is_err(), "a second one must be refused");
    Ok(())
}

#[tokio::test]
async fn clients_verify_the_server_and_have_only_their_rights() -> Result<()> {
    // Nodes reach it at an address of the management network; here another of lo's.
    let mut builder = ControlPlane::builder().listen_on("127.0.0.2".parse()?);
    builder = builder.also_reached_as("lab.example");
    let plane = builder.start().await?;
    assert_eq!(plane.url(), plane.url_via("127.0.0.2"));
    let applied = plane.apply_manifests().await?;
    assert!(applied.contains(&"Namespace purelb-system".to_owned()), "{applied:?}");
    // Applying twice changes nothing and is no error.
    assert_eq!(plane.apply_manifests().await?, applied);

    let account = ServiceAccount::node_daemon();
    let file = plane.kubeconfig_for(&account, &plane.url()).await?;
    let kubeconfig = kube::config::Kubeconfig::read_from(&file)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    let daemon = Client::try_from(config)?;
    let leases: Api<Lease> = Api::namespaced(daemon.clone(), "purelb-system");
    assert_eq!(leases.list(&ListParams::default()).await?.items.len(), 0);
    let refused = Api::<Lease>::namespaced(daemon, "kube-system").list(&ListParams::default()).await;
    assert!(matches!(&refused, Err(kube::Error::Api(s)) if s.code == 403), "{refused:?}");

    // A token file that changes is read again by whoever restarts with it.
    let admin_url = plane.url();
    let (kubeconfig, token_file) = plane.kubeconfig_with_token_file(&admin_url, "wrong")?;
    for (token, accepted) in [("wrong".to_owned(), false), (plane.token_for(&account).await?, true)] {
        std::fs::write(&token_file, token)?;
        let kubeconfig = kube::config::Kubeconfig::read_from(&kubeconfig)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
        let nodes: Api<Node> = Api::all(Client::try_from(config)?);
        let answer = nodes.list(&ListParams::default()).await;
        assert_eq!(answer.is_ok(), accepted, "{answer:?}");
    }

    // Another CA's client does not trust it; a name not in the certificate neither.
    let mut stranger = Config::new(plane.url().parse()?);
    stranger.root_cert = Some(vec![purelb_kit::controlplane::LabCa::new()?.cert_der()]);
    let no_trust = Client::try_from(stranger)?.apiserver_version().await;
    assert!(format!("{no_trust:?}").contains("ertificate"), "{no_trust:?}");
    for (name, trusted) in [("lab.example", true), ("other.example", false)] {
        let mut named = Config::new(plane.url().parse()?);
        named.root_cert = Some(vec![plane.ca().cert_der()]);
        named.tls_server_name = Some(name.to_owned());
        // Anonymous clients may read the version, so only TLS decides here.
        let answer = Client::try_from(named)?.apiserver_version().await;
        assert_eq!(answer.is_ok(), trusted, "{name}: {answer:?}");
    }
    Ok(())
}

#[tokio::test]
async fn garbage_collection_removes_what_a_node_owned() -> Result<()> {
    let plane = ControlPlane::builder().with_controller_manager().start().await?;
    println!("with controller-manager: ready in {:?}", plane.started_in());
    let client = plane.admin()?;
    let nodes: Api<Node> = Api::all(client.clone());
    let node = nodes.create(&PostParams::default(), &fixtures::node("n1")).await?;
    let leases: Api<Lease> = Api::namespaced(client, "default");
    let lease: Lease = fixtures::object(json!({
        "metadata": {"name": "purelb-node-n1", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node.uid(), "controller": false}
        ]},
        "spec": {"holderIdentity": "n1"},
    }));
    leases.create(&PostParams::default(), &lease).await?;
    nodes.delete("n1", &DeleteParams::default()).await?;
    eventually("the Lease follows its Node", Duration::from_secs(60), || async {
        match leases.get_opt("purelb-node-n1").await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

/// The same binary again, as a child that starts a control plane, says where, and
/// hangs until it is killed: nothing of it may stay.
#[tokio::test]
async fn nothing_stays_when_the_test_is_killed() -> Result<()> {
    const ROLE: &str = "PURELB_TEST_KILLED";
    if std::env::var_os(ROLE).is_some() {
        let plane = ControlPlane::start().await?;
        println!("DIR={}", plane.dir().display());
        return std::future::pending().await;
    }
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--exact", "nothing_stays_when_the_test_is_killed", "--nocapture"])
        .env(ROLE, "1")
        .stdout(Stdio::piped())
        .spawn()?;
    let out = child.stdout.take().unwrap();
    let dir = tokio::task::spawn_blocking(move || {
        use std::io::BufRead;
        std::io::BufReader::new(out)
            .lines()
            .map_while(std::result::Result::ok)
            .find_map(|line| line.split_once("DIR=").map(|(_, dir)| dir.to_owned()))
    })
    .await?
    .expect("the child prints its directory");
    assert!(!programs_using(&dir).is_empty(), "the child runs programs with {dir} on their command line");
    child.kill()?;
    child.wait()?;
    eventually("programs and files are gone", SOON, || async {
        let left = programs_using(&dir);
        if left.is_empty() && !Path::new(&dir).exists() { Ok(()) } else { Err(left) }
    })
    .await
}

fn programs_using(dir: &str) -> Vec<String> {
    let proc = std::fs::read_dir("/proc").expect("/proc is readable");
    let lines = proc.filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    let lines = lines.map(|raw| String::from_utf8_lossy(&raw).replace('\0', " "));
    lines.filter(|line| line.contains(dir)).map(|line| line.chars().take(80).collect()).collect()
}
