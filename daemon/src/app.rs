//! The composition root: builds the daemon from its configuration. `main` starts it, and
//! so may a test.

use std::fs;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use purelb_api::service::Classes;
use purelb_core::{Engine, Input, InstanceId};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::announce::{PacketSender, SegmentListener, SegmentStats};
use crate::config::{self, Config, Loaded, Sources};
use crate::control;
use crate::engine::driver::EngineDriver;
use crate::engine::effects::{EffectDispatcher, EffectStats};
use crate::engine::handle::EngineHandle;
use crate::engine::observers::DaemonObserver;
use crate::host::drain_mark::DrainMark;
use crate::host::instance_lock::InstanceLock;
use crate::host::logging::LogHandle;
use crate::host::memory;
use crate::host::signals::DaemonSignals;
use crate::host::systemd::{NotifySocket, SystemdNotifier, watchdog};
use crate::kube::LastGoodConfig;
use crate::kube::{self, ApiAccess, Credentials, KubeConfig, KubeTuning};
use crate::metrics::{self, MetricSources};
use crate::netlink::monitor::MonitorError;
use crate::netlink::{AddressOwnership, ApplierHandle, KernelApplier, KernelMonitor, MonitorSettings};

/// Facts and answers waiting for the engine: a few thousand kernel events at once are
/// taken without gathering, and it costs memory only when used. When it is full the
/// watches wait, and the monitor gathers its changes into one.
const INPUT_QUEUE: usize = 4096;
/// In the state directory: the token we asked for ourselves.
const OWN_TOKEN: &str = "token";
/// For what was begun when the engine said that the process may end.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// What may be looked at while the daemon runs.
#[derive(Clone, Debug)]
pub struct RunningDaemon {
    pub handle: EngineHandle,
    /// The configuration in force; changes with a reload.
    pub config: watch::Receiver<Arc<Config>>,
    /// What the API server was asked and answered.
    pub kube: Arc<kube::KubeCounters>,
}

/// Runs the daemon until it is told to end. Needs a runtime with one thread, on the
/// thread (and so in the network namespace) that it shall serve.
pub async fn run(loaded: Loaded, sources: Sources, log: LogHandle) -> Result<()> {
    let signals = DaemonSignals::register().context("registering signals")?;
    let config = Arc::new(loaded.config);
    let _lock = InstanceLock::take(&config.paths.runtime)?;
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

    let (inputs, queue) = mpsc::channel::<Input>(INPUT_QUEUE);
    let marks = AddressOwnership::open(&config.network.marks.into(), &config.paths.runtime)?;
    let monitor = KernelMonitor::open(&MonitorSettings::default(), marks.clone(), inputs.clone())
        .context("opening the netlink monitor")?;
    let packets = PacketSender::open(monitor.handle().links())?;
    let applier = ApplierHandle::spawn(KernelApplier::open(marks).context("netlink")?, inputs.clone())?;
    let kube = kube::start(kube_config(&config, node, instance), inputs).await?;
    let vital: [VitalPart; 2] = [
        ("the thread that changes addresses", Box::pin(applier.gone())),
        ("the task that writes the Lease", Box::pin(kube.lease_writer_gone())),
    ];
    let stats = Arc::new(EffectStats::default());
    let segment_stats = Arc::new(SegmentStats::default());
    let segments = SegmentListener::new(monitor.handle().links(), segment_stats.clone());
    let metric_sources = MetricSources {
        adapters: stats.clone(),
        segments: segment_stats,
        monitor: monitor.handle(),
        kube: kube.counters(),
    };
    let adapters = EffectDispatcher::new(applier, packets, segments, monitor.handle(), kube, stats);
    let follow = DaemonObserver { notifier: SystemdNotifier::new(NotifySocket, watchdog()) };
    let (driver, handle) = EngineDriver::new(Engine::new(engine), queue, adapters, follow, mark)?;

    let (applied, current) = watch::channel(config);
    let running =
        RunningDaemon { handle: handle.clone(), config: current, kube: metric_sources.kube.clone() };
    let metrics = metrics::serve(running.clone(), metric_sources);
    let _control = control::start(running, control::ControlLimits::default(), metrics)?;
    let mut around = JoinSet::new();
    around.spawn(memory::shrink_after_start(handle.clone()));
    around.spawn(async move {
        signals.follow(handle, || reload(&sources, &applied, &log)).await;
    });
    let monitor = tokio::spawn(monitor.run());
    let monitor = async { ended_monitor(monitor.await) };
    let adapters = run_until_ended(driver.run(), monitor, vital).await?;
    let left = adapters.left_behind().join(" ");
    adapters.finish(SHUTDOWN_GRACE).await;
    if !left.is_empty() {
        // Their lifetime ends them; until then the Lease keeps others from them.
        anyhow::bail!("the kernel did not let go of {left}");
    }
    info!("ended");
    Ok(())
}

