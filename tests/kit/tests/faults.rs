//! Every fault the proxy knows, on a client that follows Leases through it: the fault is
//! seen, it ends when it is told to, and the client's view is whole again.

#[path = "faults/bench.rs"]
mod bench;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::PostParams;
use kube::runtime::watcher;
use purelb_kit::controlplane::{ControlPlane, ServiceAccount, fixtures};
use purelb_kit::embedded::{EmbeddedApi, RequestKey, Verb};
use purelb_kit::faults::{Cut, End, Fault, Matcher, Proxy, outage};
use purelb_kit::wait::eventually;

use bench::{Bench, Mirror, SOON, code, create, hold, leases, mk_lease, not_yet, remove};

#[tokio::test]
async fn latency_delays_and_is_drawn_from_the_range() -> Result<()> {
    let bench = Bench::start().await?;
    let fault =
        bench.proxy.inject(Fault::latency_between(Duration::from_millis(60), Duration::from_millis(40)));
    let began = Instant::now();
    bench.through.get("a").await?;
    let took = began.elapsed();
    ensure!(took >= Duration::from_millis(60), "{took:?}");
    ensure!(bench.proxy.counters().delayed == 1 && fault.hits() == 1);
    fault.end();
    let mirror = bench.mirror().await?;
    // A watch that is open is not delayed, one that opens is.
    let _fault = bench.proxy.inject(Fault::latency(Duration::from_millis(60)).on(Verb::Watch));
    bench.proxy.end_watches(&Matcher::all(), End::Clean);
    create(&bench.direct, "b").await?;
    mirror.shows(&["a", "b"]).await
}

#[tokio::test]
async fn refusals_meet_what_they_name_and_the_server_hears_nothing() -> Result<()> {
    let bench = Bench::start().await?;
    for refused in [409, 500, 503] {
        let before = bench.heard(Verb::Patch);
        let fault = bench.proxy.inject(Fault::answer(refused).on(Verb::Patch).of("leases").times(2));
        ensure!(code(hold(&bench.through, "a", "x").await) == Some(refused));
        bench.through.get("a").await?;
        ensure!(code(hold(&bench.through, "a", "x").await) == Some(refused));
        ensure!(bench.heard(Verb::Patch) == before, "the server heard of a refused write");
        hold(&bench.through, "a", "x").await?;
        ensure!(fault.hits() == 2 && bench.proxy.counters().answered[&refused] == 2);
    }
    Ok(())
}

#[tokio::test]
async fn a_429_says_how_long_to_wait() -> Result<()> {
    let bench = Bench::start().await?;
    let fault = bench.proxy.inject(Fault::too_many_requests(1).on_writes().times(1));
    ensure!(code(hold(&bench.through, "a", "x").await) == Some(429));
    // A client that retries by itself reads the header and waits.
    let mut config = kube::Config::new(bench.proxy.url().parse()?);
    config.default_retry = true;
    let patient = leases(kube::Client::try_from(config)?);
    let again = bench.proxy.inject(Fault::too_many_requests(1).on_writes().times(1));
    let began = Instant::now();
    hold(&patient, "a", "y").await?;
    ensure!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    ensure!(fault.hits() == 1 && again.hits() == 1);
    Ok(())
}

#[tokio::test]
async fn chance_is_the_same_for_the_same_seed() -> Result<()> {
    let api = EmbeddedApi::start().await?;
    create(&leases(api.client("direct")?), "a").await?;
    let mut drawn = Vec::new();
    for seed in [3, 3, 4] {
        let proxy = Proxy::before(&api).seed(seed).start().await?;
        let client = leases(proxy.client("through")?);
        let fault = proxy.inject(Fault::answer(500).with_probability(0.4));
        let mut outcomes = Vec::new();
        for _ in 0..40 {
            outcomes.push(client.get("a").await.is_err());
        }
        let failed = outcomes.iter().filter(|failed| **failed).count() as u64;
        ensure!(failed == fault.hits() && (4..36).contains(&failed), "{failed}");
        drawn.push(outcomes);
    }
    ensure!(drawn[0] == drawn[1] && drawn[0] != drawn[2], "{drawn:?}");
    Ok(())
}

