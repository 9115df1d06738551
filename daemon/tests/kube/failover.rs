//! Two ways to the API: when one fails, the Lease and the watches take the other.

use std::time::Duration;

use anyhow::Result;
use purelb_core::messages::{LeaseError, LeaseMode, Source};
use purelb_kit::controlplane::LabCa;
use purelb_kit::embedded::EmbeddedApi;
use purelb_kit::faults::{Cut, Proxy};
use purelbd::kube::{ApiAccess, KubeHandle, KubeTuning};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::bench::{SOON, Seen, View, create, mk_config, mk_lease, mk_write, quick, token_access};

struct Two {
    api: EmbeddedApi,
    first: Proxy,
    second: Proxy,
    handle: KubeHandle,
    view: View,
    _dir: tempfile::TempDir,
}

async fn two() -> Result<Two> {
    let api = EmbeddedApi::start().await?;
    let (first, second) = (Proxy::before(&api).start().await?, Proxy::before(&api).start().await?);
    let dir = tempfile::tempdir()?;
    let token = dir.path().join("token");
    std::fs::write(&token, "daemon\n")?;
    let (inputs, receiver) = mpsc::channel(64);
    let view = View::collect(receiver);
    let tuning = KubeTuning { idle: Duration::from_secs(1), ..quick() };
    let config = mk_config(token_access(&[first.url(), second.url()], token), tuning);
    let handle = purelbd::kube::start(config, inputs).await?;
    view.holds("everything is listed", Seen::whole).await?;
    Ok(Two { api, first, second, handle, view, _dir: dir })
}

async fn survives(cut: Cut) -> Result<()> {
    let two = two().await?;
    two.handle.write_lease(mk_write(1, LeaseMode::Create));
    two.view.holds("created", |s| s.written.contains_key(&1)).await?;
    assert!(two.second.counters().connections == 0, "the first is good");

    let severed = two.first.cut(cut);
    let began = Instant::now();
    // As the engine does: a second each, again after half a second.
    let mut seq = 1;
    let renewed = loop {
        seq += 1;
        let mut write = mk_write(seq, LeaseMode::Renew);
        write.timeout = Duration::from_secs(1);
        two.handle.write_lease(write);
        let answer = two.view.until("an answer", |s| s.written.get(&seq).map(|(_, r)| r.is_ok())).await?;
        if answer {
            break began.elapsed();
        }
        assert!(began.elapsed() < Duration::from_secs(7), "fenced: {:?}", two.handle.counters());
    };
    create(&two.api.client("admin")?, &mk_lease("n2", "other")).await?;
    two.view.holds("the watches moved, too", |s| s.leases.contains_key("n2")).await?;
    println!("{cut:?}: Lease renewed after {renewed:?}, watches whole after {:?}", began.elapsed());
    assert!(renewed < Duration::from_secs(4), "{renewed:?}");
    assert!(two.second.open_watches() >= 1);

    // And back, when the second fails.
    severed.restore();
    let _gone = two.second.cut(cut);
    two.handle.relist(Source::Leases);
    create(&two.api.client("admin")?, &mk_lease("n3", "other")).await?;
    two.view.holds("back at the first", |s| s.leases.contains_key("n3")).await
}

#[tokio::test]
async fn an_endpoint_that_hangs() -> Result<()> {
    survives(Cut::Hang).await
}

#[tokio::test]
async fn an_endpoint_that_refuses() -> Result<()> {
    survives(Cut::Refuse).await
}

#[tokio::test]
async fn an_endpoint_that_was_killed() -> Result<()> {
    survives(Cut::Down).await
}

#[tokio::test]
async fn a_first_endpoint_that_is_not_there_at_the_start() -> Result<()> {
    let api = EmbeddedApi::start().await?;
    let proxy = Proxy::before(&api).start().await?;
    let dir = tempfile::tempdir()?;
    let token = dir.path().join("token");
    std::fs::write(&token, "daemon")?;
    let (inputs, receiver) = mpsc::channel(64);
    let view = View::collect(receiver);
    // Reserved and never listening.
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
    let servers = [&*format!("http://{nobody}"), proxy.url()];
    let config = mk_config(token_access(&servers, token), quick());
    let handle = purelbd::kube::start(config, inputs).await?;
    view.holds("everything is listed", Seen::whole).await?;
    assert!(handle.counters().failovers.get() >= 1);
    Ok(())
}

/// The cluster gets another authority: what was signed by the former is gone, and the file
/// on the node is replaced some time later.
#[tokio::test]
async fn a_rotated_authority_is_picked_up_without_a_restart() -> Result<()> {
    let api = EmbeddedApi::start().await?;
    let (old, new) = (LabCa::new()?, LabCa::new()?);
    let first = Proxy::before(&api).tls(&old)?.start().await?;
    let second = Proxy::before(&api).tls(&new)?.start().await?;
    let dir = tempfile::tempdir()?;
    let (file, authority) = (dir.path().join("kubeconfig"), dir.path().join("ca.crt"));
    std::fs::write(&authority, old.cert_pem())?;
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": first.url(), "certificate-authority": authority}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "daemon"}}],
    });
    std::fs::write(&file, kubeconfig.to_string())?;
    let (inputs, receiver) = mpsc::channel(64);
    let view = View::collect(receiver);
    let servers = vec![first.url().to_owned(), second.url().to_owned()];
    let access = ApiAccess { servers, ..ApiAccess::kubeconfig(file) };
    let tuning = KubeTuning { idle: Duration::from_secs(1), ..quick() };
    let handle = purelbd::kube::start(mk_config(access, tuning), inputs).await?;
    view.holds("everything is listed", Seen::whole).await?;
    handle.write_lease(mk_write(1, LeaseMode::Create));
    view.holds("created", |s| s.written.contains_key(&1)).await?;

    let _severed = first.cut(Cut::Refuse);
    handle.write_lease(mk_write(2, LeaseMode::Renew));
    let answer = view.until("an answer", |s| s.written.get(&2).map(|(_, r)| r.clone())).await?;
    assert!(matches!(&answer, Err(LeaseError::Unreachable(_) | LeaseError::Timeout)), "{answer:?}");

    std::fs::write(&authority, new.cert_pem())?;
    let mut seq = 2;
    let began = Instant::now();
    loop {
        seq += 1;
        handle.write_lease(mk_write(seq, LeaseMode::Renew));
        if view.until("an answer", |s| s.written.get(&seq).map(|(_, r)| r.is_ok())).await? {
            break;
        }
        assert!(began.elapsed() < SOON, "not picked up: {:?}", handle.counters());
    }
    // The watches are there again, too.
    create(&api.client("admin")?, &mk_lease("n2", "other")).await?;
    view.holds("the watch tells", |s| s.leases.contains_key("n2")).await
}
