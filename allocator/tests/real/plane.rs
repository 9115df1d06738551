//! A control plane with the shipped manifests, and allocators that run as processes.

use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use nix::sys::signal::Signal;
use purelb_kit::controlplane::process::Process;
use purelb_kit::controlplane::{ControlPlane, ServiceAccount};
use purelb_kit::wait::eventually;
use tokio::sync::OnceCell;

use crate::common::{Cluster, PATIENCE, SYSTEM};

/// An allocator process.
pub struct Allocator {
    process: Mutex<Process>,
}

impl Allocator {
    /// Starts the program with the rights of the manifests.
    pub async fn start(plane: &ControlPlane, name: &str, flags: &[&str]) -> Result<Self> {
        let kubeconfig = plane.kubeconfig_for(&ServiceAccount::allocator(), &plane.url()).await?;
        Self::start_with(plane, name, &kubeconfig, flags)
    }

    pub fn start_with(plane: &ControlPlane, name: &str, kubeconfig: &Path, flags: &[&str]) -> Result<Self> {
        let program = Path::new(env!("CARGO_BIN_EXE_purelb-allocator"));
        let mut args = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--identity={name}"),
            "--metrics-address=127.0.0.1:0".into(),
        ];
        // Quick elections, where a test does not say otherwise.
        for timer in ["--lease-duration=3s", "--renew-deadline=2s", "--retry-period=250ms"] {
            let name = timer.split('=').next().unwrap_or_default();
            if !flags.iter().any(|flag| flag.starts_with(name)) {
                args.push(timer.into());
            }
        }
        args.extend(flags.iter().map(ToString::to_string));
        let log = plane.dir().join(format!("{name}.log"));
        let process = Process::start("purelb-allocator", program, &args, &log)?;
        Ok(Self { process: Mutex::new(process) })
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.lock().unwrap().signal(signal)
    }

    pub fn kill(&self) {
        self.process.lock().unwrap().end();
    }

    /// SIGTERM, and waits for its end.
    pub async fn stop(&self) -> Result<()> {
        self.signal(Signal::SIGTERM)?;
        eventually("the allocator stops", PATIENCE, || async {
            let mut process = self.process.lock().unwrap();
            match process.exited() {
                Ok(Some(status)) if status.success() => Ok(()),
                other => Err(format!("{other:?} {}", process.log_tail())),
            }
        })
        .await
    }

    pub fn log(&self) -> String {
        self.process.lock().unwrap().log_tail()
    }
}

/// Who holds the leader's Lease, by its name.
pub async fn leader(cluster: &Cluster, name: &str) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), SYSTEM);
    eventually(&format!("{name} leads"), PATIENCE, || async {
        let lease = leases.get_opt("purelb-allocator").await.map_err(|e| e.to_string())?;
        let holder = lease.and_then(|l| l.spec?.holder_identity).unwrap_or_default();
        if holder.starts_with(&format!("{name}_")) { Ok(()) } else { Err(holder) }
    })
    .await
}

/// A plane of one's own.
pub async fn own() -> Result<(ControlPlane, Cluster)> {
    let plane = ControlPlane::start().await?;
    plane.apply_manifests().await.context("applying deploy/k8s")?;
    let cluster = Cluster::new(plane.admin()?);
    Ok((plane, cluster))
}

/// One plane and one allocator for all tests that need nothing special; each uses
/// namespaces, groups and addresses of its own.
pub async fn shared() -> Result<Cluster> {
    static READY: OnceCell<Allocator> = OnceCell::const_new();
    let plane = ControlPlane::shared().await?;
    READY
        .get_or_try_init(|| async {
            plane.apply_manifests().await?;
            Allocator::start(plane, "shared", &["--subnet-grace=1s", "--default-announcer=PureLB"]).await
        })
        .await?;
    Ok(Cluster::new(plane.admin()?))
}
