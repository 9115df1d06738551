//! From the engine's snapshot to messages. Points in time become seconds from now: this
//! host's monotonic clock means nothing elsewhere.

use std::collections::BTreeMap;

use purelb_core::election::{CandidateTier, RankedCandidate};
use purelb_core::facts::PoolType;
use purelb_core::rank::Rank;
use purelb_core::snapshot::{FenceView, MemberView, Snapshot, VipView, WatchState};
use purelb_core::{Mono, Reason, Vip};
use purelb_proto::control::v1 as pb;

pub fn fence(view: &FenceView, now: Mono) -> pb::Fence {
    match view {
        FenceView::Healthy { until } => {
            pb::Fence { healthy: true, seconds_left: now.until(*until).as_secs_f64(), cause: String::new() }
        }
        FenceView::Fenced { cause } => {
            pb::Fence { healthy: false, seconds_left: 0.0, cause: cause.to_string() }
        }
    }
}

pub fn member(view: &MemberView, snapshot: &Snapshot, now: Mono) -> pb::Member {
    let strings = |set: &mut dyn Iterator<Item = String>| set.collect::<Vec<_>>();
    pb::Member {
        node: view.node.to_string(),
        live: view.live && view.expires.is_none_or(|at| at > now),
        expires_in_seconds: view.expires.map_or(0.0, |at| now.until(at).as_secs_f64()),
        draining: view.draining,
        out_of_service: view.out_of_service,
        knows_handoffs: view.announced.is_some(),
        announced: strings(&mut view.announced.iter().flat_map(|said| said.iter()).map(ToString::to_string)),
        declined: strings(&mut view.declined.iter().map(ToString::to_string)),
        subnets: strings(&mut view.subnets.iter().map(ToString::to_string)),
        control_endpoint: view.control_endpoint.clone().unwrap_or_default(),
        this_node: view.node == snapshot.node,
        excluded: view.excluded,
        ranks_last: view.rank == Rank::Last,
    }
}

pub fn reason_code(reason: &Reason) -> pb::ReasonCode {
    use pb::ReasonCode as C;
    match reason {
        Reason::Announcing { .. } => C::Announcing,
        Reason::Riding { .. } => C::Riding,
        Reason::Pending { .. } => C::Pending,
        Reason::NotWinner { .. } => C::NotWinner,
        Reason::NoEligibleNode => C::NoEligibleNode,
        Reason::NoEndpoints => C::NoEndpoints,
        Reason::NoLocalSubnet => C::NoLocalSubnet,
        Reason::Draining { .. } => C::Draining,
        Reason::Excluded { .. } => C::Excluded,
        Reason::Fenced { .. } => C::Fenced,
        Reason::HandingOver { .. } => C::HandingOver,
        Reason::ApplyFailed { .. } => C::ApplyFailed,
        Reason::Duplicate { .. } => C::Duplicate,
        Reason::ForeignAddress { .. } => C::ForeignAddress,
        Reason::Declined { .. } => C::Declined,
        Reason::AllDeclined => C::AllDeclined,
        Reason::NotSelected => C::NotSelected,
        Reason::ConfigRejected { .. } => C::ConfigRejected,
        Reason::OutOfService => C::OutOfService,
        Reason::Stopping => C::Stopping,
        Reason::NotInPool => C::NotInPool,
        Reason::HidesOwnNetwork { .. } => C::HidesOwnNetwork,
        Reason::NoService => C::NoService,
    }
}

/// In words, without points in time.
pub fn reason_text(reason: &Reason) -> String {
    match reason {
        Reason::ApplyFailed { error, attempt, .. } => {
            format!("the kernel refused (attempt {attempt}): {error}")
        }
        Reason::Riding { interface, .. } => {
            format!("announcing on {interface}; riding: the API server is away, and nobody else claims it")
        }
        Reason::Duplicate { interface, .. } => format!("another host on {interface} uses the address"),
        Reason::Declined { why, to, .. } => {
            let without = Reason::Declined { why: why.clone(), to: to.clone(), retry_at: None };
            without.to_string()
        }
        other => other.to_string(),
    }
}

pub fn reason(reason: &Reason, now: Mono) -> pb::Reason {
    let retry = match reason {
        Reason::ApplyFailed { retry_at, .. } | Reason::Duplicate { retry_at, .. } => Some(*retry_at),
        Reason::Declined { retry_at, .. } => *retry_at,
        _ => None,
    };
    pb::Reason {
        code: reason_code(reason).into(),
        text: reason_text(reason),
        retry_in_seconds: retry.map_or(0.0, |at| now.until(at).as_secs_f64()),
        for_seconds: match reason {
            Reason::Riding { since, .. } => now.since(*since).as_secs_f64(),
            _ => 0.0,
        },
        held: reason.held(),
    }
}

pub fn pool_type(pool: PoolType) -> pb::PoolType {
    match pool {
        PoolType::Local => pb::PoolType::Local,
        PoolType::Remote => pb::PoolType::Remote,
    }
}

