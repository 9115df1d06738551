//! `purelbctl node-kubeconfig` on the real API server, with the shipped rights: what it
//! makes lets a daemon do its work on its node, and nothing else.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use purelb_kit::controlplane::{ControlPlane, ask, fixtures};
use purelb_kit::wait::eventually;
use serde_json::{Value, json};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases";
const PATIENCE: Duration = Duration::from_secs(60);

/// Standard output, standard error, exit code.
async fn purelbctl(plane: &ControlPlane, arguments: &[&str]) -> Result<(String, String, i32)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_purelbctl"));
    command.arg("--kubeconfig").arg(plane.admin_kubeconfig(&plane.url())?).arg("node-kubeconfig");
    command.args(arguments).env_remove("KUBECONFIG").stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let code = output.status.code().context("an exit code")?;
    Ok((String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?, code))
}

async fn client_by(kubeconfig: Kubeconfig) -> Result<Client> {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn lease(node: &str) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": format!("purelb-node-{node}"), "namespace": "purelb-system"},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 10}})
}

/// A cluster with the manifests, two Nodes of this test's own, and a Service.
async fn site(nodes: [&str; 2]) -> Result<&'static ControlPlane> {
    let plane = ControlPlane::shared().await?;
    plane.apply_manifests().await?;
    let admin = plane.admin()?;
    for name in nodes {
        Api::<Node>::all(admin.clone()).create(&PostParams::default(), &fixtures::node(name)).await?;
    }
    fixtures::ensure_namespace(&admin, nodes[0]).await?;
    let services: Api<Service> = Api::namespaced(admin, nodes[0]);
    services.create(&PostParams::default(), &fixtures::service(nodes[0], "web")).await?;
    Ok(plane)
}

#[tokio::test]
async fn a_daemon_can_work_with_it_on_its_node_and_do_nothing_else() -> Result<()> {
    let plane = site(["works", "other"]).await?;
    let dir = tempfile::tempdir()?;
    let token_file = dir.path().join("token");
    let out = dir.path().to_str().context("a path")?;
    let file = token_file.to_str().context("a path")?;
    let (said, notes, code) =
        purelbctl(plane, &["works", "--output-dir", out, "--token-file", file, "--duration", "24h"]).await?;
    assert_eq!(code, 0, "{notes}");
    assert!(said.contains("install -m 0640 -g purelb kubeconfig token /etc/purelb/"), "{said}");
    assert!(notes.contains("this machine only"), "the lab's server is on loopback: {notes}");
    for name in ["kubeconfig", "token"] {
        let mode = std::fs::metadata(dir.path().join(name))?.permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let daemon = client_by(Kubeconfig::read_from(dir.path().join("kubeconfig"))?).await?;
    let slot = json!({"metadata": {"annotations": {"purelb.io/announcing-IPv4": "works,eth0,192.0.2.5"}}});
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": "web.1", "namespace": "works"}, "regarding": {"kind": "Service", "name": "web", "namespace": "works"},
        "eventTime": "2026-01-02T03:04:05.000000Z", "type": "Normal", "reason": "AnnouncingLocal", "action": "Announce",
        "reportingController": "purelb.io/purelbd", "reportingInstance": "works", "note": "announced"});
    let renew = json!({"spec": {"renewTime": "2026-01-02T03:04:05.000000Z"}});
    let own = format!("{LEASES}/purelb-node-works");
    let others = format!("{LEASES}/purelb-node-other");
    let system = "/apis/purelb.io/v2/namespaces/purelb-system";
    let watch = "?watch=1&timeoutSeconds=1";
    let (groups, agents) = (format!("{system}/servicegroups"), format!("{system}/lbnodeagents"));
    let watched: Vec<String> = [
        "/api/v1/nodes",
        "/api/v1/services",
        "/apis/discovery.k8s.io/v1/endpointslices",
        &groups,
        &agents,
        LEASES,
    ]
    .iter()
    .flat_map(|path| [(*path).to_owned(), format!("{path}{watch}")])
    .collect();
    let mut work: Vec<(&str, &str, Option<Value>)> =
        watched.iter().map(|p| ("GET", p.as_str(), None)).collect();
    work.extend([
        ("GET", "/api/v1/nodes/works", None),
        ("PATCH", "/api/v1/namespaces/works/services/web", Some(slot)),
        ("POST", "/apis/events.k8s.io/v1/namespaces/works/events", Some(event)),
        ("POST", LEASES, Some(lease("works"))),
        ("PATCH", own.as_str(), Some(renew.clone())),
        ("DELETE", own.as_str(), None),
    ]);
    for (method, path, body) in work {
        let (code, text) = ask(&daemon, method, path, body.as_ref()).await?;
        assert_eq!(code, 200, "{method} {path}: {text}");
    }
    // The other node's daemon is at work, too. A policy takes effect a moment after it
    // was made.
    ask(&plane.admin()?, "POST", LEASES, Some(&lease("other"))).await?;
    eventually("another node's Lease is refused", PATIENCE, || async {
        match ask(&daemon, "PATCH", &format!("{others}?dryRun=All"), Some(&renew)).await {
            Ok((422, _)) => Ok(()),
            answer => Err(format!("{answer:?}")),
        }
    })
    .await?;
    let account = "/api/v1/namespaces/purelb-system/serviceaccounts/purelbd/token";
    let forbidden = [
        ("POST", LEASES.to_owned(), Some(lease("third")), 422),
        ("PATCH", others.clone(), Some(renew), 422),
        ("DELETE", others, None, 422),
        ("DELETE", LEASES.to_owned(), None, 403),
        ("POST", account.to_owned(), Some(json!({"spec": {}})), 422),
        ("GET", "/api/v1/secrets".to_owned(), None, 403),
        ("GET", "/api/v1/namespaces/purelb-system/secrets/purelb-control-client".to_owned(), None, 403),
        ("GET", "/api/v1/pods".to_owned(), None, 403),
        ("GET", "/api/v1/configmaps".to_owned(), None, 403),
        ("PATCH", "/api/v1/nodes/works".to_owned(), Some(json!({"metadata": {"labels": {"a": "b"}}})), 403),
        ("DELETE", "/api/v1/nodes/other".to_owned(), None, 403),
        ("DELETE", "/api/v1/namespaces/works/services/web".to_owned(), None, 403),
        (
            "PATCH",
            "/api/v1/namespaces/works/services/web".to_owned(),
            Some(json!({"spec": {"type": "ClusterIP"}})),
            422,
        ),
        (
            "PATCH",
            "/api/v1/namespaces/works/services/web/status".to_owned(),
            Some(json!({"status": {}})),
            403,
        ),
        ("PATCH", format!("{system}/servicegroups/default"), Some(json!({"spec": {}})), 403),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".to_owned(), Some(json!({})), 403),
        ("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests".to_owned(), Some(json!({})), 403),
    ];
    for (method, path, body, expected) in forbidden {
        let (code, text) = ask(&daemon, method, &path, body.as_ref()).await?;
        assert_eq!(code, expected, "{method} {path}: {text}");
    }
    Ok(())
}

