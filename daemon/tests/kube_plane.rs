//! The Kubernetes side on a real kube-apiserver, with the rights of the manifests and
//! nothing more.
#![expect(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::events::v1::Event as KubeEvent;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use purelb_api::{LBNodeAgent, names};
use purelb_core::messages::{
    Event, EventKind, EventObject, FactsUpdate, Input, LeaseContent, LeaseError, LeaseMode, LeaseRenewal,
    LeaseWrite, Source,
};
use purelb_core::{IfName, InstanceId, NodeName, ObjectKey};
use purelb_kit::controlplane::{ControlPlane, ServiceAccount, fixtures, manifests};
use purelb_kit::wait::eventually;
use purelbd::kube::{ApiAccess, KubeConfig, KubeHandle, KubeTuning};
use serde_json::json;
use tokio::sync::mpsc;

const SYSTEM: &str = "purelb-system";
const SOON: Duration = Duration::from_secs(30);

/// Inputs as they came.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Input>>>);

impl Log {
    fn collect(mut inputs: mpsc::Receiver<Input>) -> Log {
        let log = Log::default();
        let into = log.clone();
        tokio::spawn(async move {
            while let Some(input) = inputs.recv().await {
                into.0.lock().unwrap().push(input);
            }
        });
        log
    }

    async fn find<T>(&self, what: &str, look: impl Fn(&[Input]) -> Option<T>) -> Result<T> {
        eventually(what, SOON, || async {
            let log = self.0.lock().unwrap();
            look(&log).ok_or_else(|| log.iter().rev().take(5).cloned().collect::<Vec<_>>())
        })
        .await
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

fn listed(log: &[Input]) -> bool {
    let has = |is: fn(&Input) -> bool| log.iter().any(is);
    has(|i| matches!(i, Input::Services(FactsUpdate::All(_))))
        && has(|i| matches!(i, Input::Groups(FactsUpdate::All(_))))
        && has(|i| matches!(i, Input::Agents(FactsUpdate::All(_))))
        && has(|i| matches!(i, Input::Endpoints(FactsUpdate::All(_))))
        && has(|i| matches!(i, Input::Nodes(FactsUpdate::All(_))))
        && has(|i| matches!(i, Input::Leases(FactsUpdate::All(_))))
}

async fn plane() -> Result<&'static ControlPlane> {
    static READY: tokio::sync::OnceCell<()> = tokio::sync::OnceCell::const_new();
    let plane = ControlPlane::shared().await?;
    READY
        .get_or_try_init(async || {
            plane.apply_manifests().await?;
            fixtures::ensure_namespace(&plane.admin()?, "shop").await
        })
        .await?;
    Ok(plane)
}

/// One node's daemon, with a name of its own so that tests share a plane.
struct Daemon {
    node: Node,
    handle: KubeHandle,
    log: Log,
    admin: Client,
}

impl Daemon {
    async fn start(
        plane: &ControlPlane,
        name: &str,
        access: impl AsyncFnOnce(&Node) -> Result<ApiAccess>,
    ) -> Result<Daemon> {
        let tuning = KubeTuning { condition_delay: Duration::from_millis(50), ..KubeTuning::default() };
        Self::start_tuned(plane, name, tuning, access).await
    }

    async fn start_tuned(
        plane: &ControlPlane,
        name: &str,
        tuning: KubeTuning,
        access: impl AsyncFnOnce(&Node) -> Result<ApiAccess>,
    ) -> Result<Daemon> {
        let admin = plane.admin()?;
        let node =
            Api::<Node>::all(admin.clone()).create(&PostParams::default(), &fixtures::node(name)).await?;
        let config = KubeConfig {
            node: NodeName::new(name)?,
            instance: InstanceId::new("me")?,
            namespace: SYSTEM.into(),
            classes: Default::default(),
            control_endpoint: None,
            access: access(&node).await?,
            tuning,
            last_good: purelbd::kube::LastGoodConfig::in_memory(),
        };
        let (inputs, receiver) = mpsc::channel(64);
        let log = Log::collect(receiver);
        let handle = purelbd::kube::start(config, inputs).await?;
        let daemon = Daemon { node, handle, log, admin };
        let all = daemon.log.find("everything is listed", |log| listed(log).then_some(())).await;
        all.with_context(|| format!("{:?}", daemon.handle.counters()))?;
        Ok(daemon)
    }

    async fn as_shipped(plane: &ControlPlane, name: &str) -> Result<Daemon> {
        let account = ServiceAccount::node_daemon();
        Self::start(plane, name, async |node| {
            let token = plane.token_for_node(&account, node).await?;
            Ok(ApiAccess::kubeconfig(plane.kubeconfig_with_token(&plane.url(), &token)?))
        })
        .await
    }