#[tokio::test]
async fn a_dropped_request_never_arrives() -> Result<()> {
    let bench = Bench::start().await?;
    let mirror = bench.mirror().await?;
    let fault = bench.proxy.inject(Fault::dropped().on(Verb::Patch));
    let answer = hold(&bench.through, "a", "lost").await;
    ensure!(answer.is_err() && code(answer).is_none(), "a broken connection is no answer");
    ensure!(bench.heard(Verb::Patch) == 0);
    fault.end();
    hold(&bench.through, "a", "x").await?;
    // The watch on another connection did not notice.
    create(&bench.direct, "b").await?;
    mirror.shows(&["a", "b"]).await?;
    ensure!(mirror.errors() == 0);
    Ok(())
}

#[tokio::test]
async fn a_lost_answer_hides_what_was_done() -> Result<()> {
    let bench = Bench::start().await?;
    let fault = bench.proxy.inject(Fault::lost_answer().on(Verb::Patch).times(1));
    ensure!(hold(&bench.through, "a", "done").await.is_err());
    let now = bench.direct.get("a").await?.spec.and_then(|spec| spec.holder_identity);
    ensure!(now.as_deref() == Some("done"), "{now:?}");
    ensure!(fault.hits() == 1 && bench.proxy.counters().lost_answers == 1);
    Ok(())
}

#[tokio::test]
async fn a_stalled_request_waits_and_then_arrives() -> Result<()> {
    let bench = Bench::start().await?;
    let fault = bench.proxy.inject(Fault::stalled().on(Verb::Patch));
    let mut write = Box::pin(hold(&bench.through, "a", "late"));
    ensure!(not_yet(&mut write).await && bench.heard(Verb::Patch) == 0);
    fault.end();
    tokio::time::timeout(SOON, write).await.context("the stall is over")??;
    // One whose client gave up does not arrive at all.
    let fault = bench.proxy.inject(Fault::stalled().on(Verb::Patch));
    ensure!(not_yet(hold(&bench.through, "a", "never")).await);
    eventually("the proxy sees that the client has left", SOON, || async {
        let counters = bench.proxy.counters();
        if counters.abandoned == 1 { Ok(()) } else { Err(counters) }
    })
    .await?;
    fault.end();
    hold(&bench.through, "a", "last").await?;
    ensure!(bench.heard(Verb::Patch) == 2, "{}", bench.heard(Verb::Patch));
    Ok(())
}

#[tokio::test]
async fn a_stalled_answer_is_done_before_it_is_said() -> Result<()> {
    let bench = Bench::start().await?;
    let fault = bench.proxy.inject(Fault::stalled_answer().on(Verb::Patch));
    let mut write = Box::pin(hold(&bench.through, "a", "done"));
    ensure!(not_yet(&mut write).await && bench.heard(Verb::Patch) == 1);
    fault.end();
    tokio::time::timeout(SOON, write).await.context("the stall is over")??;
    Ok(())
}

#[tokio::test]
async fn dropped_watches_come_back_without_a_new_list() -> Result<()> {
    let bench = Bench::start().await?;
    let mirror = bench.mirror().await?;
    for (how, name) in [(End::Clean, "b"), (End::Broken, "c")] {
        ensure!(bench.proxy.end_watches(&Matcher::all(), how) == 1);
        create(&bench.direct, name).await?;
        bench.watches_open(1).await?;
    }
    mirror.shows(&["a", "b", "c"]).await?;
    ensure!(mirror.lists() == 1, "{} lists", mirror.lists());
    ensure!(bench.proxy.counters().watches_dropped == 2);
    // All connections at once.
    bench.proxy.break_connections();
    remove(&bench.direct, "a").await?;
    mirror.shows(&["b", "c"]).await
}

