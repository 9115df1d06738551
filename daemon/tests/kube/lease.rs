//! The Lease: created, renewed, fought over, lost and deleted.

use std::time::Duration;

use anyhow::Result;
use futures::FutureExt;
use kube::ResourceExt;
use kube::api::Patch;
use purelb_api::names;
use purelb_core::messages::{LeaseError, LeaseMode, Source};
use purelb_core::{Mono, NodeName};
use purelb_kit::embedded::Verb;
use purelb_kit::faults::{Cut, Fault, Matcher};
use serde_json::json;
use tokio::sync::mpsc;

use crate::bench::{Bench, ME, SOON, change, create, instance, mk_lease, mk_write, quick};

fn boottime() -> Mono {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).unwrap();
    Mono::from_nanos(
        u64::try_from(time.tv_sec()).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap(),
    )
}

#[tokio::test]
async fn created_as_others_expect_it_and_renewed_with_one_patch_each() -> Result<()> {
    let bench = Bench::start().await?;
    let before = boottime();
    let first = bench.write(1, LeaseMode::Create).await?.unwrap();
    let lease = bench.my_lease().await?;
    let owner = &lease.owner_references()[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Node", "node-1"));
    assert_eq!((owner.controller, owner.block_owner_deletion), (Some(false), Some(false)));
    assert_eq!(lease.labels()[names::LABEL_COMPONENT.0], names::LABEL_COMPONENT.1);
    assert_eq!(lease.annotations()[names::ANNOUNCED], "192.0.2.7");
    assert_eq!(lease.annotations()[names::CONTROL_ENDPOINT], "node-1.example:7473");
    let (sent_at, _) = bench.view.now().written[&1].clone();
    assert!(before <= sent_at && sent_at <= boottime(), "{before} {sent_at}");

    let (reads, patches) = (bench.requests(Verb::Get, "leases"), bench.requests(Verb::Patch, "leases"));
    let mut marks = vec![first.renewal];
    for seq in 2..=30 {
        marks.push(bench.write(seq, LeaseMode::Renew).await?.unwrap().renewal);
    }
    assert_eq!(bench.requests(Verb::Patch, "leases") - patches, 29);
    assert_eq!(bench.requests(Verb::Get, "leases"), reads, "a renewal reads nothing");
    assert!(marks.windows(2).all(|w| w[0] != w[1]), "{marks:?}");
    // What was written is what the watch shows: the engine compares the two.
    let last = marks.pop().unwrap();
    bench.view.holds("the echo", |s| s.leases.get("node-1").is_some_and(|l| l.renewal == last)).await
}

/// Whatever ends the writer, it is noticed; while it writes nothing is said.
#[tokio::test]
async fn the_end_of_the_writer_is_noticed() -> Result<()> {
    let bench = Bench::start().await?;
    let mut alive = Box::pin(bench.handle.lease_writer_gone());
    for (seq, mode) in [(1, LeaseMode::Create), (2, LeaseMode::Renew)] {
        bench.write(seq, mode).await?.unwrap();
        assert!(alive.as_mut().now_or_never().is_none(), "it writes");
    }
    // One that has nobody to answer to ends.
    let (inputs, answers) = mpsc::channel(64);
    let another = bench.another(inputs, quick()).await?;
    let gone = another.lease_writer_gone();
    drop(answers);
    another.write_lease(mk_write(1, LeaseMode::Renew));
    tokio::time::timeout(SOON, gone).await.expect("its end is noticed");
    // Whoever no longer listens keeps nobody from stopping.
    drop(alive);
    let began = std::time::Instant::now();
    bench.handle.finish(SOON).await;
    assert!(began.elapsed() < SOON / 2, "{:?}", began.elapsed());
    Ok(())
}

#[tokio::test]
async fn an_outsiders_touch_costs_no_renewal_and_stays() -> Result<()> {
    let bench = Bench::start().await?;
    bench.write(1, LeaseMode::Create).await?.unwrap();
    let touch = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "purelb-node-node-1", "namespace": "purelb-system", "labels": {"team": "net"},
            "annotations": {"example.com/note": "mine"}}});
    change(&bench.admin, &touch).await?;
    bench.write(2, LeaseMode::Renew).await?.unwrap();
    let lease = bench.my_lease().await?;
    assert_eq!(lease.annotations()["example.com/note"], "mine");
    assert_eq!(lease.labels()["team"], "net");
    assert_eq!(bench.handle.counters().conflicts.get(), 1);
    Ok(())
}

