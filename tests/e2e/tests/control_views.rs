//! What an operator follows and sends on: lists that go on, and the support bundle.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use purelb_e2e::{Cluster, Wish, shared_plane, vip};
use purelb_kit::lab::Lab;
use purelb_kit::wait::eventually;

const PATIENCE: Duration = Duration::from_secs(20);

async fn one_node<'p>() -> Result<Cluster<'p>> {
    let lab = Lab::builder().segment("lan", ["192.0.2.0/24"]).node("a", ["lan"]);
    Cluster::start(shared_plane().await?, lab).await
}

/// The list as it is, then a line for everything that changes, until it is ended.
#[tokio::test]
async fn a_list_that_is_watched_goes_on() -> Result<()> {
    let cluster = one_node().await?;
    let a = cluster.daemon("a");
    let (first, second) = (vip("192.0.2.100"), vip("192.0.2.101"));
    cluster.serve(Wish::new("first", [first])).await?;
    cluster.one_holder(first).await?;
    let file = a.node.dir().join("watched");
    let watching = a.ctl_into("get vips --watch -o name", &file)?;
    let shows = |text: &'static str| {
        let file = file.clone();
        eventually(text, PATIENCE, move || {
            let seen = std::fs::read_to_string(&file).unwrap_or_default();
            async move { if seen.contains(text) { Ok(()) } else { Err(seen) } }
        })
    };
    shows("192.0.2.100").await?;
    cluster.serve(Wish::new("second", [second])).await?;
    shows("192.0.2.101").await?;
    let there = a.ctl("get vips 192.0.2.101 -o name").await?;
    assert_eq!((there.out.trim(), there.code), ("192.0.2.101", 0), "{there:?}");
    let gone = a.ctl("get vips 192.0.2.101 203.0.113.7 -o name").await?;
    assert!(gone.code == 1 && gone.err.contains("203.0.113.7 is not there"), "{gone:?}");
    let namespace = a.ctl("get vips -n no-such-namespace -o name").await?;
    assert_eq!((namespace.out.as_str(), namespace.code), ("", 0), "{namespace:?}");
    watching.signal(Signal::SIGINT)?;
    let ended = watching.finish(PATIENCE).await?;
    assert!(ended.err.is_empty(), "an interrupt is no error: {ended:?}");
    Ok(())
}

/// What support needs is in it, what is missing is said, and nothing secret is.
#[tokio::test]
async fn a_support_bundle_holds_what_support_needs() -> Result<()> {
    let cluster = one_node().await?;
    let a = cluster.daemon("a");
    let ip = vip("192.0.2.100");
    cluster.serve(Wish::new("web", [ip])).await?;
    cluster.announced_by("a", &[ip]).await?;
    let bundle = a.node.dir().join("bundle.tar");
    let kubeconfig = cluster.plane.admin_kubeconfig(&cluster.plane.url())?;
    let ask = format!(
        "support-bundle --output-file {} --kubeconfig {} --namespace {}",
        bundle.display(),
        kubeconfig.display(),
        cluster.namespace
    );
    let made = a.ctl(&ask).await?;
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.out.contains("bundle.tar"), "{made:?}");
    let mode = std::fs::metadata(&bundle)?.permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "{mode:o}: what the journal says is not for everybody");
    let again = a.ctl(&ask).await?;
    assert_ne!(again.code, 0, "nothing is overwritten: {again:?}");

    let unpacked = a.node.dir().join("unpacked");
    std::fs::create_dir(&unpacked)?;
    let done = Command::new("tar").arg("-xf").arg(&bundle).arg("-C").arg(&unpacked).status()?;
    assert!(done.success(), "tar reads it");
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(unpacked.join("purelb-support"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.insert(name, std::fs::read_to_string(entry.path())?);
    }
    let has = |name: &str, text: &str| {
        let file = files.get(name).with_context(|| format!("no {name} among {:?}", files.keys()))?;
        anyhow::ensure!(file.contains(text), "{name} says nothing of {text}:\n{file}");
        Ok(())
    };
    has("versions.json", "purelbctl")?;
    has("status.json", &cluster.node_name("a"))?;
    has("vips.json", "192.0.2.100")?;
    has("members.json", &cluster.node_name("a"))?;
    has("events.json", "[")?;
    has("config.json", "lease.duration")?;
    has("leases.yaml", &cluster.lease_name("a"))?;
    has("services.yaml", "192.0.2.100")?;
    has("lbnodeagents.yaml", "default")?;
    has("addresses.txt", "lo")?;
    let token = std::fs::read_to_string(&kubeconfig)?;
    let secrets =
        token.lines().filter_map(|l| l.trim().split_once("-data: ").or(l.trim().split_once("token: ")));
    for (_, secret) in secrets.filter(|(key, _)| !key.contains("authority")) {
        assert!(files.values().all(|f| !f.contains(secret)), "a secret of the kubeconfig is in the bundle");
    }
    Ok(())
}
