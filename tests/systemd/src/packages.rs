//! The packages under test, in two versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};
use purelb_kit::controlplane::process::Guard;

use crate::cargo::{BINARIES, programs};
use crate::prepared::source;

/// A directory with packages: what is shipped, and a version after it.
#[derive(Debug)]
pub struct Packages {
    dir: PathBuf,
    /// What belongs to all tests of a binary is never dropped; this outlives them.
    _guard: Guard,
    pub now: Version,
    pub next: Version,
}

/// File names of one version.
#[derive(Clone, Debug)]
pub struct Version {
    pub number: String,
    pub deb: String,
    pub ctl_deb: String,
    pub rpm: String,
    pub ctl_rpm: String,
}

impl Version {
    fn named(number: &str, deb_arch: &str, rpm_arch: &str) -> Self {
        Self {
            number: number.to_owned(),
            deb: format!("purelb_{number}_{deb_arch}.deb"),
            ctl_deb: format!("purelbctl_{number}_{deb_arch}.deb"),
            rpm: format!("purelb-{number}-1.{rpm_arch}.rpm"),
            ctl_rpm: format!("purelbctl-{number}-1.{rpm_arch}.rpm"),
        }
    }
}

impl Packages {
    /// Built once for all tests of a binary. `PURELB_PACKAGES` names a directory with
    /// packages built already: what `make deb rpm` left in `dist`.
    pub fn get() -> Result<&'static Self> {
        static PACKAGES: OnceLock<Result<Packages, String>> = OnceLock::new();
        let made = PACKAGES.get_or_init(|| Self::make().map_err(|error| format!("{error:#}")));
        made.as_ref().map_err(|why| anyhow::anyhow!("{why}"))
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The root of an administrator's machine, as far as it is purelbctl's.
    pub fn ctl(&self) -> PathBuf {
        self.dir.join("ctl")
    }

    fn make() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("purelb-packages-").tempdir()?.keep();
        let guard = Guard::over(&dir)?;
        let number = env!("CARGO_PKG_VERSION");
        let deb_arch = output("dpkg", &["--print-architecture"])?;
        let rpm_arch = output("rpm", &["--eval", "%{_arch}"])?;
        let now = Version::named(number, &deb_arch, &rpm_arch);
        let next = Version::named(&format!("{number}+next"), &deb_arch, &rpm_arch);
        match std::env::var_os("PURELB_PACKAGES").map(PathBuf::from) {
            Some(given) => {
                for file in [&now.deb, &now.ctl_deb, &now.rpm, &now.ctl_rpm] {
                    fs::copy(given.join(file), dir.join(file))
                        .with_context(|| format!("{file} from {}; run 'make deb rpm'", given.display()))?;
                }
            }
            None => {
                build("deb", number, &dir)?;
                build("rpm", number, &dir)?;
            }
        }
        make_next_deb(&dir, &now, &next)?;
        build("rpm", &next.number, &dir)?;
        let made = Self { dir, _guard: guard, now, next };
        let deb = made.dir().join(&made.now.ctl_deb);
        output("dpkg-deb", &["-x", &deb.display().to_string(), &made.ctl().display().to_string()])?;
        Ok(made)
    }
}

/// Builds the packages of one format as `make` does, without the checks.
pub fn build(format: &str, version: &str, into: &Path) -> Result<()> {
    let built = Command::new(source().join("packaging").join(format).join("build.sh"))
        .env("PURELB_QUICK", "yes")
        .env(BINARIES, programs()?)
        .env("PURELB_PACKAGE_VERSION", version)
        .env("PURELB_DIST", into)
        .output()?;
    let words = String::from_utf8_lossy(&built.stderr);
    ensure!(built.status.success(), "packaging/{format}/build.sh failed:\n{words}");
    Ok(())
}

/// The shipped package under a later version and with other default settings, so that
/// an upgrade has a changed conffile to deal with.
fn make_next_deb(dir: &Path, now: &Version, next: &Version) -> Result<()> {
    let tree = tempfile::tempdir()?;
    let root = tree.path().join("root");
    let root_name = root.to_str().context("a temporary directory has a plain name")?;
    let deb = dir.join(&now.deb);
    output("dpkg-deb", &["-R", &deb.display().to_string(), root_name])?;
    let control = root.join("DEBIAN/control");
    let text = fs::read_to_string(&control)?;
    let changed = text.replace(&format!("Version: {}\n", now.number), &format!("Version: {}\n", next.number));
    ensure!(text != changed, "the control file has no line for version {}", now.number);
    fs::write(&control, changed)?;
    let settings = root.join("etc/purelb/purelbd.toml");
    let text = fs::read_to_string(&settings)?;
    fs::write(&settings, format!("{text}\n# New in the next version.\n"))?;
    let out = dir.join(&next.deb).display().to_string();
    output("dpkg-deb", &["--root-owner-group", "-Zgzip", "-z1", "--build", root_name, &out])?;
    Ok(())
}

fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let done =
        Command::new(program).args(arguments).output().with_context(|| format!("running {program}"))?;
    if !done.status.success() {
        bail!("{program} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(String::from_utf8(done.stdout)?.trim().to_owned())
}
