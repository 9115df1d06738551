//! Slots, events and conditions.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::events::v1::Event as KubeEvent;
use kube::{Api, ResourceExt};
use purelb_api::{LBNodeAgent, names};
use purelb_core::messages::{Event, EventKind, EventObject};
use purelb_core::{IfName, ObjectKey, Vip};
use purelb_kit::embedded::Verb;
use purelb_kit::faults::{Fault, Matcher};
use purelb_kit::wait::eventually;
use purelbd::kube::{KubeHandle, KubeTuning};
use serde_json::json;

use crate::bench::{Bench, SOON, allocated, change, create, mk_agent, quick};

fn key(name: &str) -> ObjectKey {
    ObjectKey::of("default", name).unwrap()
}

fn slot(bench: &Bench, service: &str, vip: &str) {
    bench.handle.write_slot(key(service), vip.parse::<Vip>().unwrap(), IfName::new("eth0").unwrap());
}

async fn annotation(bench: &Bench, service: &str, name: &str, wanted: &str) -> Result<()> {
    let services = bench.services("default");
    eventually(&format!("{service} says {wanted:?}"), SOON, || async {
        let now = services.get(service).await.map(|s| s.annotations().get(name).cloned());
        match now {
            Ok(Some(text)) if text == wanted => Ok(()),
            other => Err((other, bench.handle.counters())),
        }
    })
    .await
}

fn note(service: &str, name: &str, text: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": service, "namespace": "default", "annotations": {name: text}}})
}

#[tokio::test]
async fn slots_join_those_of_others_and_are_written_together() -> Result<()> {
    let bench = Bench::start().await?;
    allocated(&bench.admin, "web", &["192.0.2.5", "192.0.2.6", "192.0.2.7", "2001:db8::5"]).await?;
    change(&bench.admin, &note("web", names::ANNOUNCING_IPV4, "node-2,eth1,192.0.2.6")).await?;
    let told = |s: &crate::bench::Seen| s.services.get("default/web").is_some_and(|s| s.slots.len() == 1);
    bench.view.holds("the Service with a slot", told).await?;
    for vip in ["192.0.2.7", "192.0.2.5", "2001:db8::5"] {
        slot(&bench, "web", vip);
    }
    let merged = "node-1,eth0,192.0.2.5 node-2,eth1,192.0.2.6 node-1,eth0,192.0.2.7";
    annotation(&bench, "web", names::ANNOUNCING_IPV4, merged).await?;
    annotation(&bench, "web", names::ANNOUNCING_IPV6, "node-1,eth0,2001:db8::5").await?;
    assert_eq!(bench.requests(Verb::Patch, "services"), 1, "one write for all of them");
    assert_eq!(bench.requests(Verb::List, "services"), 1, "from what the watch has shown");
    // Once more: it is there already.
    bench.view.holds("the echo", |s| s.services["default/web"].slots.len() == 4).await?;
    slot(&bench, "web", "192.0.2.5");
    allocated(&bench.admin, "next", &["192.0.2.9"]).await?;
    let next = |s: &crate::bench::Seen| s.services.get("default/next").is_some_and(|s| !s.vips.is_empty());
    bench.view.holds("the next", next).await?;
    slot(&bench, "next", "192.0.2.9");
    annotation(&bench, "next", names::ANNOUNCING_IPV4, "node-1,eth0,192.0.2.9").await?;
    assert_eq!(bench.requests(Verb::Patch, "services"), 2);
    Ok(())
}

#[tokio::test]
async fn a_slot_written_meanwhile_is_not_lost() -> Result<()> {
    let bench = Bench::start().await?;
    allocated(&bench.admin, "web", &["192.0.2.5", "192.0.2.6"]).await?;
    bench.view.holds("the Service", |s| s.services.contains_key("default/web")).await?;
    // Our view stands still while another node writes.
    let silent = bench.proxy.withhold_watches(Matcher::all().of("services"));
    change(&bench.admin, &note("web", names::ANNOUNCING_IPV4, "node-2,eth1,192.0.2.6")).await?;
    slot(&bench, "web", "192.0.2.5");
    let both = "node-1,eth0,192.0.2.5 node-2,eth1,192.0.2.6";
    annotation(&bench, "web", names::ANNOUNCING_IPV4, both).await?;
    drop(silent);
    assert!(bench.handle.counters().conflicts.get() >= 1);

    // Errors of the server are retried; a Service that is gone is no matter.
    let fault = bench.proxy.inject(Fault::answer(500).on(Verb::Patch).of("services").times(2));
    bench.view.holds("the echo", |s| s.services["default/web"].slots.len() == 2).await?;
    slot(&bench, "gone", "192.0.2.99");
    slot(&bench, "web", "192.0.2.6");
    let ours = "node-1,eth0,192.0.2.5 node-1,eth0,192.0.2.6";
    annotation(&bench, "web", names::ANNOUNCING_IPV4, ours).await?;
    assert_eq!(fault.hits(), 2);
    assert_eq!(bench.handle.counters().slot_failures.get(), 0);
    Ok(())
}