/// A part the daemon cannot do without, by name, and its end.
type VitalPart = (&'static str, Pin<Box<dyn Future<Output = ()>>>);

/// Runs the engine's task until it is done. If a part ends before, so does the process: an
/// engine whose decisions nobody carries out looks healthy, feeds the watchdog, and serves
/// nobody. The service manager starts another, which takes over what is in the kernel.
async fn run_until_ended<T>(
    driver: impl Future<Output = io::Result<T>>,
    monitor: impl Future<Output = anyhow::Error>,
    vital: [VitalPart; 2],
) -> Result<T> {
    let [(first, first_gone), (second, second_gone)] = vital;
    tokio::select! {
        biased;
        ended = driver => ended.context("the engine's task"),
        error = monitor => Err(error),
        () = first_gone => Err(anyhow!("{first} has ended")),
        () = second_gone => Err(anyhow!("{second} has ended")),
    }
}

fn ended_monitor(ended: Result<Result<(), MonitorError>, tokio::task::JoinError>) -> anyhow::Error {
    match ended {
        Err(error) => error.into(),
        Ok(Err(error)) => error.into(),
        Ok(Ok(())) => anyhow!("the netlink monitor has ended"),
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
        access: ApiAccess {
            credentials,
            servers: settings.servers.clone(),
            own_token: Some(config.paths.state.join(OWN_TOKEN)),
        },
        tuning: KubeTuning::default(),
        last_good: LastGoodConfig::in_directory(&config.paths.state),
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
    // Where what is in force was said last.
    for key in config::keys().into_iter().filter(|key| !waiting.contains(key)) {
        match fresh.origins.get(&key) {
            Some(place) => drop(next.origins.insert(key, place.clone())),
            None => drop(next.origins.remove(&key)),
        }
    }
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

    #[tokio::test]
    async fn the_process_ends_with_any_part_it_cannot_do_without() {
        let driver = || std::future::pending::<io::Result<()>>();
        let monitor = || std::future::pending::<anyhow::Error>();
        let part = |name, gone: bool| -> VitalPart {
            let end: Pin<Box<dyn Future<Output = ()>>> =
                if gone { Box::pin(std::future::ready(())) } else { Box::pin(std::future::pending()) };
            (name, end)
        };
        for dead in [0, 1] {
            let vital = [part("first", dead == 0), part("second", dead == 1)];
            let ended = run_until_ended(driver(), monitor(), vital).await.unwrap_err();
            assert_eq!(ended.to_string(), format!("{} has ended", ["first", "second"][dead]));
        }
        let both = [part("first", true), part("second", true)];
        run_until_ended(std::future::ready(Ok(())), monitor(), both).await.expect("done is done");
    }

    #[test]
    fn differences_are_named_by_their_keys() {
        let (a, mut b) = (Config::default(), Config::default());
        assert!(differences(&a, &b).is_empty());
        b.lease.duration = Duration::from_secs(20);
        b.network.shadow_interfaces.clear();
        assert_eq!(differences(&a, &b), ["lease.duration", "network.shadow_interfaces"]);
    }
}
