//! How much memory the shipped daemon needs, by the size of the cluster: its objects are
//! written into an embedded API, and one real process lives beside them.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::PostParams;
use kube::{Api, Client};
use purelb_api::names;
use purelb_api::node_agent::LBNodeAgent;
use purelb_api::service_group::ServiceGroup;
use purelb_e2e::{Memory, print_figure, shipped_purelbd};
use purelb_kit::controlplane::fixtures::{allocated, create_with_ingress, node, object, service};
use purelb_kit::embedded::EmbeddedApi;
use purelb_kit::lab::{API_ADDRESS, API_PORT, Lab, Process, now};
use purelb_kit::wait::eventually;
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(120);
const ME: &str = "a";
const SUBNET: &str = "10.10.0.0/16";
/// Writes at the same time.
const WRITERS: usize = 16;

#[derive(Clone, Copy)]
struct Size {
    nodes: usize,
    services: usize,
    bar_mib: f64,
}

fn address(n: usize) -> Ipv4Addr {
    let n = u32::try_from(n).unwrap_or(u32::MAX);
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 10, 16, 0).to_bits() + n)
}

fn peer(n: usize) -> String {
    format!("node-{n:04}.cluster.example.net")
}

/// Every other node has its share and says so. Nobody renews: it counts for as long as a Lease may.
fn lease(n: usize, size: Size) -> Lease {
    let share: Vec<String> = (n..size.services).step_by(size.nodes).map(|n| address(n).to_string()).collect();
    object(json!({
        "metadata": {
            "name": format!("purelb-node-{}", peer(n)), "namespace": names::DEFAULT_NAMESPACE,
            "labels": {names::LABEL_NAME.0: names::LABEL_NAME.1, names::LABEL_COMPONENT.0: names::LABEL_COMPONENT.1},
            "annotations": {
                names::INSTANCE: format!("00000000-0000-4000-8000-{n:012}"), names::SUBNETS: SUBNET,
                names::ANNOUNCED: share.join(","), names::DECLINED: "", names::RANK: "first",
            },
        },
        "spec": {"holderIdentity": peer(n), "leaseDurationSeconds": 300, "renewTime": "2026-01-02T03:04:05.000001Z"},
    }))
}

async fn furnish(client: &Client, size: Size) -> Result<()> {
    let params = PostParams::default();
    let nodes: Api<Node> = Api::all(client.clone());
    let leases: Api<Lease> = Api::namespaced(client.clone(), names::DEFAULT_NAMESPACE);
    let groups: Api<ServiceGroup> = Api::namespaced(client.clone(), names::DEFAULT_NAMESPACE);
    let agents: Api<LBNodeAgent> = Api::namespaced(client.clone(), names::DEFAULT_NAMESPACE);
    let group = json!({"metadata": {"name": "default"}, "spec": {"local": {"v4pool": {"pool": SUBNET, "subnet": SUBNET}}}});
    groups.create(&params, &object(group)).await?;
    let agent = json!({"metadata": {"name": "default"}, "spec": {"local": {"localInterface": "eth0"}}});
    agents.create(&params, &object(agent)).await?;
    nodes.create(&params, &node(ME)).await?;
    stream::iter(1..size.nodes)
        .map(|n| {
            let (nodes, leases, params) = (&nodes, &leases, &params);
            async move {
                nodes.create(params, &node(&peer(n))).await?;
                leases.create(params, &lease(n, size)).await
            }
        })
        .buffer_unordered(WRITERS)
        .try_for_each(|_| async { Ok(()) })
        .await
        .context("nodes")?;
    stream::iter(0..size.services)
        .map(|n| async move {
            let service = allocated(service("default", &format!("service-{n}")), "default", "local");
            create_with_ingress(client, &service, &[address(n).into()]).await
        })
        .buffer_unordered(WRITERS)
        .try_for_each(|_: Service| async { Ok(()) })
        .await
        .context("Services")
}

fn start(lab: &Lab) -> Result<Process> {
    let (node, program) = (lab.node(ME), shipped_purelbd()?);
    let dir = node.dir();
    let kubeconfig = dir.join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": ME,
        "clusters": [{"name": ME, "cluster": {"server": format!("http://{API_ADDRESS}:{API_PORT}")}}],
        "users": [{"name": ME, "user": {"token": ME}}],
        "contexts": [{"name": ME, "context": {"cluster": ME, "user": ME}}],
    });
    std::fs::write(&kubeconfig, config.to_string())?;
    let text = format!(
        "[node]\nname = \"{ME}\"\n[kubernetes]\nkubeconfig = {kubeconfig:?}\n\
         [control]\nsocket = {:?}\nsocket_group = \"\"\n[paths]\nstate = {:?}\nruntime = {:?}\n",
        dir.join("control.sock"),
        dir.join("state"),
        dir.join("run"),
    );
    let file = dir.join("purelbd.toml");
    std::fs::write(&file, text)?;
    let mut command = Command::new(program);
    command.arg("--config").arg(&file).env_clear().stdin(Stdio::null());
    node.spawn("purelbd", command)
}

async fn measure(size: Size) -> Result<()> {
    let api = EmbeddedApi::builder().log_length(100_000).watch_queue(100_000).start().await?;
    let client = api.client("a-test")?;
    furnish(&client, size).await?;
    let lab = Lab::builder().segment("lan", [SUBNET]).node(ME, ["lan"]).api(api.address()).build()?;
    let daemon = start(&lab)?;
    // Its Lease lists what it announces: everything was listed, decided and carried out.
    let leases: Api<Lease> = Api::namespaced(client, names::DEFAULT_NAMESPACE);
    eventually("it has its share", PATIENCE, || async {
        let lease = leases.get_opt(&format!("purelb-node-{ME}")).await.ok().flatten();
        let said = lease.and_then(|l| l.metadata.annotations?.get(names::ANNOUNCED).cloned());
        match said.filter(|said| !said.is_empty()) {
            Some(_) => Ok(()),
            None => Err(daemon.log().lines().rev().take(12).collect::<Vec<_>>().join("\n")),
        }
    })
    .await?;
    // Announcements are repeated and slots written for some seconds, then it is at rest; and
    // what renewals need is back after some of them.
    let until = now() + Duration::from_secs(30);
    eventually("it is at rest", PATIENCE, || async move { if now() >= until { Ok(()) } else { Err(()) } })
        .await?;
    let memory = Memory::of(daemon.pid())?;
    let Size { nodes, services, bar_mib } = size;
    print_figure(&format!("memory: {nodes} nodes, {services} Services | {memory} | bar {bar_mib} MiB"));
    for (what, kib) in Memory::by_mapping(daemon.pid())?.into_iter().take(8) {
        print_figure(&format!("memory: {nodes} nodes, {services} Services | {kib} KiB {what}"));
    }
    assert!(memory.resident_mib() < bar_mib, "resident {memory}, and the bar is {bar_mib} MiB");
    Ok(())
}

#[tokio::test]
async fn of_a_small_cluster() -> Result<()> {
    measure(Size { nodes: 3, services: 100, bar_mib: 16.0 }).await
}

#[tokio::test]
async fn of_the_largest_cluster() -> Result<()> {
    measure(Size { nodes: 1_000, services: 10_000, bar_mib: 60.0 }).await
}