    async fn write(&self, seq: u64, mode: LeaseMode) -> Result<Result<LeaseRenewal, LeaseError>> {
        let content = LeaseContent {
            instance: InstanceId::new("me")?,
            duration: Duration::from_secs(10),
            subnets: ["192.0.2.0/24".parse()?].into(),
            draining: None,
            rank: purelb_core::facts::Rank::First,
            announced: std::sync::Arc::new(["192.0.2.7".parse()?].into()),
            declined: Default::default(),
            macs: Default::default(),
            node_uid: self.node.uid().unwrap_or_default(),
        };
        self.handle.write_lease(LeaseWrite { seq, mode, content, timeout: Duration::from_secs(5) });
        let answer = |log: &[Input]| {
            log.iter().find_map(|i| match i {
                Input::LeaseWritten { seq: s, result, .. } if *s == seq => Some(result.clone()),
                _ => None,
            })
        };
        self.log.find("an answer", answer).await
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.admin.clone(), SYSTEM)
    }

    fn lease_name(&self) -> String {
        format!("purelb-node-{}", self.node.name_any())
    }
}

#[tokio::test]
async fn a_lease_lives_and_ends_with_the_shipped_rights() -> Result<()> {
    let plane = plane().await?;
    let daemon = Daemon::as_shipped(plane, "lease-node").await?;
    daemon.write(1, LeaseMode::Create).await?.expect("created");
    let mut last = None;
    for seq in 2..10 {
        last = Some(daemon.write(seq, LeaseMode::Renew).await?.expect("renewed"));
    }
    let mark = last.map(|r| r.renewal);
    let echo = |log: &[Input]| {
        log.iter()
            .any(|i| matches!(i, Input::Leases(FactsUpdate::Set(l)) if Some(&l.renewal) == mark.as_ref()))
            .then_some(())
    };
    daemon.log.find("the watch shows what was written", echo).await?;
    let lease = daemon.leases().get(&daemon.lease_name()).await?;
    assert_eq!(lease.owner_references()[0].uid, daemon.node.uid().unwrap_or_default());

    // Touched, taken, taken back, deleted by somebody, made anew, deleted by us.
    let note = json!({"metadata": {"annotations": {"example.com/note": "mine"}}});
    daemon.leases().patch(&daemon.lease_name(), &PatchParams::default(), &Patch::Merge(note)).await?;
    daemon.write(10, LeaseMode::Renew).await?.expect("renewed after a touch");
    let rival = json!({"metadata": {"annotations": {names::INSTANCE: "rival"}}});
    daemon.leases().patch(&daemon.lease_name(), &PatchParams::default(), &Patch::Merge(rival)).await?;
    assert_eq!(daemon.write(11, LeaseMode::Renew).await?, Err(LeaseError::Taken(InstanceId::new("rival")?)));
    daemon.write(12, LeaseMode::TakeOver).await?.expect("taken over");
    let lease = daemon.leases().get(&daemon.lease_name()).await?;
    assert_eq!(lease.annotations()["example.com/note"], "mine");
    daemon.leases().delete(&daemon.lease_name(), &Default::default()).await?;
    assert_eq!(daemon.write(13, LeaseMode::Renew).await?, Err(LeaseError::Missing));
    daemon.write(14, LeaseMode::Create).await?.expect("created anew");
    assert_eq!(daemon.write(15, LeaseMode::Create).await?.map(drop), Ok(()), "ours: as good as a renewal");
    daemon.handle.delete_lease();
    let deleted = |log: &[Input]| {
        log.iter().find_map(|i| if let Input::LeaseDeleted(r) = i { Some(r.clone()) } else { None })
    };
    assert_eq!(daemon.log.find("deleted", deleted).await?, Ok(()));
    assert!(daemon.leases().get_opt(&daemon.lease_name()).await?.is_none());
    assert_eq!(daemon.handle.counters().forbidden.get(), 0);
    Ok(())
}