#[tokio::test]
async fn withheld_watches_are_silent_and_then_catch_up() -> Result<()> {
    let bench = Bench::start().await?;
    let mirror = bench.mirror().await?;
    let others = bench.proxy.withhold_watches(Matcher::all().of("services"));
    create(&bench.direct, "b").await?;
    mirror.shows(&["a", "b"]).await?;
    let withheld = bench.proxy.withhold_watches(Matcher::all().of("leases"));
    create(&bench.direct, "c").await?;
    remove(&bench.direct, "a").await?;
    ensure!(not_yet(mirror.shows(&["b", "c"])).await, "a withheld watch spoke");
    // Requests pass meanwhile, and the watch is open: stalled is not dropped.
    bench.through.get("c").await?;
    ensure!(bench.proxy.open_watches() == 1);
    // One opened meanwhile is silent, too.
    bench.proxy.end_watches(&Matcher::all(), End::Clean);
    bench.watches_open(1).await?;
    ensure!(not_yet(mirror.shows(&["b", "c"])).await, "a watch opened meanwhile spoke");
    withheld.release();
    mirror.shows(&["b", "c"]).await?;
    ensure!(mirror.lists() == 1);
    others.release();
    Ok(())
}

#[tokio::test]
async fn a_silent_watch_is_given_up_by_its_client() -> Result<()> {
    let bench = Bench::start().await?;
    // The client gives a watch its timeout and five seconds more.
    let config = watcher::Config::default().timeout(1);
    let mirror = Mirror::with(bench.proxy.client("mirror")?, config);
    mirror.shows(&["a"]).await?;
    bench.watches_open(1).await?;
    let withheld = bench.proxy.withhold_watches(Matcher::all());
    create(&bench.direct, "b").await?;
    let opened = bench.proxy.counters().watches_opened;
    eventually("the client opens another watch", SOON, || async {
        let now = bench.proxy.counters().watches_opened;
        if now > opened { Ok(()) } else { Err(now) }
    })
    .await?;
    withheld.release();
    mirror.shows(&["a", "b"]).await
}

#[tokio::test]
async fn a_stale_watch_makes_a_new_list() -> Result<()> {
    let bench = Bench::start().await?;
    let mirror = bench.mirror().await?;
    // In the stream of an open watch. What happened meanwhile only a list can tell.
    let withheld = bench.proxy.withhold_watches(Matcher::all());
    create(&bench.direct, "b").await?;
    remove(&bench.direct, "a").await?;
    ensure!(bench.proxy.end_watches(&Matcher::all(), End::Stale) == 1);
    withheld.release();
    mirror.shows(&["b"]).await?;
    ensure!(mirror.lists() == 2, "{} lists", mirror.lists());
    bench.watches_open(1).await?;
    // As first event of new watches: a list again each time.
    let fault = bench.proxy.inject(Fault::stale_watches().times(2));
    bench.proxy.end_watches(&Matcher::all(), End::Broken);
    eventually("two more lists", SOON, || async {
        if fault.hits() == 2 && mirror.lists() == 4 { Ok(()) } else { Err((fault.hits(), mirror.lists())) }
    })
    .await?;
    bench.watches_open(1).await?;
    // As answer to the request, which the real server gives to lists only: this client
    // asks once more.
    let fault = bench.proxy.inject(Fault::answer(410).on(Verb::Watch).times(2));
    bench.proxy.end_watches(&Matcher::all(), End::Broken);
    eventually("both watches were refused", SOON, || async {
        if fault.hits() == 2 { Ok(()) } else { Err(fault.hits()) }
    })
    .await?;
    bench.watches_open(1).await?;
    ensure!(bench.proxy.counters().watches_expired == 3);
    // And from a server that has really forgotten.
    let lists = mirror.lists();
    let away = bench.proxy.inject(Fault::dropped().on(Verb::Watch));
    bench.proxy.end_watches(&Matcher::all(), End::Broken);
    create(&bench.direct, "c").await?;
    bench.api.compact();
    away.end();
    mirror.shows(&["b", "c"]).await?;
    ensure!(mirror.lists() == lists + 1);
    Ok(())
}

