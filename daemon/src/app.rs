//! The composition root: builds the daemon from its configuration. `main` starts it, and
//! so may a test.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use purelb_api::service::Classes;
use purelb_core::{Engine, Input, InstanceId};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::adapters::{AdapterStats, Adapters};
use crate::config::{self, Config, Loaded, Sources};
use crate::control;
use crate::drain_mark::DrainMark;
use crate::driver::Driver;
use crate::follow::Followers;
use crate::handle::Handle;
use crate::kube::{self, Access, Credentials, KubeConfig, Tuning};
use crate::lifecycle::Signals;
use crate::lock::Lock;
use crate::logging::LogHandle;
use crate::metrics::{self, Reading};
use crate::netlink::monitor::MonitorError;
use crate::netlink::{Applier, ApplierHandle, Marks, Monitor, MonitorSettings};
use crate::packets::Announcer;
use crate::systemd::{Notifier, Systemd, watchdog};

/// Facts and answers waiting for the engine: a few thousand kernel events at once are
/// taken without gathering, and it costs memory only when used. When it is full the
/// watches wait, and the monitor gathers its changes into one.
const INPUTS: usize = 4096;
/// For what was begun when the engine said that the process may end.
const AT_THE_END: Duration = Duration::from_secs(1);

/// What may be looked at while the daemon runs.
#[derive(Clone, Debug)]
pub struct Running {
    pub handle: Handle,
    /// The configuration in force; changes with a reload.
    pub config: watch::Receiver<Arc<Config>>,
}

/// Runs the daemon until it is told to end. Needs a runtime with one thread, on the
/// thread (and so in the network namespace) that it shall serve.
pub async fn run(loaded: Loaded, sources: Sources, log: LogHandle) -> Result<()> {
    let signals = Signals::register().context("registering signals")?;
    let config = Arc::new(loaded.config);
    let _lock = Lock::take(&config.paths.runtime)?;
    fs::create_dir_all(&config.paths.state)
        .with_context(|| format!("making {}", config.paths.state.display()))?;
    let mark = Arc::new(DrainMark::in_directory(&config.paths.state));
    let draining = mark.read()?;
    let instance = InstanceId::new(&uuid::Uuid::new_v4().to_string())?;
    let engine = config.engine(instance.clone(), draining.clone())?;
    let node = engine.node.clone();
    info!(%node, %instance, version = env!("CARGO_PKG_VERSION"), "starting");
    if let Some(since) = &draining {
        info!(%since, "this node is drained and stays so until it is undrained");
    }

    let (inputs, queue) = mpsc::channel::<Input>(INPUTS);
    let marks = Marks::open(&config.network.marks.into(), &config.paths.runtime)?;
    let monitor = Monitor::open(&MonitorSettings::default(), marks.clone(), inputs.clone())
        .context("opening the netlink monitor")?;
    let announcer = Announcer::open(monitor.handle().links())?;
    let applier = ApplierHandle::spawn(Applier::open(marks).context("netlink")?, inputs.clone())?;
    let kube = kube::start(kube_config(&config, node, instance), inputs).await?;
    let stats = Arc::new(AdapterStats::default());
    let reading = Reading { adapters: stats.clone(), monitor: monitor.handle(), kube: kube.counters() };
    let adapters = Adapters::new(applier, announcer, monitor.handle(), kube, stats);
    let follow = Followers { notifier: Notifier::new(Systemd, watchdog()) };
    let (driver, handle) = Driver::new(Engine::new(engine), queue, adapters, follow, mark)?;

    let (applied, current) = watch::channel(config);
    let running = Running { handle: handle.clone(), config: current };
    let _control = control::start(running.clone(), control::Limits::default())?;
    let mut around = JoinSet::new();
    around.spawn(metrics::serve(running.clone(), reading));
    around.spawn(async move {
        signals.follow(handle, || reload(&sources, &applied, &log)).await;
    });
    let monitor = tokio::spawn(monitor.run());
    let adapters = tokio::select! {
        ended = driver.run() => ended.context("the engine's task")?,
        ended = monitor => return Err(ended.map_or_else(anyhow::Error::from, monitor_error)),
    };
    adapters.finish(AT_THE_END).await;
    info!("ended");
    Ok(())
}

fn monitor_error(ended: Result<(), MonitorError>) -> anyhow::Error {
    match ended {
        Err(error) => error.into(),
        Ok(()) => anyhow::anyhow!("the netlink monitor has ended"),
    }
}

fn kube_config(config: &Config, node: purelb_core::NodeName, instance: InstanceId) -> KubeConfig {
    let settings = &config.kubernetes;
    let given = |path: &std::path::PathBuf| (!path.as_os_str().is_empty()).then(|| path.clone());
    let credentials = match given(&settings.token_file) {
        Some(token_file) => Credentials::Token { token_file, ca_file: given(&settings.ca_file) },
        None => Credentials::Kubeconfig {
            path: Some(settings.kubeconfig.clone()),
            context: (!settings.context.is_empty()).then(|| settings.context.clone()),
        },
    };
    KubeConfig {
        node,
        instance,
        namespace: settings.namespace.clone(),
        classes: Classes {
            class: config.services.load_balancer_class.clone(),
            default_announcer: config.services.default_announcer,
        },
        control_endpoint: config.control_endpoint(),
        access: Access { credentials, servers: settings.servers.clone() },
        tuning: Tuning::default(),
    }
}

/// SIGHUP: what can change while we run changes, the rest is said.
fn reload(sources: &Sources, applied: &watch::Sender<Arc<Config>>, log: &LogHandle) {
    let fresh = match config::load(sources) {
        Ok(loaded) => loaded.config,
        Err(error) => {
            warn!(%error, "the configuration is not taken over; what was good before stays");
            return;
        }
    };
    let now = applied.borrow().clone();
    let mut next = (*now).clone();
    if let Err(error) = log.set_level(&fresh.log.level) {
        warn!(%error, "the log level stays");
    } else {
        next.log.level.clone_from(&fresh.log.level);
    }
    next.metrics = fresh.metrics.clone();
    let waiting = differences(&next, &fresh);
    if waiting.is_empty() {
        info!("configuration read again");
    } else {
        warn!(settings = waiting.join(" "), "configuration read again; these settings need a restart");
    }
    applied.send_replace(Arc::new(next));
}

/// Keys whose values differ.
fn differences(a: &Config, b: &Config) -> Vec<String> {
    let json = |config| serde_json::to_value(config).unwrap_or_default();
    let (a, b) = (json(a), json(b));
    let at =
        |value: &serde_json::Value, key: &str| value.pointer(&format!("/{}", key.replace('.', "/"))).cloned();
    config::keys().into_iter().filter(|key| at(&a, key) != at(&b, key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named_by_their_keys() {
        let (a, mut b) = (Config::default(), Config::default());
        assert!(differences(&a, &b).is_empty());
        b.lease.duration = Duration::from_secs(20);
        b.network.shadow_interfaces.clear();
        assert_eq!(differences(&a, &b), ["lease.duration", "network.shadow_interfaces"]);
    }
}
