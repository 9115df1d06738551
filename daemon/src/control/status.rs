//! `GetStatus`: one screen of facts.

use std::collections::{BTreeMap, HashMap};

use purelb_core::Mono;
use purelb_core::snapshot::{Counters, Snapshot};
use purelb_proto::control::v1 as pb;

use super::{convert, problems};

pub fn status_response(
    snapshot: &Snapshot,
    now: Mono,
    wall: i64,
    api: &problems::ControlTrouble,
    uptime: u64,
) -> pb::GetStatusResponse {
    let problems = problems::find_problems(snapshot, api, wall);
    let mut reasons: BTreeMap<i32, u32> = BTreeMap::new();
    for vip in &snapshot.vips {
        *reasons.entry(convert::reason_code(&vip.reason).into()).or_default() += 1;
    }
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    pb::GetStatusResponse {
        node: snapshot.node.to_string(),
        instance: snapshot.instance.to_string(),
        version: env!("CARGO_PKG_VERSION").into(),
        unsynced: snapshot.unsynced.iter().map(ToString::to_string).collect(),
        fence: Some(convert::fence(&snapshot.fence, now)),
        draining_since: snapshot.draining.clone().unwrap_or_default(),
        stopping: snapshot.stopping,
        advertised_subnets: snapshot.advertised.iter().map(ToString::to_string).collect(),
        members: count(snapshot.members.len()),
        live_members: count(snapshot.members.iter().filter(|m| m.live).count()),
        vips_by_reason: reasons
            .into_iter()
            .map(|(reason, count)| pb::ReasonCount { reason, count })
            .collect(),
        health: problems.iter().map(|p| p.severity).max().unwrap_or_default(),
        problems,
        uptime_seconds: uptime,
        held: count(snapshot.vips.iter().filter(|v| v.on_interface.is_some()).count()),
        counters: counters(&snapshot.counters),
        segments: convert::segments(snapshot),
    }
}

/// By the names they have in the snapshot itself, so that a new one needs nothing here.
fn counters(counters: &Counters) -> HashMap<String, u64> {
    let Ok(serde_json::Value::Object(map)) = serde_json::to_value(counters) else { return HashMap::new() };
    map.into_iter().filter_map(|(name, value)| Some((name, value.as_u64()?))).collect()
}
