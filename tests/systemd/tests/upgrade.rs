//! The package changes or goes: upgrades, downgrades, removal, purge; Debian's and RPM's.

use anyhow::{Result, ensure};
use purelb_systemd::figures::figure;
use purelb_systemd::guide;
use purelb_systemd::machine::{Machine, PACKAGES};
use purelb_systemd::site::{Format, PATIENCE, Site};

/// See the same in the tests of the service.
const PAST_THE_FENCE: u64 = 8_000;

/// Exchanges the package and looks that nobody noticed.
async fn exchange(
    site: &Site,
    machine: &Machine,
    vips: &[std::net::IpAddr],
    what: &str,
    command: &str,
) -> Result<()> {
    let old = machine.main_pid()?;
    let watching = site.watch(vips)?;
    machine.sh(command)?;
    let new = machine.main_pid()?;
    ensure!(new != old && new != 0, "{what}: the daemon was not exchanged\n{}", machine.journal());
    watching.probes(PAST_THE_FENCE).await?;
    let seen = watching.stop()?;
    ensure!(seen.nothing_moved(), "{what} must not move an address\n{seen}{}", machine.journal());
    figure(&format!("{what}: probes"), "0 lost, no address moves", &seen.lost(), seen.nothing_lost());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn debian_upgrade_downgrade_remove_purge() -> Result<()> {
    let site = Site::running(&["a", "b"], Format::Deb).await?;
    let vips = site.serve(4).await?;
    let (machine, _) = site.some_holder(&vips)?;
    let name = machine.name().to_owned();
    let next = &site.packages.next;
    let settings = || machine.sh("cat /etc/purelb/purelbd.toml");

    // Settings nobody touched follow the package; the administrator's own stay.
    ensure!(!settings()?.contains("New in the next version"));
    machine.sh(&format!("mkdir new; cd new; cp {PACKAGES}/{} .", next.deb))?;
    exchange(&site, machine, &vips, "apt upgrade", &format!("cd new\n{}", guide::block("upgrade-deb")?))
        .await?;
    ensure!(settings()?.contains("New in the next version"), "an untouched conffile follows");
    let installed = machine.sh("dpkg-query -W -f '${Version}' purelb")?;
    assert_eq!(installed, next.number);

    machine.sh("echo '# mine' >>/etc/purelb/purelbd.toml")?;
    let down = format!("cd here\n{}", guide::block("downgrade-deb")?);
    exchange(&site, machine, &vips, "apt downgrade", &down).await?;
    let installed = machine.sh("dpkg-query -W -f '${Version}' purelb")?;
    assert_eq!(installed, site.packages.now.number);
    ensure!(settings()?.ends_with("# mine\n"), "a changed conffile stays");

    // A daemon somebody stopped is not started by an upgrade.
    machine.sh("systemctl stop purelbd")?;
    machine.sh(&format!("dpkg -i --force-confold {PACKAGES}/{}", next.deb))?;
    assert_eq!(machine.property("ActiveState")?, "inactive");
    machine.sh("systemctl start purelbd")?;
    site.settled(&vips).await?;

    let watching = site.watch(&vips)?;
    machine.sh(&guide::block("remove-deb")?)?;
    let left = site.held_by(&name, &vips)?;
    watching.answered_by("the other node answers for all", |owner| owner != name).await?;
    let seen = watching.stop()?;
    let measured = format!("{}, {} addresses left", seen.lost(), left.len());
    figure(
        "apt remove: probes",
        "0 lost, no address left",
        &measured,
        seen.nothing_lost() && left.is_empty(),
    );
    ensure!(!site.lease_exists(&name).await?, "the Lease of a removed node must be gone");
    machine.sh("test -e /etc/purelb/kubeconfig && ! test -e /usr/sbin/purelbd")?;

    machine.sh(&guide::block("purge-deb")?)?;
    let rest = machine.sh(
        "find /etc /usr /var /run -xdev \\( -iname '*purelb*' -not -path '/usr/share/purelb/*' \\) \
         -not -path '*purelbctl*' -not -path '/usr/share/purelb'; getent passwd purelb || true; getent group purelb || true",
    )?;
    assert_eq!(rest, "", "a purge leaves nothing of the daemon");
    assert_eq!(machine.sh("systemctl --failed --no-legend")?.trim(), "");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rpm_install_upgrade_downgrade_remove() -> Result<()> {
    let site = Site::running(&["a", "b"], Format::Rpm).await?;
    let vips = site.serve(4).await?;
    let (machine, _) = site.some_holder(&vips)?;
    let name = machine.name().to_owned();
    let next = &site.packages.next;
    assert_eq!(machine.property("UnitFileState")?, "enabled");

    machine.sh("echo '# mine' >>/etc/purelb/purelbd.toml")?;
    machine.sh(&format!("mkdir new; cd new; cp {PACKAGES}/{} .", next.rpm))?;
    let up = format!("cd new\n{}", guide::block("upgrade-rpm")?);
    exchange(&site, machine, &vips, "dnf upgrade", &up).await?;
    let back = format!("cd here\n{}", guide::block("downgrade-rpm")?);
    exchange(&site, machine, &vips, "dnf downgrade", &back).await?;
    ensure!(machine.sh("cat /etc/purelb/purelbd.toml")?.ends_with("# mine\n"), "changed settings stay");

    let watching = site.watch(&vips)?;
    machine.sh(&guide::block("remove-rpm")?)?;
    let left = site.held_by(&name, &vips)?;
    watching.answered_by("the other node answers for all", |owner| owner != name).await?;
    let seen = watching.stop()?;
    let measured = format!("{}, {} addresses left", seen.lost(), left.len());
    figure(
        "dnf remove: probes",
        "0 lost, no address left",
        &measured,
        seen.nothing_lost() && left.is_empty(),
    );
    let rest = machine.sh("for file in /var/lib/purelb /run/purelb /usr/sbin/purelbd; do if [ -e $file ]; then echo $file; fi; done")?;
    assert_eq!(rest, "", "a removal leaves nothing the package or the daemon made");
    machine.until("the unit is gone", PATIENCE, || {
        let state = machine.property("LoadState").map_err(|e| format!("{e:#}"))?;
        (state == "not-found").then_some(()).ok_or(state)
    })?;
    Ok(())
}
