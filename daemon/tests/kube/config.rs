//! Credentials: files that change while we run, and files that are wrong.

use anyhow::Result;
use purelb_core::messages::{LeaseMode, Source};
use purelb_kit::embedded::EmbeddedApi;
use purelb_kit::faults::{Fault, Proxy};
use purelbd::kube::{AccessError, ApiAccess};
use serde_json::json;
use tokio::sync::mpsc;

use crate::bench::{Seen, View, mk_config, mk_write, quick, token_access};

fn asked_as(api: &EmbeddedApi, name: &str) -> bool {
    api.requests().keys().any(|k| k.client == name)
}

#[tokio::test]
async fn a_token_replaced_in_its_file_is_used_from_the_next_request_on() -> Result<()> {
    let api = EmbeddedApi::start().await?;
    let dir = tempfile::tempdir()?;
    let token = dir.path().join("token");
    std::fs::write(&token, "first\n")?;
    let (inputs, receiver) = mpsc::channel(64);
    let view = View::collect(receiver);
    let config = mk_config(token_access(&[&api.url()], token.clone()), quick());
    let handle = purelbd::kube::start(config, inputs).await?;
    view.holds("everything is listed", Seen::whole).await?;
    assert!(asked_as(&api, "first") && !asked_as(&api, "second"));

    // Away for a moment: the last one is used.
    std::fs::remove_file(&token)?;
    handle.write_lease(mk_write(1, LeaseMode::Create));
    view.holds("written", |s| s.written.get(&1).is_some_and(|(_, r)| r.is_ok())).await?;
    std::fs::write(&token, "second\n")?;
    handle.write_lease(mk_write(2, LeaseMode::Renew));
    view.holds("renewed", |s| s.written.get(&2).is_some_and(|(_, r)| r.is_ok())).await?;
    assert!(asked_as(&api, "second"), "{:?}", api.requests());
    handle.relist(Source::Leases);
    view.holds("listed", |s| s.listed(Source::Leases) == 2).await
}

#[tokio::test]
async fn a_kubeconfig_with_new_credentials_is_read_again_when_the_old_are_refused() -> Result<()> {
    let api = EmbeddedApi::start().await?;
    let proxy = Proxy::before(&api).start().await?;
    let dir = tempfile::tempdir()?;
    let file = proxy.kubeconfig("daemon", "first", dir.path())?;
    let (inputs, receiver) = mpsc::channel(64);
    let view = View::collect(receiver);
    let handle = purelbd::kube::start(mk_config(ApiAccess::kubeconfig(file), quick()), inputs).await?;
    view.holds("everything is listed", Seen::whole).await?;
    proxy.kubeconfig("daemon", "second", dir.path())?;
    let refused = proxy.inject(Fault::answer(401).on_writes().times(1));
    handle.write_lease(mk_write(1, LeaseMode::Create));
    view.holds("written", |s| s.written.get(&1).is_some_and(|(_, r)| r.is_ok())).await?;
    assert_eq!(refused.hits(), 1);
    assert!(asked_as(&api, "second"));
    Ok(())
}

#[tokio::test]
async fn what_is_wrong_is_said_at_the_start() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let fails = async |access: ApiAccess| {
        let (inputs, _receiver) = mpsc::channel(1);
        purelbd::kube::start(mk_config(access, quick()), inputs).await.unwrap_err()
    };
    let missing = fails(ApiAccess::kubeconfig(dir.path().join("none"))).await;
    assert!(
        matches!(missing, AccessError::Kubeconfig(_)) && missing.to_string().contains("none"),
        "{missing}"
    );

    let token = dir.path().join("token");
    let error = fails(token_access(&["https://192.0.2.1:6443"], token.clone())).await;
    assert!(matches!(error, AccessError::TokenFile { .. }), "{error}");
    std::fs::write(&token, "t")?;
    assert!(matches!(fails(token_access(&[], token.clone())).await, AccessError::NoServers));
    let error = fails(token_access(&["192.0.2.1"], token)).await;
    assert!(matches!(error, AccessError::NoHost(_)), "{error}");

    let insecure = dir.path().join("insecure");
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.1", "insecure-skip-tls-verify": true}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}]});
    std::fs::write(&insecure, config.to_string())?;
    assert!(matches!(fails(ApiAccess::kubeconfig(insecure)).await, AccessError::Unverified));
    Ok(())
}
