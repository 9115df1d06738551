//! Watches and lists under every fault: what the engine knows is whole again afterwards, and is
//! never half in between.

use std::time::Duration;

use anyhow::Result;
use purelb_core::messages::Source;
use purelb_kit::embedded::Verb;
use purelb_kit::faults::{Cut, End, Fault, Matcher};
use purelbd::kube::KubeTuning;

use crate::bench::{Bench, Seen, create, mk_lease, quick};

async fn whole_again(bench: &Bench, name: &str) -> Result<()> {
    create(&bench.admin, &mk_lease(name, "other")).await?;
    bench.view.holds("what happened is told", |s: &Seen| s.leases.contains_key(name)).await
}

#[tokio::test]
async fn a_watch_that_ends_or_breaks_goes_on_where_it_was() -> Result<()> {
    let bench = Bench::start().await?;
    for (i, how) in [End::Clean, End::Broken].into_iter().enumerate() {
        assert!(bench.proxy.end_watches(&Matcher::all(), how) >= 5);
        whole_again(&bench, &format!("n{i}")).await?;
        bench.watching().await?;
    }
    assert_eq!(bench.view.now().listed(Source::Leases), 1, "nothing was lost, so nothing is listed again");
    Ok(())
}

#[tokio::test]
async fn a_version_that_is_too_old_is_listed_anew_as_one_replacement() -> Result<()> {
    let bench = Bench::start().await?;
    create(&bench.admin, &mk_lease("n1", "other")).await?;
    bench.view.holds("n1", |s| s.leases.contains_key("n1")).await?;
    let silent = bench.proxy.withhold_watches(Matcher::all().of("leases"));
    bench.leases().delete("purelb-node-n1", &Default::default()).await?;
    create(&bench.admin, &mk_lease("n2", "other")).await?;
    bench.api.compact();
    drop(silent);
    bench.proxy.end_watches(&Matcher::all(), End::Stale);
    let replaced = |s: &Seen| s.leases.len() == 1 && s.leases.contains_key("n2");
    bench.view.holds("n2 alone", replaced).await?;
    bench.view.holds("listed again", |s| s.listed(Source::Leases) == 2).await?;
    // And a watch whose very opening is refused so.
    let stale = bench.proxy.inject(Fault::stale_watches().of("leases").times(1));
    // The new watch may be on its way when we end the open ones.
    purelb_kit::wait::eventually("a watch opened anew", Duration::from_secs(20), || async {
        bench.proxy.end_watches(&Matcher::all().of("leases"), End::Broken);
        if stale.hits() == 1 { Ok(()) } else { Err(stale.hits()) }
    })
    .await?;
    bench.view.holds("and again", |s| s.listed(Source::Leases) >= 3).await?;
    assert!(bench.handle.counters().watches_stale.get() >= 2);
    Ok(())
}

#[tokio::test]
async fn a_silent_watch_is_overcome_by_asking() -> Result<()> {
    let bench = Bench::start().await?;
    let silent = bench.proxy.withhold_watches(Matcher::all());
    create(&bench.admin, &mk_lease("n1", "other")).await?;
    bench.handle.relist(Source::Leases);
    bench.view.holds("listed", |s| s.leases.contains_key("n1")).await?;
    drop(silent);
    whole_again(&bench, "n2").await
}

#[tokio::test]
async fn a_silent_watch_is_given_up_without_asking() -> Result<()> {
    let bench = Bench::with(KubeTuning { idle: Duration::from_millis(300), ..quick() }).await?;
    let silent = bench.proxy.withhold_watches(Matcher::all());
    create(&bench.admin, &mk_lease("n1", "other")).await?;
    bench.view.holds("listed again after a while", |s| s.leases.contains_key("n1")).await?;
    assert!(bench.handle.counters().watches_idle.get() >= 1);
    drop(silent);
    whole_again(&bench, "n2").await
}

#[tokio::test]
async fn refusals_are_retried_with_patience() -> Result<()> {
    let bench = Bench::start().await?;
    for fault in [
        Fault::answer(500).on(Verb::List).times(6),
        Fault::too_many_requests(1).on(Verb::List).times(6),
        Fault::dropped().on(Verb::List).times(6),
        Fault::answer(403).on(Verb::Watch).times(10),
        Fault::answer(504).on(Verb::Watch).times(10),
    ] {
        let injected = bench.proxy.inject(fault);
        bench.proxy.end_watches(&Matcher::all(), End::Stale);
        let before = bench.view.now().listed(Source::Leases);
        bench.view.holds("Leases are listed again", |s| s.listed(Source::Leases) > before).await?;
        bench.view.holds("the fault is met", |_| injected.hits() > 0).await?;
        bench.watching().await?;
    }
    let counters = bench.handle.counters();
    let counts = [&counters.server_errors, &counters.throttled, &counters.unreachable, &counters.forbidden];
    assert!(counts.iter().all(|c| c.get() > 0), "{counters:?}");
    whole_again(&bench, "n1").await
}