#[tokio::test]
async fn a_token_is_renewed_alone_and_ends_with_its_node() -> Result<()> {
    let plane = site(["renewed", "stays"]).await?;
    let (first, notes, code) = purelbctl(plane, &["renewed", "--server", "https://192.0.2.10:6443/"]).await?;
    assert_eq!(code, 0, "{notes}");
    assert!(notes.contains("the token ends 20"), "{notes}");
    assert!(!notes.contains("this machine only"), "{notes}");
    let mut kubeconfig = Kubeconfig::from_yaml(&first)?;
    let cluster = kubeconfig.clusters[0].cluster.as_mut().context("a cluster")?;
    assert_eq!(cluster.server.as_deref(), Some("https://192.0.2.10:6443"));
    assert!(cluster.certificate_authority_data.is_some());
    cluster.server = Some(plane.url());
    let (token, notes, code) = purelbctl(plane, &["renewed", "--token-only", "--duration", "10m"]).await?;
    assert_eq!(code, 0, "{notes}");
    assert_eq!(token.lines().count(), 1);
    let before = client_by(kubeconfig.clone()).await?;
    let user = kubeconfig.auth_infos[0].auth_info.as_mut().context("a user")?;
    user.token = Some(token.trim().to_owned().into());
    let renewed = client_by(kubeconfig).await?;
    for client in [&before, &renewed] {
        assert_eq!(ask(client, "GET", "/api/v1/nodes/renewed", None).await?.0, 200);
    }
    let nodes: Api<Node> = Api::all(plane.admin()?);
    nodes.delete("renewed", &DeleteParams::default()).await?;
    // The API server remembers a good token for some seconds.
    eventually("the token ends with its Node", PATIENCE, || async {
        match ask(&renewed, "GET", "/api/v1/nodes/stays", None).await {
            Ok((401, _)) => Ok(()),
            answer => Err(format!("{answer:?}")),
        }
    })
    .await?;
    Ok(())
}

/// The API server of this test gives tokens of a day at most.
#[tokio::test]
async fn a_token_that_ends_earlier_than_asked_for_is_said_by_the_exit_code() -> Result<()> {
    let mut builder = ControlPlane::builder();
    builder = builder.api_server_flag("--service-account-max-token-expiration=24h");
    let plane = builder.start().await?;
    plane.apply_manifests().await?;
    Api::<Node>::all(plane.admin()?).create(&PostParams::default(), &fixtures::node("capped")).await?;
    let dir = tempfile::tempdir()?;
    let out = dir.path().to_str().context("a path")?;
    let cases: [(&[&str], i32); 4] = [
        (&["capped"], 3),
        (&["capped", "--token-only"], 3),
        (&["capped", "--output-dir", out], 3),
        (&["capped", "--duration", "12h"], 0),
    ];
    for (arguments, expected) in cases {
        let (said, notes, code) = purelbctl(&plane, arguments).await?;
        assert_eq!(code, expected, "{arguments:?}: {notes}");
        assert!(!said.is_empty(), "it is made all the same");
        assert_eq!(notes.contains("gave 24 h of the 8760 h asked for"), expected == 3, "{notes}");
    }
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_done_is_said_with_the_way_out() -> Result<()> {
    let plane = site(["worker-1", "worker-2"]).await?;
    let nowhere = Path::new("/dev/null/dir").to_str().context("a path")?;
    let cases: [(&[&str], &str, &str); 5] = [
        (&["wroker-1"], "there is no Node wroker-1", "did you mean worker-1?"),
        (
            &["worker-1", "--namespace", "elsewhere"],
            "no ServiceAccount elsewhere/purelbd",
            "kubectl apply -k",
        ),
        (&["worker-1", "--duration", "5m"], "too short", "10m or longer"),
        (&["worker-1", "--server", "http://api:8080"], "not where an API server is", "https://HOST:PORT"),
        (&["worker-1", "--output-dir", nowhere], "cannot write", "--output-dir"),
    ];
    for (arguments, what, next) in cases {
        let (said, wrong, code) = purelbctl(plane, arguments).await?;
        assert_eq!(code, 1, "{arguments:?}: {wrong}");
        assert!(said.is_empty(), "no half answer: {said}");
        assert!(wrong.contains(what) && wrong.contains(next), "{arguments:?}: {wrong}");
    }
    Ok(())
}