#[tokio::test]
async fn another_instance_in_it_is_told_by_name_and_never_overwritten() -> Result<()> {
    let bench = Bench::start().await?;
    bench.write(1, LeaseMode::Create).await?.unwrap();
    change(&bench.admin, &mk_lease("node-1", "rival")).await?;
    let taken = Err(LeaseError::Taken(instance("rival")));
    assert_eq!(bench.write(2, LeaseMode::Renew).await?, taken);
    assert_eq!(bench.write(3, LeaseMode::Renew).await?, taken, "again, having looked");
    assert_eq!(bench.my_lease().await?.annotations()[names::INSTANCE], "rival");
    // Nor deleted.
    bench.handle.delete_lease();
    let refused = bench.view.until("an answer", |s| s.deleted.first().cloned()).await?;
    assert!(refused.unwrap_err().contains("rival"));
    bench.my_lease().await?;
    // Told to, we take it over.
    bench.write(4, LeaseMode::TakeOver).await?.unwrap();
    assert_eq!(bench.my_lease().await?.annotations()[names::INSTANCE], "me");
    bench.write(5, LeaseMode::Renew).await?.unwrap();
    Ok(())
}

#[tokio::test]
async fn a_deleted_lease_is_missing_and_one_that_is_there_exists() -> Result<()> {
    let bench = Bench::start().await?;
    assert_eq!(bench.write(1, LeaseMode::TakeOver).await?, Err(LeaseError::Missing));
    bench.write(2, LeaseMode::Create).await?.unwrap();
    bench.leases().delete("purelb-node-node-1", &Default::default()).await?;
    assert_eq!(bench.write(3, LeaseMode::Renew).await?, Err(LeaseError::Missing));
    create(&bench.admin, &mk_lease("node-1", "earlier")).await?;
    assert_eq!(bench.write(4, LeaseMode::Create).await?, Err(LeaseError::Exists));
    bench.write(5, LeaseMode::TakeOver).await?.unwrap();
    // Deleted and made anew by another, with a version that says nothing to us.
    bench.leases().delete("purelb-node-node-1", &Default::default()).await?;
    create(&bench.admin, &mk_lease("node-1", "rival")).await?;
    assert_eq!(bench.write(6, LeaseMode::Renew).await?, Err(LeaseError::Taken(instance("rival"))));
    Ok(())
}

#[tokio::test]
async fn ours_is_deleted_even_if_somebody_touches_it_meanwhile() -> Result<()> {
    let bench = Bench::start().await?;
    bench.write(1, LeaseMode::Create).await?.unwrap();
    let conflict = bench.proxy.inject(Fault::answer(409).on(Verb::Delete).of("leases").times(1));
    bench.handle.delete_lease();
    assert_eq!(bench.view.until("deleted", |s| s.deleted.first().cloned()).await?, Ok(()));
    assert_eq!(conflict.hits(), 1);
    bench.view.holds("gone from the watch", |s| s.leases.is_empty()).await?;
    // There is none: as good.
    bench.handle.delete_lease();
    assert_eq!(bench.view.until("again", |s| s.deleted.get(1).cloned()).await?, Ok(()));
    Ok(())
}

#[tokio::test]
async fn an_answer_that_was_lost_does_not_cost_the_next_renewal() -> Result<()> {
    let bench = Bench::start().await?;
    let lost = bench.proxy.inject(Fault::lost_answer().on(Verb::Create).of("leases").times(1));
    bench.write(1, LeaseMode::Create).await?.unwrap();
    assert_eq!(lost.hits(), 1, "the second try found its own work");
    let lost = bench.proxy.inject(Fault::lost_answer().on(Verb::Patch).of("leases").times(1));
    bench.write(2, LeaseMode::Renew).await?.unwrap();
    assert_eq!(lost.hits(), 1);
    Ok(())
}

