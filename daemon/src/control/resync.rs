//! `Resync`: what it changed, told from the snapshots before and after.

use std::collections::BTreeMap;
use std::time::Duration;

use purelb_core::Vip;
use purelb_core::snapshot::{Snapshot, VipView};
use purelb_proto::control::v1 as pb;

use super::convert::reason_text;
use crate::engine::handle::{EngineHandle, HandleError};

/// Nothing new for this long, and it is over.
const QUIET_PERIOD: Duration = Duration::from_millis(400);
const LONGEST_RESYNC: Duration = Duration::from_secs(5);

pub async fn resync_and_compare(handle: &EngineHandle) -> Result<pb::ResyncResponse, HandleError> {
    let before = handle.snapshot();
    let mut snapshots = handle.subscribe();
    handle.resync().await?;
    let end = tokio::time::Instant::now() + LONGEST_RESYNC;
    let mut last = handle.snapshot();
    let mut quiet_until = tokio::time::Instant::now() + QUIET_PERIOD;
    let settled = loop {
        let wait = tokio::time::timeout_at(quiet_until.min(end), snapshots.changed());
        match wait.await {
            Err(_) => {
                // Announcements are counted, and no news.
                let now = handle.snapshot();
                let quiet = now.counters.announcements == last.counters.announcements;
                last = now;
                if quiet || tokio::time::Instant::now() >= end {
                    break quiet;
                }
                quiet_until = tokio::time::Instant::now() + QUIET_PERIOD;
            }
            Ok(Err(_)) => return Err(HandleError::Ended),
            Ok(Ok(())) => {
                let now = snapshots.borrow_and_update().clone();
                // Renewals make new snapshots, too.
                if now.vips != last.vips || now.counters.announcements != last.counters.announcements {
                    quiet_until = tokio::time::Instant::now() + QUIET_PERIOD;
                }
                last = now;
            }
        }
    };
    Ok(compare(&before, &last, settled))
}

fn compare(before: &Snapshot, after: &Snapshot, settled: bool) -> pb::ResyncResponse {
    let by_vip =
        |s: &Snapshot| -> BTreeMap<Vip, VipView> { s.vips.iter().map(|v| (v.vip, v.clone())).collect() };
    let (old, new) = (by_vip(before), by_vip(after));
    let here =
        |map: &BTreeMap<Vip, VipView>, vip: &Vip| map.get(vip).is_some_and(|v| v.on_interface.is_some());
    let mut answer = pb::ResyncResponse { settled, ..Default::default() };
    for vip in old.keys().chain(new.keys().filter(|v| !old.contains_key(v))) {
        match (here(&old, vip), here(&new, vip)) {
            (false, true) => answer.added.push(vip.to_string()),
            (true, false) => answer.withdrawn.push(vip.to_string()),
            _ => {}
        }
        let say = |map: &BTreeMap<Vip, VipView>| {
            map.get(vip).map_or_else(|| "not there".into(), |v| reason_text(&v.reason))
        };
        let (a, b) = (say(&old), say(&new));
        if a != b {
            answer.changed.push(format!("{vip}: {a} -> {b}"));
        }
    }
    let sent = after.counters.announcements.saturating_sub(before.counters.announcements);
    answer.announced = u32::try_from(sent).unwrap_or(u32::MAX);
    answer
}
