//! A Debian node's life with the package: started, stopped, restarted, reloaded,
//! crashed, hung, rebooted.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use purelb_systemd::figures::figure;
use purelb_systemd::guide;
use purelb_systemd::site::{Format, PATIENCE, Site};

/// Longer than the lifetimes a dead daemon leaves behind: whatever was not adopted is
/// gone by then. In probes, of which a thousand are sent each second.
const PAST_THE_FENCE: u64 = 8_000;

#[tokio::test(flavor = "multi_thread")]
async fn from_bare_nodes_to_an_announced_address() -> Result<()> {
    let site = Site::bare(&["a", "b"]).await?;
    let began = Instant::now();
    site.install("a", Format::Deb)?;
    let a = site.machine("a");
    // Not configured: it waits and says for what, and nothing has failed.
    assert_eq!(a.property("ActiveState")?, "inactive");
    assert_eq!(a.property("UnitFileState")?, "enabled");
    let words = a.journal();
    ensure!(words.contains("put a kubeconfig at /etc/purelb/kubeconfig"), "{words}");
    assert_eq!(a.sh("systemctl --failed --no-legend")?.trim(), "");

    site.join("a")?;
    a.wait_ready(0, PATIENCE)?;
    let _allocator = site.allocator().await?;
    site.kubectl.sh(&guide::block("service")?, &[])?;
    let vips = [site.address_of("web").await?];
    site.settled(&vips).await?;
    let took = began.elapsed();
    figure(
        "apt install to first announced address",
        "< 300 s",
        &format!("{:.1} s", took.as_secs_f64()),
        took < Duration::from_secs(300),
    );

    // Its own user, two capabilities, and no way to get more.
    let pid = a.main_pid()?;
    let status = a.sh(&format!("cat /proc/{pid}/status"))?;
    let line =
        |key: &str| status.lines().find_map(|l| l.strip_prefix(key)).unwrap_or_default().trim().to_owned();
    let uid = a.sh("id -u purelb")?;
    ensure!(line("Uid:").split_whitespace().all(|id| id == uid.trim()), "{status}");
    for set in ["CapEff:", "CapPrm:", "CapBnd:"] {
        // CAP_NET_ADMIN is number 12, CAP_NET_RAW is 13.
        assert_eq!(line(set), "0000000000003000", "{set}");
    }
    assert_eq!((line("NoNewPrivs:").as_str(), line("Seccomp:").as_str()), ("1", "2"));

    // The journal can be asked for one address.
    let about = a.sh(&format!("journalctl -o json --no-pager -u purelbd VIP={}", vips[0]))?;
    let entry: serde_json::Value =
        about.lines().last().map(serde_json::from_str).transpose()?.unwrap_or_default();
    ensure!(entry["SERVICE"] == "default/web" && entry["REASON"].is_string(), "journal: {about}");
    ensure!(a.property("StatusText")?.contains("1 of 1"), "{}", a.property("StatusText")?);

    // A second node is no event for the first.
    let watching = site.watch(&vips)?;
    site.install("b", Format::Deb)?;
    site.join("b")?;
    site.machine("b").wait_ready(0, PATIENCE)?;
    watching.probes(3_000).await?;
    site.settled(&vips).await?;
    let seen = watching.stop()?;
    figure("second node installed: probes", "0 lost", &seen.lost(), seen.nothing_lost());
    let shown = a.sh(&guide::block("verify")?).with_context(|| a.journal())?;
    ensure!(shown.starts_with("active\n") && shown.contains(&vips[0].to_string()), "{shown}");

    // Maintenance, as the guide says.
    let (machine, _) = site.some_holder(&vips)?;
    let name = machine.name().to_owned();
    let watching = site.watch(&vips)?;
    machine.sh(&guide::block("drain")?).with_context(|| machine.journal())?;
    assert_eq!(site.held_by(&name, &vips)?, [] as [std::net::IpAddr; 0], "drained and still holding");
    watching.answered_by("the other node answers", |owner| owner != name).await?;
    machine.sh(&guide::block("undrain")?)?;
    eventually_holds(&site, &name, 1, &vips)?;
    site.settled(&vips).await?;
    let seen = watching.stop()?;
    figure("purelbctl drain and undrain: probes", "0 lost", &seen.lost(), seen.nothing_lost());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_hands_over_and_restart_does_not() -> Result<()> {
    let site = Site::running(&["a", "b"], Format::Deb).await?;
    let vips = site.serve(4).await?;
    let (machine, held) = site.some_holder(&vips)?;
    let name = machine.name().to_owned();

    // restart: another process, the same addresses.
    let old = machine.main_pid()?;
    let watching = site.watch(&vips)?;
    machine.sh("systemctl restart purelbd")?;
    let new = machine.wait_ready(old, PATIENCE)?;
    watching.probes(PAST_THE_FENCE).await?;
    let seen = watching.stop()?;
    ensure!(seen.nothing_moved(), "restart must not move an address\n{seen}{}", machine.journal());
    figure("systemctl restart: probes", "0 lost, no address moves", &seen.lost(), seen.nothing_lost());

    // reload: the same process, another level; then a mistake, which changes nothing.
    machine.write("/etc/purelb/purelbd.d/log.toml", "[log]\nlevel = \"debug\"\n")?;
    machine.sh("systemctl reload purelbd")?;
    machine.until("the reload is said", PATIENCE, || said(machine.journal(), "configuration read again"))?;
    machine.write("/etc/purelb/purelbd.d/log.toml", "[log]\nlevl = \"debug\"\n")?;
    machine.sh("systemctl reload purelbd")?;
    machine.until("the mistake is said", PATIENCE, || {
        let all = machine.sh("journalctl --no-pager -o verbose -u purelbd").unwrap_or_default();
        said(all, "log.levl")
    })?;
    assert_eq!(machine.property("ActiveState")?, "active");
    assert_eq!(machine.main_pid()?, new, "a reload keeps the process");

    // restart with that mistake: the next process could not adopt, so others take over.
    let watching = site.watch(&vips)?;
    ensure!(machine.sh("systemctl restart purelbd").is_err(), "a broken configuration must not start");
    watching.answered_by("the other node answers for all", |owner| owner != name).await?;
    let seen = watching.stop()?;
    figure(
        "systemctl restart with a broken configuration: probes",
        "0 lost",
        &seen.lost(),
        seen.nothing_lost(),
    );
    machine.write("/etc/purelb/purelbd.d/log.toml", "")?;
    // It tries again by itself.
    machine.wait_ready(new, PATIENCE)?;
    site.settled(&vips).await?;
    eventually_holds(&site, &name, held.len(), &vips)?;

    // stop: the others take over first.
    let watching = site.watch(&vips)?;
    let began = Instant::now();
    machine.sh("systemctl stop purelbd")?;
    let took = began.elapsed();
    assert_eq!(site.held_by(&name, &vips)?, [] as [std::net::IpAddr; 0], "stopped and still holding");
    watching.answered_by("the other node answers for all", |owner| owner != name).await?;
    let seen = watching.stop()?;
    let measured = format!("{} in {} ms", seen.lost(), took.as_millis());
    figure("systemctl stop: probes", "0 lost", &measured, seen.nothing_lost());
    ensure!(!site.lease_exists(&name).await?, "the Lease of a stopped node must be gone");
    assert_eq!(machine.property("Result")?, "success");

    // start: takes part again, and nobody is without an owner meanwhile.
    let watching = site.watch(&vips)?;
    machine.sh("systemctl start purelbd")?;
    eventually_holds(&site, &name, held.len(), &vips)?;
    site.settled(&vips).await?;
    let seen = watching.stop()?;
    figure("systemctl start, winning addresses back: probes", "0 lost", &seen.lost(), seen.nothing_lost());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_or_a_hang_moves_nothing() -> Result<()> {
    let site = Site::running(&["a", "b"], Format::Deb).await?;
    let vips = site.serve(4).await?;
    let (machine, _) = site.some_holder(&vips)?;

    let old = machine.main_pid()?;
    let watching = site.watch(&vips)?;
    machine.sh(&format!("kill -KILL {old}"))?;
    let old = machine.wait_ready(old, PATIENCE)?;
    watching.probes(PAST_THE_FENCE).await?;
    let seen = watching.stop()?;
    ensure!(seen.nothing_moved(), "a crash must not move an address\n{seen}{}", machine.journal());
    figure(
        "SIGKILL, restarted by systemd: probes",
        "0 lost, no address moves",
        &seen.lost(),
        seen.nothing_lost(),
    );

    // Stopped as by a debugger: the watchdog ends it and the next one adopts.
    let watching = site.watch(&vips)?;
    let began = Instant::now();
    machine.sh(&format!("kill -STOP {old}"))?;
    let old = machine.wait_ready(old, PATIENCE)?;
    let took = began.elapsed();
    watching.probes(PAST_THE_FENCE).await?;
    let seen = watching.stop()?;
    let words = machine.journal();
    ensure!(words.contains("Watchdog timeout"), "{words}");
    ensure!(
        seen.timelines.iter().all(|t| t.two_owners().next().is_none()),
        "two owners after a hang\n{seen}"
    );
    let measured = format!("{}, ready again after {:.1} s", seen.lost(), took.as_secs_f64());
    figure(
        "SIGSTOP until the watchdog acts: probes",
        "0 lost, never two owners",
        &measured,
        seen.nothing_lost(),
    );

    // A daemon that dies again and again is started more slowly, but always.
    let mut pid = old;
    for _ in 0..3 {
        machine.sh(&format!("kill -KILL {pid}"))?;
        pid = machine.wait_ready(pid, PATIENCE)?;
    }
    let crashes = machine.sh("wc -l </run/purelb/crashes")?;
    ensure!(crashes.trim().parse::<u32>()? >= 4, "crashes counted: {crashes}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_hangs_ends_without_addresses() -> Result<()> {
    let site = Site::running(&["a"], Format::Deb).await?;
    let vips = site.serve(2).await?;
    let machine = site.machine("a");
    // A stop the daemon does not hear, and little patience.
    machine.write(
        "/etc/systemd/system/purelbd.service.d/deaf.conf",
        "[Service]\nKillSignal=SIGWINCH\nTimeoutStopSec=1s\n",
    )?;
    machine.sh("systemctl daemon-reload; systemctl stop purelbd")?;
    assert_eq!(machine.property("Result")?, "timeout");
    let left = site.held_by("a", &vips)?;
    figure("stop that ran into its limit: addresses left", "0", &left.len().to_string(), left.is_empty());
    // Nobody else removed them: it was the unit, at once.
    let words = machine.journal();
    ensure!(words.contains("2 removed"), "{words}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reboot_is_a_handover() -> Result<()> {
    let site = Site::running(&["a", "b"], Format::Deb).await?;
    let vips = site.serve(4).await?;
    let (machine, held) = site.some_holder(&vips)?;
    let name = machine.name().to_owned();
    let watching = site.watch(&vips)?;
    machine.reboot()?;
    let (lost, timelines) = {
        let seen = &watching;
        eventually_holds(&site, &name, held.len(), &vips)?;
        site.settled(&vips).await?;
        seen.probes(500).await?;
        let seen = watching.stop()?;
        (seen.lost(), seen)
    };
    // It was off: others had them in between.
    let away = timelines.timelines.iter().filter(|t| held.contains(&t.vip));
    ensure!(
        away.clone().all(|t| t.spans.iter().any(|s| !s.owners.contains(&name))),
        "the addresses never left a node that rebooted\n{timelines}"
    );
    ensure!(timelines.unowned().is_zero(), "an address without an owner\n{timelines}");
    figure("reboot and return: probes", "0 lost", &lost, timelines.nothing_lost());
    Ok(())
}

/// Waits until a node holds this many of them.
fn eventually_holds(site: &Site, name: &str, count: usize, vips: &[std::net::IpAddr]) -> Result<()> {
    site.machine(name).until(&format!("it holds {count} addresses"), PATIENCE, || {
        let held = site.held_by(name, vips).map_err(|e| format!("{e:#}"))?;
        if held.len() == count { Ok(()) } else { Err(format!("{held:?}")) }
    })
}

fn said(journal: String, words: &str) -> Result<(), String> {
    if journal.contains(words) { Ok(()) } else { Err(format!("no \"{words}\" yet")) }
}