#[tokio::test]
async fn a_hundred_services_get_their_slots_at_the_servers_pace() -> Result<()> {
    let bench = Bench::start().await?;
    for i in 0..100 {
        allocated(&bench.admin, &format!("s{i}"), &[&format!("192.0.2.{i}")]).await?;
    }
    bench.view.holds("all Services", |s| s.services.len() == 100).await?;
    let began = std::time::Instant::now();
    for i in 0..100 {
        slot(&bench, &format!("s{i}"), &format!("192.0.2.{i}"));
    }
    bench.view.holds("all slots", |s| s.services.values().all(|s| s.slots.len() == 1)).await?;
    println!("100 slots written and seen in {:?}", began.elapsed());
    assert_eq!(bench.requests(Verb::Patch, "services"), 100);
    Ok(())
}

fn mk_event(service: &str, kind: EventKind, message: &str) -> Event {
    Event { object: EventObject::Service(key(service)), kind, message: message.into() }
}

#[tokio::test]
async fn events_say_who_what_and_of_which_object() -> Result<()> {
    let bench = Bench::start().await?;
    let web = allocated(&bench.admin, "web", &["192.0.2.5"]).await?;
    create(&bench.admin, &mk_agent("a", "default")).await?;
    let told = |s: &crate::bench::Seen| !s.services.is_empty() && !s.agents.is_empty();
    bench.view.holds("both objects", told).await?;
    bench.handle.event(mk_event("web", EventKind::AnnouncingLocal, "Node node-1 announcing"));
    bench.handle.event(mk_event("web", EventKind::AnnouncingLocal, "Node node-1 announcing"));
    bench.handle.event(mk_event("web", EventKind::NoEligibleNodes, &"é".repeat(5_000)));
    let agent = EventObject::NodeAgent(ObjectKey::of("purelb-system", "a")?);
    bench.handle.event(Event { object: agent, kind: EventKind::ConfigError, message: "m".into() });
    let events: Api<KubeEvent> = Api::all(bench.admin.clone());
    let all = eventually("four events", SOON, || async {
        let all = events.list(&Default::default()).await.map(|l| l.items);
        if all.as_ref().is_ok_and(|all| all.len() == 4) {
            all.map_err(|e| format!("{e}"))
        } else {
            Err(format!("{all:?}"))
        }
    })
    .await?;
    let mut reasons = BTreeMap::new();
    for event in &all {
        *reasons.entry(event.reason.clone().unwrap_or_default()).or_insert(0) += 1;
        assert_eq!(event.reporting_controller.as_deref(), Some("purelbd"));
        assert_eq!(event.reporting_instance.as_deref(), Some("node-1"));
        assert!(event.note.as_ref().unwrap().len() <= 1024);
        let about = event.regarding.as_ref().unwrap();
        assert!(about.uid.is_some(), "describe finds events by UID");
        assert_eq!(event.namespace(), about.namespace);
    }
    let wanted = [("AnnouncingLocal", 2), ("ConfigError", 1), ("NoEligibleNodes", 1)];
    assert_eq!(reasons, wanted.map(|(k, v)| (k.to_owned(), v)).into());
    let of_web = all.iter().find(|e| e.reason.as_deref() == Some("NoEligibleNodes")).unwrap();
    assert_eq!(of_web.regarding.as_ref().unwrap().uid, web.uid());
    assert_eq!(of_web.type_.as_deref(), Some("Warning"));
    Ok(())
}