/// Keys, certificates and TLS are not set up anew for a server that says 503.
#[tokio::test]
async fn a_server_in_trouble_costs_no_new_clients() -> Result<()> {
    let bench = Bench::start().await?;
    let made = bench.handle.counters().clients_made.get();
    let fault = bench.proxy.inject(Fault::answer(503).on(Verb::List).times(40));
    for round in 1.. {
        bench.handle.relist(Source::Leases);
        let before = bench.view.now().listed(Source::Leases);
        bench.view.holds("listed in the end", |s| s.listed(Source::Leases) > before).await?;
        if fault.hits() == 40 {
            break;
        }
        assert!(round < 50, "{} of 40", fault.hits());
    }
    let counters = bench.handle.counters();
    assert!(counters.server_errors.get() >= 40, "{counters:?}");
    assert_eq!(counters.clients_made.get(), made, "{counters:?}");
    whole_again(&bench, "n1").await
}

#[tokio::test]
async fn cut_off_and_back_in_each_way() -> Result<()> {
    // As long as the link only stalls, the watches notice by their silence.
    let bench = Bench::with(KubeTuning { idle: Duration::from_millis(500), ..quick() }).await?;
    for (i, cut) in [Cut::Hang, Cut::Refuse, Cut::Down].into_iter().enumerate() {
        let severed = bench.proxy.cut(cut);
        let failures = || {
            let c = bench.handle.counters();
            c.timeouts.get() + c.unreachable.get()
        };
        let before = failures();
        create(&bench.admin, &mk_lease(&format!("n{i}"), "other")).await?;
        bench.view.holds("we notice", |_| failures() > before).await?;
        assert_eq!(bench.view.now().leases.len(), i, "and believe nothing else meanwhile");
        severed.restore();
        bench.view.holds("whole again", |s| s.leases.len() == i + 1).await?;
        bench.watching().await?;
    }
    Ok(())
}

#[tokio::test]
async fn half_a_listing_is_never_applied() -> Result<()> {
    let bench = Bench::furnished(KubeTuning { page: 2, ..quick() }, async |admin| {
        for i in 0..6 {
            create(admin, &mk_lease(&format!("n{i}"), "other")).await?;
        }
        Ok(())
    })
    .await?;
    // Every listing fails at its second page for a while.
    let pages = std::sync::atomic::AtomicU64::new(0);
    let fault = Fault::answer(500).on(Verb::List).of("leases").times(4);
    let fault = fault.when(move |_| pages.fetch_add(1, std::sync::atomic::Ordering::SeqCst) % 2 == 1);
    let injected = bench.proxy.inject(fault);
    bench.handle.relist(Source::Leases);
    bench.view.holds("listed in the end", |s| s.listed(Source::Leases) == 2).await?;
    assert_eq!(bench.view.now().leases.len(), 6);
    assert!(injected.hits() >= 1);
    Ok(())
}

#[tokio::test]
async fn who_asks_for_a_listing_gets_one_whatever_is_under_way() -> Result<()> {
    // A listing that hangs: what it answers in the end may be from before the question.
    let bench = Bench::with(KubeTuning { list_timeout: Duration::from_secs(600), ..quick() }).await?;
    let stalled = bench.proxy.inject(Fault::stalled().on(Verb::List).of("leases").times(1));
    bench.handle.relist(Source::Leases);
    bench.view.holds("it hangs", |_| stalled.hits() == 1).await?;
    bench.handle.relist(Source::Leases);
    bench.view.holds("listed anew", |s| s.listed(Source::Leases) == 2).await?;

    // A pause before a watch is opened again.
    let patient = Duration::from_secs(600);
    let tuning = KubeTuning { backoff_least: patient, backoff_most: patient, ..quick() };
    let bench = Bench::with(tuning).await?;
    bench.watching().await?;
    bench.proxy.end_watches(&Matcher::all().of("leases"), End::Broken);
    let counters = bench.handle.counters();
    bench.view.holds("the watch broke", |_| counters.unreachable.get() > 0).await?;
    bench.handle.relist(Source::Leases);
    bench.view.holds("listed all the same", |s| s.listed(Source::Leases) == 2).await
}
