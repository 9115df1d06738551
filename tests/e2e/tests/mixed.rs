//! Beside the Go agents: a member that does as they do, with real addresses, in the same
//! cluster as our daemons. What `docs/operate.md` says of a mixed cluster is measured here.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use jiff::SignedDuration;
use purelb_core::election::score;
use purelb_e2e::{Cluster, OlderMember, Trial, Wish, losses, millis, row, shared_plane};
use purelb_kit::lab::{Lab, now};

const LEASE: Duration = Duration::from_secs(10);
const HANDOFF: Duration = Duration::from_secs(5);
/// Half of their Lease's duration.
const THEIR_RENEWAL: Duration = Duration::from_secs(5);

/// Our daemons on these nodes, all ready; `old` has none.
async fn beside<'p>(ours: &[&str]) -> Result<Cluster<'p>> {
    let lab = Lab::builder().segment("lan", ["192.0.2.0/24", "2001:db8:1::/64"]).client("x", ["lan"]);
    let lab = ours.iter().chain(&["old"]).fold(lab, |lab, name| lab.node(name, ["lan"]));
    let mut cluster = Cluster::new(shared_plane().await?, lab).await?;
    for name in ours {
        cluster.join(name).await?.ready(Duration::from_secs(30)).await?;
    }
    cluster.register("old").await?;
    Ok(cluster)
}