#[tokio::test]
async fn slots_events_and_conditions_with_the_shipped_rights() -> Result<()> {
    let plane = plane().await?;
    let daemon = Daemon::as_shipped(plane, "writes-node").await?;
    let ips = ["192.0.2.5".parse()?, "2001:db8::5".parse()?];
    let service = fixtures::allocated(fixtures::service("shop", "web"), "g", "local");
    let web = fixtures::create_with_ingress(&daemon.admin, &service, &ips).await?;
    let told = |log: &[Input]| {
        log.iter()
            .any(|i| matches!(i, Input::Services(FactsUpdate::Set(s)) if s.vips.len() == 2))
            .then_some(())
    };
    daemon.log.find("the Service", told).await?;
    let key = ObjectKey::of("shop", "web")?;
    for ip in ips {
        daemon.handle.write_slot(key.clone(), ip.into(), IfName::new("eth0")?);
    }
    let services: Api<Service> = Api::namespaced(daemon.admin.clone(), "shop");
    eventually("the slots", SOON, || async {
        let now = services.get("web").await.map(|s| s.annotations().clone());
        let texts = now.as_ref().ok().map(|a| {
            [a.get(names::ANNOUNCING_IPV4), a.get(names::ANNOUNCING_IPV6)]
                .map(|t| t.cloned().unwrap_or_default())
        });
        if texts == Some(["writes-node,eth0,192.0.2.5".into(), "writes-node,eth0,2001:db8::5".into()]) {
            Ok(())
        } else {
            Err(format!("{now:?} {:?}", daemon.handle.counters()))
        }
    })
    .await?;

    let bad = json!({"apiVersion": "purelb.io/v2", "kind": "LBNodeAgent",
        "metadata": {"name": "bad", "namespace": SYSTEM}, "spec": {"local": {"localInterface": "\\w{200}"}}});
    manifests::apply(&daemon.admin, &[bad]).await?;
    let agents: Api<LBNodeAgent> = Api::namespaced(daemon.admin.clone(), SYSTEM);
    let condition = eventually("the condition", SOON, || async {
        let now = agents.get("bad").await.map(|a| a.status.map(|s| s.conditions).unwrap_or_default());
        now.ok().and_then(|c| c.first().cloned()).ok_or_else(|| daemon.handle.counters())
    })
    .await?;
    assert_eq!((condition.type_.as_str(), condition.status.as_str()), ("Accepted", "False"));

    let event = |object, kind| Event { object, kind, message: "m".into() };
    daemon.handle.event(event(EventObject::Service(key), EventKind::AnnouncingLocal));
    let agent = EventObject::NodeAgent(ObjectKey::of(SYSTEM, "bad")?);
    daemon.handle.event(event(agent, EventKind::ConfigError));
    for (namespace, reason) in [("shop", "AnnouncingLocal"), (SYSTEM, "ConfigError")] {
        let events: Api<KubeEvent> = Api::namespaced(daemon.admin.clone(), namespace);
        let found = eventually(reason, SOON, || async {
            let all = events.list(&Default::default()).await.map(|l| l.items).unwrap_or_default();
            let ours = all.into_iter().find(|e| e.reporting_instance.as_deref() == Some("writes-node"));
            ours.ok_or_else(|| daemon.handle.counters())
        })
        .await?;
        assert_eq!(found.reason.as_deref(), Some(reason));
        if namespace == "shop" {
            assert_eq!(found.regarding.and_then(|r| r.uid), web.uid());
        }
    }
    assert_eq!(daemon.handle.counters().forbidden.get(), 0);
    Ok(())
}

#[tokio::test]
async fn endpoints_by_name_on_a_real_server() -> Result<()> {
    let plane = plane().await?;
    let daemon = Daemon::as_shipped(plane, "slices-node").await?;
    let slice = fixtures::endpoint_slice("shop", "near", &[("slices-node", true, true)]);
    Api::namespaced(daemon.admin.clone(), "shop").create(&PostParams::default(), &slice).await?;
    let mut service = fixtures::allocated(fixtures::service("shop", "near"), "g", "local");
    service.spec.as_mut().unwrap().external_traffic_policy = Some("Local".into());
    fixtures::create_with_ingress(&daemon.admin, &service, &["192.0.2.6".parse()?]).await?;
    let (slices, told) = daemon
        .log
        .find("slices, then the Service", |log| {
            let slices = log.iter().position(|i| matches!(i, Input::Endpoints(FactsUpdate::All(e)) if !e.is_empty()))?;
            let is = |i: &Input| matches!(i, Input::Services(FactsUpdate::Set(s)) if s.key.name() == "near" && !s.vips.is_empty());
            Some((slices, log.iter().position(is)?))
        })
        .await?;
    assert!(slices < told);
    Ok(())
}

#[tokio::test]
async fn a_rotating_token_bound_to_its_node() -> Result<()> {
    let plane = plane().await?;
    let account = ServiceAccount::node_daemon();
    let file = Mutex::new(None);
    let daemon = Daemon::start(plane, "bound-node", async |node| {
        let token = plane.token_for_node(&account, node).await?;
        let (kubeconfig, token) = plane.kubeconfig_with_token_file(&plane.url(), &token)?;
        *file.lock().unwrap() = Some(token);
        Ok(ApiAccess::kubeconfig(kubeconfig))
    })
    .await?;
    let file = file.into_inner().unwrap().context("a token file")?;
    daemon.write(1, LeaseMode::Create).await?.expect("its own Lease");
    // Spoilt: refused at once. Put right: good at once.
    std::fs::write(&file, "nonsense")?;
    let refused = daemon.write(2, LeaseMode::Renew).await?;
    assert!(matches!(&refused, Err(LeaseError::Refused(t)) if t.contains("401")), "{refused:?}");
    std::fs::write(&file, format!("{}\n", plane.token_for_node(&account, &daemon.node).await?))?;
    daemon.write(3, LeaseMode::Renew).await?.expect("with the new token");
    daemon.handle.relist(Source::Leases);
    let before = daemon.log.len();
    let again = |log: &[Input]| {
        log[before..].iter().any(|i| matches!(i, Input::Leases(FactsUpdate::All(_)))).then_some(())
    };
    daemon.log.find("listed with the new token", again).await
}