/// A trouble that outlives the daemon is told once; the next process finds it said.
#[tokio::test]
async fn a_restarted_daemon_does_not_repeat_its_troubles() -> Result<()> {
    let bench = Bench::start().await?;
    allocated(&bench.admin, "web", &["192.0.2.5"]).await?;
    bench.view.holds("the Service", |s| !s.services.is_empty()).await?;
    let trouble = || mk_event("web", EventKind::NoEligibleNodes, "nobody has the subnet");
    let events: Api<KubeEvent> = Api::all(bench.admin.clone());
    let done = async |handle: &KubeHandle, n: u64| {
        eventually("the events are taken", SOON, || async {
            let now = handle.counters().events_written.get();
            if now == n { Ok(()) } else { Err(now) }
        })
        .await
    };
    bench.handle.event(trouble());
    done(&bench.handle, 1).await?;
    let (again, _view) = bench.restarted().await?;
    again.event(trouble());
    done(&again, 1).await?;
    assert_eq!(events.list(&Default::default()).await?.items.len(), 1);
    // In one process it is another change each time.
    let told = async |n: usize| {
        eventually(&format!("{n} events"), SOON, || async {
            let all = events.list(&Default::default()).await.map(|l| l.items.len());
            if all.as_ref().is_ok_and(|all| *all == n) { Ok(()) } else { Err(format!("{all:?}")) }
        })
        .await
    };
    again.event(trouble());
    told(2).await?;
    // One that comes back long after a restart is news, though it was told before that.
    let settled = KubeTuning { trouble_stands: Duration::ZERO, ..quick() };
    let (third, _view) = bench.restarted_with(settled).await?;
    third.event(trouble());
    told(3).await?;
    third.event(trouble());
    told(4).await?;
    // So is one whose first try was refused before anything was written.
    let settled = KubeTuning { trouble_stands: Duration::ZERO, ..quick() };
    let (fourth, _view) = bench.restarted_with(settled).await?;
    let refused = bench.proxy.inject(Fault::answer(401).on(Verb::Create).of("events").times(1));
    fourth.event(trouble());
    told(5).await?;
    drop(refused);
    Ok(())
}

#[tokio::test]
async fn a_flood_of_events_is_bounded_counted_and_delays_nothing() -> Result<()> {
    let bench = Bench::start().await?;
    let stalled = bench.proxy.inject(Fault::stalled().on(Verb::Create).of("events"));
    for i in 0..2_000 {
        bench.handle.event(mk_event("web", EventKind::AnnouncingLocal, &i.to_string()));
    }
    let drops = bench.handle.counters().event_drops.get();
    assert!((1_400..2_000).contains(&drops), "{drops}");
    bench.write(1, purelb_core::messages::LeaseMode::Create).await?.unwrap();
    drop(stalled);
    let counters = bench.handle.counters();
    bench.view.holds("those that fit go out", |_| counters.events_written.get() > 50).await
}

#[tokio::test]
async fn what_was_queued_goes_out_before_the_end() -> Result<()> {
    let bench = Bench::start().await?;
    allocated(&bench.admin, "web", &["192.0.2.5"]).await?;
    bench.view.holds("the Service", |s| s.services.contains_key("default/web")).await?;
    for i in 0..20 {
        bench.handle.event(mk_event("web", EventKind::AnnouncingLocal, &i.to_string()));
    }
    slot(&bench, "web", "192.0.2.5");
    let Bench { handle, admin, api, proxy, .. } = bench;
    handle.finish(Duration::from_secs(10)).await;
    let events: Api<KubeEvent> = Api::all(admin.clone());
    assert_eq!(events.list(&Default::default()).await?.items.len(), 20);
    let web = Api::<k8s_openapi::api::core::v1::Service>::namespaced(admin, "default").get("web").await?;
    assert_eq!(web.annotations()[names::ANNOUNCING_IPV4], "node-1,eth0,192.0.2.5");
    drop((api, proxy));
    Ok(())
}

#[tokio::test]
async fn an_agent_says_on_itself_what_is_wrong_with_it() -> Result<()> {
    let bench = Bench::start().await?;
    create(&bench.admin, &mk_agent("a", "eth[")).await?;
    let agents: Api<LBNodeAgent> = Api::namespaced(bench.admin.clone(), "purelb-system");
    let accepted = async |wanted: &str| {
        eventually(&format!("Accepted is {wanted}"), SOON, || async {
            let now = agents.get("a").await.map(|a| a.status.map(|s| s.conditions).unwrap_or_default());
            let found = now.as_ref().ok().and_then(|c| c.iter().find(|c| c.type_ == "Accepted").cloned());
            found.filter(|c| c.status == wanted).ok_or_else(|| format!("{now:?}"))
        })
        .await
    };
    let bad = accepted("False").await?;
    assert!(bad.message.contains("spec.local.localInterface"), "{}", bad.message);
    change(&bench.admin, &mk_agent("a", "eth0")).await?;
    accepted("True").await?;
    assert!(bench.view.now().agents["purelb-system/a"].config.is_ok());
    // Our own writes come back through the watch and change nothing more.
    assert_eq!(bench.handle.counters().conditions_written.get(), 2);
    Ok(())
}