pub fn vip(view: &VipView, now: Mono) -> pb::Vip {
    pb::Vip {
        ip: view.vip.to_string(),
        services: view.services.iter().map(ToString::to_string).collect(),
        pool_type: pool_type(view.pool).into(),
        pool: view.group.clone().unwrap_or_default(),
        reason: Some(reason(&view.reason, now)),
        winner: view
            .winner
            .as_ref()
            .filter(|_| view.pool == PoolType::Local)
            .map(ToString::to_string)
            .unwrap_or_default(),
        interface: view.on_interface.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

pub fn election(vip: Vip, order: &[RankedCandidate]) -> pb::Election {
    pb::Election {
        ip: vip.to_string(),
        winner: order.first().map(|r| r.node.to_string()).unwrap_or_default(),
        order: order
            .iter()
            .map(|r| pb::Candidate {
                node: r.node.to_string(),
                score: r.score.to_string(),
                fallback: r.tier == CandidateTier::Fallback,
                ranks_last: r.rank == Rank::Last,
            })
            .collect(),
    }
}

pub fn subnets(snapshot: &Snapshot) -> Vec<pb::Subnet> {
    let mut all: BTreeMap<ipnet::IpNet, pb::Subnet> = BTreeMap::new();
    let advertised = snapshot.members.iter().flat_map(|m| &m.subnets);
    let local = snapshot.local_subnets.values().flatten();
    for net in advertised.chain(local).chain(&*snapshot.advertised).chain(snapshot.candidates.keys()) {
        all.entry(*net).or_insert_with(|| pb::Subnet { cidr: net.to_string(), ..Default::default() });
    }
    for (net, subnet) in &mut all {
        subnet.candidates = snapshot.candidates.get(net).map_or(0, |n| u32::try_from(*n).unwrap_or(u32::MAX));
        let nodes = snapshot.members.iter().filter(|m| m.live && m.subnets.contains(net));
        subnet.nodes = nodes.map(|m| m.node.to_string()).collect();
        let interfaces = snapshot.local_subnets.iter().filter(|(_, nets)| nets.contains(net));
        subnet.local_interfaces = interfaces.map(|(name, _)| name.to_string()).collect();
        subnet.advertised = snapshot.advertised.contains(net);
    }
    all.into_values().collect()
}

pub fn segments(snapshot: &Snapshot) -> Vec<pb::Segment> {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let segment = |(name, view): (&purelb_core::IfName, &purelb_core::snapshot::SegmentView)| pb::Segment {
        interface: name.to_string(),
        asked: view.trouble.is_none(),
        trouble: view.trouble.as_ref().map(ToString::to_string).unwrap_or_default(),
        cut_off: view.cut_off,
        unheard_by: view.unheard_by.as_ref().map(ToString::to_string).unwrap_or_default(),
        interval_seconds: view.interval.as_secs_f64(),
        watched: view
            .watched
            .iter()
            .map(|watch| pb::WatchedOwner {
                node: watch.owner.to_string(),
                asked: watch.asked.map(|vip| vip.to_string()).unwrap_or_default(),
                state: watch_text(watch.state),
                addresses: count(watch.addresses),
            })
            .collect(),
        witnesses: count(view.witnesses),
    };
    snapshot.segments.iter().map(segment).collect()
}

pub fn watch_text(state: WatchState) -> String {
    match state {
        WatchState::Unknown => "has not answered yet".to_owned(),
        WatchState::Answering => "answers".to_owned(),
        WatchState::Missing(1) => "left a question unanswered".to_owned(),
        WatchState::Missing(n) => format!("left {n} questions unanswered"),
        WatchState::Silent { witnessed: true } => "is silent, and others answer".to_owned(),
        WatchState::Silent { witnessed: false } => {
            "is silent, and so is everybody else: its Lease decides".to_owned()
        }
    }
}

pub fn pools(snapshot: &Snapshot) -> Vec<pb::Pool> {
    let in_use = |name: &str| snapshot.vips.iter().filter(|v| v.group.as_deref() == Some(name)).count();
    let pool = |group: &purelb_core::facts::GroupFacts| {
        let served = |net: &ipnet::IpNet| {
            snapshot.candidates.iter().any(|(have, n)| *n > 0 && (have.contains(net) || net.contains(have)))
        };
        let unserved = group.ranges.iter().map(|r| &r.subnet).filter(|net| !served(net));
        pb::Pool {
            name: group.name.clone(),
            pool_type: pool_type(group.pool).into(),
            subnets: group.ranges.iter().map(|r| r.subnet.to_string()).collect(),
            in_use: u32::try_from(in_use(&group.name)).unwrap_or(u32::MAX),
            unserved_subnets: match group.pool {
                PoolType::Local => unserved.map(ToString::to_string).collect(),
                PoolType::Remote => Vec::new(),
            },
        }
    };
    snapshot.groups.iter().map(pool).collect()
}

/// Keys whose values are nobody's business. Paths to secrets are not secrets.
const SECRET: [&str; 3] = ["token", "password", "secret"];

pub fn settings(config: &crate::config::Config) -> Vec<pb::Setting> {
    let now = serde_json::to_value(config).unwrap_or_default();
    let at =
        |value: &serde_json::Value, key: &str| value.pointer(&format!("/{}", key.replace('.', "/"))).cloned();
    let text = |value: serde_json::Value| match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    let setting = |key: String| {
        let value = at(&now, &key).unwrap_or_default();
        let name = key.rsplit('.').next().unwrap_or(&key);
        let hidden = SECRET.iter().any(|s| name.contains(s)) && !name.ends_with("_file");
        let source = config.origins.get(&key).map_or("built in", String::as_str).to_owned();
        let value = if hidden { "(hidden)".to_owned() } else { text(value) };
        pb::Setting { key, value, source }
    };
    crate::config::keys().into_iter().map(setting).collect()
}