/// The winner by the rule both kinds state, written once more.
fn winner<'n>(cluster: &Cluster<'_>, ip: IpAddr, among: &[&'n str]) -> &'n str {
    let key = ip.to_string();
    among.iter().min_by_key(|name| score(&cluster.node_name(name), &key)).copied().unwrap_or_default()
}

async fn all_on_winners(cluster: &Cluster<'_>, vips: &[IpAddr], among: &[&str]) -> Result<()> {
    for vip in vips {
        let wanted = winner(cluster, *vip, among);
        cluster.holder_where(*vip, &format!("on its winner {wanted}"), |n| n == wanted).await?;
    }
    Ok(())
}

#[tokio::test]
async fn both_kinds_elect_the_same_winner() -> Result<()> {
    let cluster = beside(&["a", "b"]).await?;
    let all = ["a", "b", "old"];
    let mut vips = Vec::new();
    for name in all {
        vips.extend(cluster.won_by(name, &all, 5, 0)?);
    }
    cluster.serve(Wish::new("web", vips.clone())).await?;
    all_on_winners(&cluster, &vips, &["a", "b"]).await?;
    let mut trial = Trial::start(&cluster, "x", &vips).await?;
    trial.begin();
    let older = OlderMember::start(&cluster, "old", SignedDuration::ZERO).await?;
    all_on_winners(&cluster, &vips, &all).await?;
    let (report, seen) = trial.finish();
    row(
        "an older member joins: 30 addresses, each on the one winner",
        "both have what moves until the handoff deadline, 5 s",
        &format!(
            "two owners for {} at most, none for {} at most; {} of {} lost",
            millis(seen.two_owners()?),
            millis(seen.no_owner()?),
            report.lost(),
            report.sent()
        ),
        seen.two_owners()? < HANDOFF + Duration::from_secs(1) && seen.no_owner()? == Duration::ZERO,
    );

    // It leaves in order: it withdraws, then deletes its Lease; ours take over after that.
    let its: Vec<IpAddr> = vips.iter().copied().filter(|ip| winner(&cluster, *ip, &all) == "old").collect();
    let mut trial = Trial::start(&cluster, "x", &its).await?;
    trial.begin();
    older.stop().await?;
    all_on_winners(&cluster, &vips, &["a", "b"]).await?;
    trial.until_answered_by(|n| n != "old").await?;
    let (report, seen) = trial.finish();
    row(
        "an older member stops",
        "never two owners, none for < 1 s: it lets go before it says so",
        &format!("none for {}, {} of {} lost", millis(seen.no_owner()?), report.lost(), report.sent()),
        seen.never_two()? && seen.no_owner()? < Duration::from_secs(1),
    );
    Ok(())
}

#[tokio::test]
async fn a_drain_beside_an_older_member_leaves_nothing_without_an_owner() -> Result<()> {
    let cluster = beside(&["a", "b"]).await?;
    let all = ["a", "b", "old"];
    let vips = cluster.won_by("a", &all, 8, 0)?;
    cluster.serve(Wish::new("web", vips.clone())).await?;
    let _older = OlderMember::start(&cluster, "old", SignedDuration::ZERO).await?;
    all_on_winners(&cluster, &vips, &all).await?;
    let rest = ["b", "old"];
    assert!(
        rest.iter().all(|name| vips.iter().any(|ip| winner(&cluster, *ip, &rest) == *name)),
        "both get some"
    );

    let mut trial = Trial::start(&cluster, "x", &vips).await?;
    trial.begin();
    let drained = cluster.daemon("a").ctl("drain -o json").await?;
    assert_eq!(drained.code, 0, "{drained:?}");
    let took = now().since(trial.at);
    all_on_winners(&cluster, &vips, &rest).await?;
    trial.until_answered_by(|n| n != "a").await?;
    let (report, seen) = trial.finish();
    row(
        "drain beside an older member",
        "each on its winner among the rest, never without an owner, within a renewal of theirs and the handoff deadline",
        &format!(
            "done after {}, without an owner for {}, two owners for {}, {} of {} lost; {}",
            millis(took),
            millis(seen.no_owner()?),
            millis(seen.two_owners()?),
            report.lost(),
            report.sent(),
            losses(&report, seen.at)
        ),
        // The deadline runs from when the one that is to take it has shown that it lives.
        seen.no_owner()? == Duration::ZERO && took < THEIR_RENEWAL + HANDOFF + Duration::from_secs(2),
    );

    let mut trial = Trial::start(&cluster, "x", &vips).await?;
    trial.begin();
    let back = cluster.daemon("a").ctl("undrain").await?;
    assert_eq!(back.code, 0, "{back:?}");
    all_on_winners(&cluster, &vips, &all).await?;
    trial.until_answered_by(|n| n == "a").await?;
    let (report, seen) = trial.finish();
    // The older one drops what it loses when it sees our Lease; we take it when we see ours.
    row(
        "undrain beside an older member",
        "each on its winner, none for < 1 s",
        &format!(
            "without an owner for {}, two owners for {}, {} of {} lost",
            millis(seen.no_owner()?),
            millis(seen.two_owners()?),
            report.lost(),
            report.sent()
        ),
        seen.no_owner()? < Duration::from_secs(1),
    );
    Ok(())
}

#[tokio::test]
async fn an_older_member_dies_and_its_clock_is_wrong() -> Result<()> {
    let cluster = beside(&["a"]).await?;
    let both = ["a", "old"];
    let (its, ours) = (cluster.won_by("old", &both, 1, 0)?, cluster.won_by("a", &both, 1, 0)?);
    let vips: Vec<IpAddr> = its.iter().chain(&ours).copied().collect();
    cluster.serve(Wish::new("web", vips.clone())).await?;
    all_on_winners(&cluster, &vips, &["a"]).await?;

    // Its clock is an hour behind: other Go agents would say that its Lease ran out long
    // ago. Ours counts from when it saw the renewal.
    let hour = SignedDuration::from_hours(1);
    let mut trial = Trial::start(&cluster, "x", &its).await?;
    trial.begin();
    let behind = OlderMember::start(&cluster, "old", -hour).await?;
    let mut gone = Duration::ZERO;
    for vip in &its {
        gone = gone.max(trial.withdrawn(*vip, "a").await?);
    }
    all_on_winners(&cluster, &vips, &both).await?;
    row(
        "handoff to an older member, its clock 1 h behind",
        "let go at the handoff deadline, 5 s",
        &format!("after {}", millis(gone)),
        gone > Duration::from_millis(4800) && gone < HANDOFF + Duration::from_secs(1),
    );

    // Its machine loses power: the Lease runs out by our own clock.
    trial.begin();
    cluster.node("old").power_off()?;
    drop(behind);
    for vip in &its {
        cluster.holder_where(*vip, "on a", |n| n == "a").await?;
    }
    let back = now().since(trial.at);
    row(
        "an older member dies, its clock 1 h behind",
        "taken over < lease + 0.5 s",
        &format!("after {}", millis(back)),
        back > Duration::from_secs(4) && back < LEASE + Duration::from_millis(500),
    );

    // An hour ahead: to it every other Lease has run out, and it takes everything. Ours
    // keep what they win: both have it. The one case that we cannot mend from our side.
    cluster.node("old").power_on()?;
    let mut trial = Trial::start(&cluster, "x", &ours).await?;
    trial.begin();
    let ahead = OlderMember::start(&cluster, "old", hour).await?;
    for vip in &ours {
        trial.taken_over(*vip, "a").await?;
    }
    let two: Vec<usize> = ours.iter().map(|vip| Ok(cluster.holders(*vip)?.len())).collect::<Result<_>>()?;
    row(
        "an older member whose clock is 1 h ahead",
        "takes what is not its own (they compare wall clocks): both have it",
        &format!("owners: {two:?}"),
        two.iter().all(|n| *n == 2),
    );
    for vip in &its {
        cluster.holder_where(*vip, "on old", |n| n == "old").await?;
    }
    // It does not live an hour longer, either.
    trial.begin();
    cluster.node("old").power_off()?;
    drop(ahead);
    for vip in &vips {
        cluster.holder_where(*vip, "on a alone", |n| n == "a").await?;
    }
    let back = now().since(trial.at);
    row(
        "an older member dies, its clock 1 h ahead",
        "taken over < lease + 0.5 s",
        &format!("after {}", millis(back)),
        back > Duration::from_secs(4) && back < LEASE + Duration::from_millis(500),
    );
    Ok(())
}
