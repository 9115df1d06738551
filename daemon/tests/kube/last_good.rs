//! A bad edit, and then a restart: the last good configuration stays (R11).

use anyhow::Result;
use purelb_core::messages::Source;
use purelb_kit::embedded::EmbeddedApi;
use purelb_kit::faults::Proxy;
use purelb_kit::wait::eventually;
use purelbd::kube::LastGoodConfig;
use purelbd::kube::{ApiAccess, KubeHandle};
use tokio::sync::mpsc;

use crate::bench::{SOON, Seen, View, change, create, mk_agent, mk_config, mk_group, quick};

struct Site {
    api: EmbeddedApi,
    proxy: Proxy,
    dir: tempfile::TempDir,
}

impl Site {
    /// A process with this site's state directory, and what it tells its engine.
    async fn daemon(&self) -> Result<(KubeHandle, View)> {
        let access = ApiAccess::kubeconfig(self.proxy.kubeconfig("daemon", "daemon", self.dir.path())?);
        let mut config = mk_config(access, quick());
        config.last_good = LastGoodConfig::in_directory(self.dir.path());
        let (inputs, receiver) = mpsc::channel(64);
        let view = View::collect(receiver);
        let handle = purelbd::kube::start(config, inputs).await?;
        view.holds("everything is listed", Seen::whole).await?;
        Ok((handle, view))
    }
}

#[tokio::test]
async fn what_was_good_is_told_before_what_is_wrong_now() -> Result<()> {
    let api = EmbeddedApi::start().await?;
    let proxy = Proxy::before(&api).start().await?;
    let site = Site { api, proxy, dir: tempfile::tempdir()? };
    let admin = site.api.client("admin")?;
    create(&admin, &mk_group("g", "192.0.2.0/28")).await?;
    create(&admin, &mk_agent("a", "^eth[0-9]$")).await?;
    let (first, _) = site.daemon().await?;
    eventually("both are written down", SOON, || async {
        let text = std::fs::read_to_string(site.dir.path().join("last-good")).unwrap_or_default();
        if text.contains("192.0.2.0/24") && text.contains("^eth[0-9]$") { Ok(()) } else { Err(text) }
    })
    .await?;
    drop(first);

    // No schema sees these mistakes.
    change(&admin, &mk_group("g", "198.51.100.0/28")).await?;
    change(&admin, &mk_agent("a", "^eth[0-9")).await?;
    let (second, view) = site.daemon().await?;
    view.holds("as it was, then as it is", |s| s.listed(Source::NodeAgents) == 2).await?;
    let seen = view.now();
    assert!(seen.groups.contains_key("g"), "{:?}", seen.groups);
    assert!(seen.agents["purelb-system/a"].config.is_err(), "what is wrong is said");
    drop(second);

    // Another object of the same name has no such past.
    let groups: kube::Api<purelb_api::ServiceGroup> = kube::Api::namespaced(admin.clone(), "purelb-system");
    let agents: kube::Api<purelb_api::LBNodeAgent> = kube::Api::namespaced(admin.clone(), "purelb-system");
    groups.delete("g", &Default::default()).await?;
    agents.delete("a", &Default::default()).await?;
    create(&admin, &mk_group("g", "198.51.100.0/28")).await?;
    create(&admin, &mk_agent("a", "^eth[0-9")).await?;
    let (_third, view) = site.daemon().await?;
    let seen = view.now();
    assert_eq!(seen.listed(Source::NodeAgents), 1);
    assert!(seen.groups.is_empty(), "{:?}", seen.groups);
    Ok(())
}