#[tokio::test]
async fn a_partition_stalls_one_client_and_heals() -> Result<()> {
    let bench = Bench::start().await?;
    let mirror = bench.mirror().await?;
    let other = Proxy::before(&bench.api).start().await?;
    let neighbour = leases(other.client("neighbour")?);
    bench.through.get("a").await?;
    let cut = bench.proxy.cut(Cut::Hang);
    let mut old = Box::pin(hold(&bench.through, "a", "late"));
    let fresh = leases(bench.proxy.client("fresh")?);
    let mut new = Box::pin(fresh.get("a"));
    create(&bench.direct, "b").await?;
    ensure!(not_yet(&mut old).await && not_yet(&mut new).await && not_yet(mirror.shows(&["a", "b"])).await);
    ensure!(bench.heard(Verb::Patch) == 0);
    neighbour.get("a").await?;
    cut.restore();
    // The very same requests and the very same watch go on.
    tokio::time::timeout(SOON, old).await.context("the old connection")??;
    tokio::time::timeout(SOON, new).await.context("the new connection")??;
    mirror.shows(&["a", "b"]).await?;
    ensure!(mirror.errors() == 0 && mirror.lists() == 1);
    Ok(())
}

#[tokio::test]
async fn a_partition_may_refuse_new_connections() -> Result<()> {
    let bench = Bench::start().await?;
    bench.through.get("a").await?;
    let cut = bench.proxy.cut(Cut::Refuse);
    let mut old = Box::pin(bench.through.get("a"));
    ensure!(not_yet(&mut old).await, "an open connection stalls");
    refused(&bench.proxy).await?;
    cut.restore();
    tokio::time::timeout(SOON, old).await.context("the old connection")??;
    eventually("new connections are served", SOON, || async {
        leases(bench.proxy.client("fresh").unwrap())
            .get("a")
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    })
    .await
}