/// Its own plane: the server is killed, and comes back.
#[tokio::test]
async fn a_server_that_was_away() -> Result<()> {
    let plane = ControlPlane::start().await?;
    plane.apply_manifests().await?;
    let daemon = Daemon::as_shipped(&plane, "patient-node").await?;
    daemon.write(1, LeaseMode::Create).await?.expect("created");
    plane.stop_apiserver();
    let away = daemon.write(2, LeaseMode::Renew).await?;
    assert!(matches!(away, Err(LeaseError::Unreachable(_))), "{away:?}");
    plane.start_apiserver().await?;
    let back = std::time::Instant::now();
    daemon.write(3, LeaseMode::Renew).await?.expect("renewed at once");
    let node = fixtures::node("newcomer");
    Api::<Node>::all(plane.admin()?).create(&PostParams::default(), &node).await?;
    let told = |log: &[Input]| {
        let is = |n: &purelb_core::facts::NodeFacts| n.name.as_str() == "newcomer";
        let all = log.iter().any(|i| match i {
            Input::Nodes(FactsUpdate::Set(n)) => is(n),
            Input::Nodes(FactsUpdate::All(all)) => all.iter().any(is),
            _ => false,
        });
        all.then_some(())
    };
    daemon.log.find("the watches are back", told).await?;
    println!("whole again {:?} after the server said it was ready", back.elapsed());
    Ok(())
}

/// As kubelets do: asked for with the token it has, kept for itself, used from then on.
#[tokio::test]
async fn a_daemon_gets_its_next_token_by_itself() -> Result<()> {
    let plane = plane().await?;
    let account = ServiceAccount::node_daemon();
    let dir = tempfile::tempdir()?;
    let (own, given) = (dir.path().join("token"), Mutex::new(None));
    // At once instead of after four fifths, and once.
    let tuning =
        KubeTuning { token_share: 0, token_look: Duration::from_secs(3600), ..KubeTuning::default() };
    let daemon = Daemon::start_tuned(plane, "renews-node", tuning, async |node| {
        let token = plane.token_for_node(&account, node).await?;
        let (kubeconfig, file) = plane.kubeconfig_with_token_file(&plane.url(), &token)?;
        *given.lock().unwrap() = Some((file, token));
        // Tokens say when they were made in seconds: the next one is to be newer.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        Ok(ApiAccess { own_token: Some(own.clone()), ..ApiAccess::kubeconfig(kubeconfig) })
    })
    .await?;
    let (file, first) = given.into_inner().unwrap().context("a token")?;
    let next = eventually("the next token is kept", Duration::from_secs(30), || async {
        std::fs::read_to_string(&own).map_err(|e| format!("{e}: {:?}", daemon.handle.counters().credentials))
    })
    .await?;
    assert_ne!(next, first);
    assert_eq!(std::fs::metadata(&own)?.permissions().mode() & 0o777, 0o600);
    let (expires, lifetime) = daemon.handle.counters().credentials.get().context("an end")?;
    let left = expires - k8s_openapi::jiff::Timestamp::now().as_second();
    assert!((1..=lifetime).contains(&left) && lifetime > 600, "{left} of {lifetime}");
    assert_eq!(daemon.handle.counters().credentials.trouble(), None);
    // It writes the node's Lease with it: the administrator's has no say any more.
    std::fs::write(&file, "")?;
    daemon.write(1, LeaseMode::Create).await?.expect("with the token it asked for");
    // It is bound, too: another node's Lease is refused.
    let client = plane.client_with_token(&plane.url(), next.trim())?;
    let leases: Api<Lease> = Api::namespaced(client, SYSTEM);
    let note = json!({"metadata": {"annotations": {"x": "y"}}});
    leases.patch(&daemon.lease_name(), &PatchParams::default(), &Patch::Merge(&note)).await?;
    let other = Daemon::as_shipped(plane, "other-node").await?;
    other.write(1, LeaseMode::Create).await?.expect("created");
    let refused = leases.patch(&other.lease_name(), &PatchParams::default(), &Patch::Merge(&note)).await;
    assert!(matches!(&refused, Err(kube::Error::Api(s)) if s.code == 422), "{refused:?}");
    Ok(())
}