#[tokio::test]
async fn a_write_that_was_given_up_never_lands_after_a_newer_one() -> Result<()> {
    let bench = Bench::start().await?;
    bench.write(1, LeaseMode::Create).await?.unwrap();
    let made_for = bench.my_lease().await?.resource_version().unwrap_or_default();
    let held = bench.proxy.inject(Fault::stalled().on(Verb::Patch).of("leases").times(1));
    let mut old = mk_write(2, LeaseMode::Renew);
    old.content.draining = Some("2026-01-02T03:04:05Z".into());
    old.timeout = Duration::from_millis(200);
    bench.handle.write_lease(old.clone());
    assert_eq!(bench.answer(2).await?, Err(LeaseError::Timeout));
    assert_eq!(held.hits(), 1);
    bench.write(3, LeaseMode::Renew).await?.unwrap();
    // What the network held comes after all: the proxy drops it, so we deliver it.
    let node = NodeName::new(ME)?;
    let late = purelb_api::lease::patch(&node, &old.content, None, jiff::Timestamp::now(), &made_for);
    let landed = bench.leases().patch("purelb-node-node-1", &Default::default(), &Patch::Merge(late)).await;
    assert!(matches!(landed, Err(kube::Error::Api(status)) if status.code == 409));
    bench.write(4, LeaseMode::Renew).await?.unwrap();
    assert!(!bench.my_lease().await?.annotations().contains_key(names::DRAINING));
    Ok(())
}

#[tokio::test]
async fn every_failure_is_told_in_time_and_by_its_name() -> Result<()> {
    let bench = Bench::start().await?;
    bench.write(1, LeaseMode::Create).await?.unwrap();
    for (seq, code) in [(2, 429), (3, 500), (4, 503), (5, 403), (6, 422)] {
        let fault = bench.proxy.inject(Fault::answer(code).on(Verb::Patch).of("leases"));
        let answer = bench.write(seq, LeaseMode::Renew).await?;
        assert!(
            matches!(&answer, Err(LeaseError::Refused(t)) if t.contains(&code.to_string())),
            "{code}: {answer:?}"
        );
        fault.end();
    }
    let conflicts = bench.proxy.inject(Fault::answer(409).on(Verb::Patch).of("leases"));
    let answer = bench.write(7, LeaseMode::Renew).await?;
    assert!(matches!(answer, Err(LeaseError::Conflict(_))), "{answer:?}");
    conflicts.end();
    for (seq, cut) in [(8, Cut::Hang), (9, Cut::Down)] {
        let severed = bench.proxy.cut(cut);
        let mut write = mk_write(seq, LeaseMode::Renew);
        write.timeout = Duration::from_millis(300);
        let began = tokio::time::Instant::now();
        bench.handle.write_lease(write);
        let answer = bench.answer(seq).await?;
        let took = began.elapsed();
        match cut {
            Cut::Hang => assert_eq!(answer, Err(LeaseError::Timeout)),
            _ => assert!(matches!(answer, Err(LeaseError::Unreachable(_))), "{answer:?}"),
        }
        assert!(took < Duration::from_secs(3), "told after {took:?}");
        severed.restore();
    }
    bench.write(10, LeaseMode::Renew).await?.unwrap();
    Ok(())
}

#[tokio::test]
async fn watches_that_stall_do_not_delay_a_renewal() -> Result<()> {
    let bench = Bench::start().await?;
    bench.write(1, LeaseMode::Create).await?.unwrap();
    let silent = bench.proxy.withhold_watches(Matcher::all());
    let lists = bench.proxy.inject(Fault::stalled().on(Verb::List));
    for source in Source::ALL {
        bench.handle.relist(source);
    }
    for seq in 2..10 {
        bench.write(seq, LeaseMode::Renew).await?.unwrap();
    }
    drop((silent, lists));
    bench.view.holds("the view is whole again", |s| s.listed(Source::Leases) >= 2).await
}