/// New connections are refused by the kernel.
async fn refused(proxy: &Proxy) -> Result<()> {
    let address = proxy.url().trim_start_matches("http://").to_string();
    eventually("connections are refused", SOON, || async {
        match tokio::net::TcpStream::connect(&address).await {
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

#[tokio::test]
async fn an_outage_meets_everybody_and_everybody_recovers() -> Result<()> {
    let bench = Bench::start().await?;
    let other = Proxy::before(&bench.api).start().await?;
    let mirrors = [bench.mirror().await?, Mirror::of(other.client("other")?)];
    mirrors[1].shows(&["a"]).await?;
    // A client that was cut off before stays so when the outage ends.
    let cut = other.cut(Cut::Hang);
    let away = outage([&bench.proxy, &other], Cut::Down);
    refused(&bench.proxy).await?;
    refused(&other).await?;
    ensure!(bench.through.get("a").await.is_err());
    create(&bench.direct, "b").await?;
    drop(away);
    mirrors[0].shows(&["a", "b"]).await?;
    ensure!(mirrors[0].errors() > 0, "an outage breaks connections");
    ensure!(not_yet(mirrors[1].shows(&["a", "b"])).await, "still cut off");
    cut.restore();
    mirrors[1].shows(&["a", "b"]).await
}

#[tokio::test]
async fn the_embedded_servers_own_ends() -> Result<()> {
    let bench = Bench::start().await?;
    let mirror = bench.mirror().await?;
    bench.api.end_watches();
    create(&bench.direct, "b").await?;
    mirror.shows(&["a", "b"]).await?;
    ensure!(mirror.lists() == 1);
    let Bench { api, proxy, through, .. } = bench;
    drop(api);
    eventually("a proxy without a server says so", SOON, || async {
        match code(through.get("a").await) {
            Some(502) => Ok(()),
            other => Err(other),
        }
    })
    .await?;
    ensure!(proxy.counters().unreachable > 0);
    Ok(())
}

#[tokio::test]
async fn the_real_server_behind_the_same_proxy() -> Result<()> {
    let plane = ControlPlane::start().await?;
    plane.apply_manifests().await?;
    let direct = leases(plane.admin()?);
    create(&direct, "a").await?;
    // Through plain HTTP, with the administrator's own token.
    let file = plane.admin_kubeconfig(&plane.url())?;
    let file = kube::config::Kubeconfig::read_from(file)?;
    let options = kube::config::KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(file, &options).await?;
    let proxy = Proxy::before_plane(&plane)?.start().await?;
    config.cluster_url = proxy.url().parse()?;
    config.default_retry = false;
    let client = kube::Client::try_from(config)?;
    let mirror = Mirror::of(client.clone());
    mirror.shows(&["a"]).await?;
    let cut = proxy.cut(Cut::Hang);
    create(&direct, "b").await?;
    ensure!(not_yet(mirror.shows(&["a", "b"])).await);
    cut.restore();
    mirror.shows(&["a", "b"]).await?;
    let lists = mirror.lists();
    remove(&direct, "a").await?;
    mirror.shows(&["b"]).await?;
    ensure!(proxy.end_watches(&Matcher::all(), End::Stale) == 1);
    create(&direct, "c").await?;
    mirror.shows(&["b", "c"]).await?;
    ensure!(mirror.lists() == lists + 1, "{} lists", mirror.lists());
    let fault = proxy.inject(Fault::answer(409).on(Verb::Patch).times(1));
    ensure!(code(hold(&leases(client.clone()), "b", "x").await) == Some(409));
    hold(&leases(client), "b", "x").await?;
    ensure!(fault.hits() == 1);

    // Without a token the real server refuses: the proxy lends nobody its rights.
    ensure!(code(leases(proxy.client("nobody")?).get("b").await) == Some(403));

    // Through TLS with the lab's authority, as a daemon with the shipped rights.
    let proxy = Proxy::before_plane(&plane)?.tls(plane.ca())?.start().await?;
    let node = fixtures::node("x");
    let node = Api::<Node>::all(plane.admin()?).create(&PostParams::default(), &node).await?;
    let token = plane.token_for_node(&ServiceAccount::node_daemon(), &node).await?;
    let file = plane.kubeconfig_with_token(proxy.url(), &token)?;
    let file = kube::config::Kubeconfig::read_from(file)?;
    let config = kube::Config::from_custom_kubeconfig(file, &options).await?;
    let daemon: Api<Lease> = Api::namespaced(kube::Client::try_from(config)?, "purelb-system");
    daemon.create(&PostParams::default(), &mk_lease("purelb-node-x")).await?;
    let fault = proxy.inject(Fault::answer(500).on_writes().times(1));
    ensure!(code(hold(&daemon, "purelb-node-x", "x").await) == Some(500) && fault.hits() == 1);
    hold(&daemon, "purelb-node-x", "x").await?;
    Ok(())
}

#[tokio::test]
async fn a_kubeconfig_leads_through_the_proxy() -> Result<()> {
    let bench = Bench::start().await?;
    let directory = tempfile::tempdir()?;
    let file = bench.proxy.kubeconfig("node-1", "node-1-token", directory.path())?;
    let file = kube::config::Kubeconfig::read_from(file)?;
    let config =
        kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await?;
    leases(kube::Client::try_from(config)?).get("a").await?;
    let key = RequestKey { client: "node-1-token".into(), verb: Verb::Get, resource: "leases".into() };
    ensure!(bench.api.requests().get(&key) == Some(&1), "{:?}", bench.api.requests());
    ensure!(bench.proxy.counters().forwarded[&(Verb::Get, "leases".to_string())] == 1);
    Ok(())
}
