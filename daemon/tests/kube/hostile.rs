//! Objects written to hurt: none ends a watch, stalls it, or takes others with it.

use anyhow::Result;
use purelb_api::names;
use purelb_core::messages::{LeaseMode, Source};
use serde_json::{Value, json};

use crate::bench::{
    Bench, SOON, SYSTEM, Seen, allocated, change, create, mk_agent, mk_group, mk_lease, mk_write, quick,
};

const MANY: usize = 10 << 20;

fn huge(text: &str) -> String {
    text.repeat(MANY / text.len())
}

fn lease_saying(node: &str, annotations: Value) -> Value {
    let mut lease = mk_lease(node, "other");
    lease["metadata"]["annotations"] = annotations;
    lease
}

#[tokio::test]
async fn annotations_of_ten_megabytes() -> Result<()> {
    let bench = Bench::start().await?;
    allocated(&bench.admin, "web", &["192.0.2.5"]).await?;
    let began = std::time::Instant::now();
    let hostile =
        [(names::SUBNETS, ","), (names::ANNOUNCED, "10.0.0.0-10.255.255.255,"), (names::INSTANCE, "i")];
    for (i, (name, text)) in hostile.into_iter().enumerate() {
        create(&bench.admin, &lease_saying(&format!("n{i}"), json!({name: huge(text)}))).await?;
    }
    let slots = huge("node-2,eth1,192.0.2.6 ");
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default",
        "annotations": {names::ANNOUNCING_IPV4: slots}}});
    change(&bench.admin, &service).await?;
    create(&bench.admin, &mk_lease("good", "other")).await?;
    bench.view.holds("the good one is told", |s| s.leases.contains_key("good")).await?;
    println!("4 hostile annotations of 10 MB written and read in {:?}", began.elapsed());
    assert_eq!(bench.handle.counters().unreadable_objects.get(), 0);
    let seen = bench.view.now();
    for lease in seen.leases.values() {
        assert!(lease.subnets.len() <= 256 && lease.announced.as_ref().is_none_or(|a| a.len() <= 16_384));
        assert!(lease.draining.as_ref().is_none_or(|d| d.len() <= 256));
    }
    // A slot still finds its way in, from a Service whose annotation we did not keep.
    bench.view.holds("its slots", |s| s.services["default/web"].slots.len() == 1).await?;
    let key = purelb_core::ObjectKey::of("default", "web")?;
    bench.handle.write_slot(key, "192.0.2.5".parse()?, purelb_core::IfName::new("eth0")?);
    bench.view.holds("both slots", |s| s.services["default/web"].slots.len() == 2).await?;
    // And on our own Lease it costs one more round.
    bench.write(1, LeaseMode::Create).await?.unwrap();
    let note = lease_saying("node-1", json!({"example.com/note": huge("n")}));
    change(&bench.admin, &json!({"apiVersion": note["apiVersion"], "kind": note["kind"],
        "metadata": {"name": "purelb-node-node-1", "namespace": SYSTEM, "annotations": note["metadata"]["annotations"]}}))
    .await?;
    let mut patient = mk_write(2, LeaseMode::Renew);
    patient.timeout = SOON;
    bench.handle.write_lease(patient);
    bench.answer(2).await?.unwrap();
    Ok(())
}

#[tokio::test]
async fn leases_that_lie() -> Result<()> {
    let bench = Bench::furnished(quick(), async |admin| {
        let mut stolen = mk_lease("victim", "thief");
        stolen["spec"]["holderIdentity"] = json!("thief");
        create(admin, &stolen).await?;
        let mut absurd = mk_lease("absurd", "");
        absurd["spec"]["leaseDurationSeconds"] = json!(-2_147_483_648);
        absurd["spec"]["renewTime"] = json!("0001-01-01T00:00:00.000000Z");
        create(admin, &absurd).await?;
        let mut other = mk_lease("x", "other");
        other["metadata"]["name"] = json!("kube-controller-manager");
        create(admin, &other).await?;
        let mut bare = mk_lease("bare", "other");
        bare["spec"] = json!({});
        create(admin, &bare).await
    })
    .await?;
    let seen = bench.view.now();
    let told: Vec<_> = seen.leases.keys().map(String::as_str).collect();
    assert_eq!(told, ["absurd"], "the others are nobody's");
    // One that turns into a lie is gone.
    create(&bench.admin, &mk_lease("honest", "other")).await?;
    bench.view.holds("honest", |s| s.leases.contains_key("honest")).await?;
    let mut lie = mk_lease("honest", "other");
    lie["spec"]["holderIdentity"] = json!("thief");
    change(&bench.admin, &lie).await?;
    bench.view.holds("no longer", |s| !s.leases.contains_key("honest")).await
}

/// The embedded API keeps custom resources as sent: what an older or missing schema
/// would let through.
#[tokio::test]
async fn resources_of_another_shape() -> Result<()> {
    let shapes = [
        json!({"spec": {"local": 7}}),
        json!({"spec": []}),
        json!({"spec": {"local": {"v4pool": {"pool": {}, "subnet": 1}}}}),
        json!({"spec": {"local": {"localInterface": ["a"], "garpConfig": "x"}}}),
        json!({}),
    ];
    let with = |kind: &str, name: String, shape: &Value| {
        let mut object = shape.clone();
        object["apiVersion"] = json!("purelb.io/v2");
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": name, "namespace": SYSTEM});
        object
    };
    let bench = Bench::furnished(quick(), async |admin| {
        create(admin, &mk_group("good", "192.0.2.0/28")).await?;
        create(admin, &mk_agent("good", "eth0")).await?;
        for (i, shape) in shapes.iter().enumerate() {
            create(admin, &with("ServiceGroup", format!("bad{i}"), shape)).await?;
            create(admin, &with("LBNodeAgent", format!("bad{i}"), shape)).await?;
        }
        Ok(())
    })
    .await?;
    let good = |s: &Seen| s.groups.len() == 1 && s.agents["purelb-system/good"].config.is_ok();
    bench.view.holds("the good ones are told", good).await?;
    let agents = bench.view.now().agents;
    assert!(agents["purelb-system/bad0"].config.is_err(), "a problem, in words: {agents:?}");
    assert!(bench.handle.counters().unreadable_objects.get() >= 4);

    // Turned bad, a group keeps its last good self, also across a listing (R11).
    change(&bench.admin, &mk_group("good", "not a range")).await?;
    create(&bench.admin, &mk_group("later", "192.0.2.16/28")).await?;
    bench.view.holds("later", |s| s.groups.contains_key("later")).await?;
    bench.handle.relist(Source::ServiceGroups);
    bench.view.holds("listed", |s| s.listed(Source::ServiceGroups) == 2).await?;
    assert!(bench.view.now().groups.contains_key("good"));
    let wrong: Vec<_> =
        bench.handle.group_problems().into_iter().map(|p| (p.object.to_string(), p.field)).collect();
    assert!(wrong.contains(&("purelb-system/good".into(), "spec.local.v4pool.pool".into())), "{wrong:?}");
    change(&bench.admin, &mk_group("good", "192.0.2.0/28")).await?;
    bench
        .view
        .holds("put right", |_| !bench.handle.group_problems().iter().any(|p| p.object.name() == "good"))
        .await?;
    assert_eq!(bench.handle.counters().task_panics.get(), 0);
    Ok(())
}
