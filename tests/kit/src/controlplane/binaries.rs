//! Where etcd, kube-apiserver and kube-controller-manager come from.
//!
//! `KUBEBUILDER_ASSETS` first, then PATH, then our own cache, which
//! `tests/controlplane/build.sh` fills once. A set that is incomplete or too old is
//! passed over and named, so that nobody wonders which server a test ran against.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The oldest release whose CRD validation has every CEL function our schemas use
/// (`ip()` and `cidr()`) and whose Services know `ipMode`.
const OLDEST_MINOR: u32 = 33;

#[derive(Clone, Debug)]
pub struct Binaries {
    pub etcd: PathBuf,
    pub apiserver: PathBuf,
    pub controller_manager: PathBuf,
    /// What `kube-apiserver --version` says.
    pub version: String,
}

impl Binaries {
    /// Finds a complete set; builds one if there is none. May take minutes, once.
    pub fn find() -> Result<Self> {
        let mut passed_over = Vec::new();
        if let Some(dir) = env::var_os("KUBEBUILDER_ASSETS") {
            match Self::in_dirs(&[PathBuf::from(dir)]) {
                Ok(found) => return Ok(found),
                Err(why) => {
                    eprintln!("KUBEBUILDER_ASSETS is passed over: {why:#}");
                    passed_over.push(format!("KUBEBUILDER_ASSETS: {why:#}"));
                }
            }
        }
        let path: Vec<PathBuf> =
            env::var_os("PATH").map_or_else(Vec::new, |p| env::split_paths(&p).collect());
        match Self::in_dirs(&path) {
            Ok(found) => return Ok(found),
            Err(why) => passed_over.push(format!("PATH: {why:#}")),
        }
        Self::in_dirs(&[Self::build()?]).with_context(|| {
            format!("the built control plane does not fit (before it: {})", passed_over.join("; "))
        })
    }

    fn in_dirs(dirs: &[PathBuf]) -> Result<Self> {
        let find = |name: &str| {
            dirs.iter().map(|d| d.join(name)).find(|p| p.is_file()).with_context(|| format!("no {name}"))
        };
        let (etcd, apiserver) = (find("etcd")?, find("kube-apiserver")?);
        let controller_manager = find("kube-controller-manager")?;
        let version = version_of(&apiserver)?;
        match minor(&version) {
            Some(m) if m >= OLDEST_MINOR => Ok(Self { etcd, apiserver, controller_manager, version }),
            _ => bail!("{} is {version:?}, need 1.{OLDEST_MINOR} or newer", apiserver.display()),
        }
    }

    fn build() -> Result<PathBuf> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../controlplane/build.sh");
        let out = Command::new("bash")
            .arg(&script)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("running {}", script.display()))?;
        if !out.status.success() {
            bail!("{} failed ({}); its output is above", script.display(), out.status);
        }
        let text = String::from_utf8(out.stdout).context("build.sh printed something that is not text")?;
        let dir = text.lines().last().unwrap_or_default().trim();
        if dir.is_empty() {
            bail!("{} printed no directory", script.display());
        }
        Ok(PathBuf::from(dir))
    }
}

fn version_of(apiserver: &Path) -> Result<String> {
    let out = Command::new(apiserver)
        .arg("--version")
        .output()
        .with_context(|| format!("running {} --version", apiserver.display()))?;
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// `Kubernetes v1.36.3` -> 36
fn minor(version: &str) -> Option<u32> {
    let digits = version.split_once("v1.")?.1;
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_minor_version() {
        assert_eq!(minor("Kubernetes v1.36.3"), Some(36));
        assert_eq!(minor("Kubernetes v1.9.0-alpha.1+abc"), Some(9));
        assert_eq!(minor("Kubernetes v0.0.0-master+$Format:%H$"), None);
        assert_eq!(minor(""), None);
    }

    #[test]
    fn an_incomplete_directory_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("etcd"), "").unwrap();
        let why = Binaries::in_dirs(&[dir.path().to_owned()]).unwrap_err().to_string();
        assert_eq!(why, "no kube-apiserver");
    }
}
