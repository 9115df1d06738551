//! Says in the log why each address is, or is not, on this node: once per change.

use purelb_core::reason::{PendingCause, Reason};
use purelb_core::snapshot::{FenceView, Snapshot, VipView};
use tracing::{debug, info, warn};

/// Compares two snapshots and writes a line per difference that matters.
pub fn log_changes(before: &Snapshot, after: &Snapshot) {
    log_fence(before, after);
    for (was, is) in after.vips.changes_since(&before.vips) {
        match (was, is) {
            (Some(gone), None) => {
                info!(vip = %gone.vip, service = services(gone), reason = "Gone", "{}: no Service has it any more", gone.vip);
            }
            (None, Some(fresh)) => log_reason(fresh, None),
            (Some(was), Some(is)) if was.reason != is.reason => log_reason(is, Some(&was.reason)),
            _ => {}
        }
    }
}

fn services(view: &VipView) -> String {
    view.services.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(" ")
}

fn log_reason(view: &VipView, before: Option<&Reason>) {
    let (vip, service, reason) = (view.vip, services(view), view.reason.name());
    let words = &view.reason;
    match words {
        // Every node says this of almost every address when it starts.
        Reason::NotWinner { .. } if before.is_none_or(on_the_way) => {
            debug!(%vip, service, reason, "{vip}: {words}");
        }
        Reason::Pending { missing: PendingCause::Sources(_) } => {}
        _ if words.profile().warns => warn!(%vip, service, reason, "{vip}: {words}"),
        _ => info!(%vip, service, reason, "{vip}: {words}"),
    }
}

fn on_the_way(before: &Reason) -> bool {
    matches!(
        before,
        Reason::Pending { missing: PendingCause::Sources(_) | PendingCause::Lease } | Reason::Fenced { .. }
    )
}

fn log_fence(before: &Snapshot, after: &Snapshot) {
    let riding = after.totals.riding;
    match (before.riding_since, after.riding_since) {
        (None, Some(_)) => warn!(
            reason = "Riding",
            addresses = riding,
            "the API server is away; what was ours stays while nobody else claims it"
        ),
        (Some(_), None) => info!(addresses = before.totals.riding, "no address rides any more"),
        _ => {}
    }
    match (&before.fence, &after.fence) {
        (_, FenceView::Fenced { .. }) if riding > 0 => {}
        (FenceView::Healthy { .. }, FenceView::Fenced { cause }) => {
            warn!(reason = "Fenced", "everything is withdrawn: {cause}");
        }
        (FenceView::Fenced { .. }, FenceView::Healthy { .. }) => info!("the Lease is ours"),
        _ => {}
    }
}
