//! What an operator should know, worst first, each with what to do next.

use pb::Severity as S;
use purelb_api::names::LABEL_EXCLUDE as EXCLUDE_LABEL;
use purelb_core::rank::Rank;
use purelb_core::reason::{ProblemSeverity, ReasonProblem};
use purelb_core::snapshot::{ConfigStatus, FenceView, Snapshot};
use purelb_proto::control::v1 as pb;

use super::convert::reason_text;

/// As many addresses are named one by one; the rest is a number.
const MOST_NAMED_ADDRESSES: usize = 20;
const SECONDS_PER_DAY: i64 = 24 * 3600;

/// What is wrong with the control API itself.
#[derive(Debug, Default)]
pub struct ControlTrouble {
    /// Seconds since 1970.
    pub certificate_expires: Option<i64>,
    pub trouble: Vec<String>,
    /// When the credentials for the API server end, in seconds since 1970, how long they
    /// last in all, and why the next ones could not be had.
    pub credentials: Option<(i64, i64)>,
    pub credentials_trouble: Option<String>,
}

/// `now` in seconds since 1970.
pub fn find_problems(snapshot: &Snapshot, api: &ControlTrouble, now: i64) -> Vec<pb::Problem> {
    let mut found = Vec::new();
    for trouble in &api.trouble {
        found.push(problem(S::Warning, "node", "control", trouble, "correct the configuration"));
    }
    node(snapshot, &mut found);
    configuration(snapshot, &mut found);
    members(snapshot, &mut found);
    addresses(snapshot, &mut found);
    if let Some(left) =
        api.certificate_expires.map(|at| at.saturating_sub(now)).filter(|left| *left < 14 * SECONDS_PER_DAY)
    {
        let (severity, message) = if left < 0 {
            (S::Critical, "the control API's certificate has expired".to_owned())
        } else {
            (S::Warning, format!("the control API's certificate expires in {} days", left / SECONDS_PER_DAY))
        };
        found.push(problem(
            severity,
            "node",
            "control.certificate",
            message,
            "replace the file; it is read without a restart",
        ));
    }
    credentials(api, now, &mut found);
    found.sort_by_key(|p| std::cmp::Reverse(p.severity));
    found
}

/// The daemon asks for the next ones when a fifth of the time is left. With less than this
/// something is in the way.
const CREDENTIALS_LOW: i64 = 15;
const CREDENTIALS_LAST: i64 = 5;

fn credentials(api: &ControlTrouble, now: i64, found: &mut Vec<pb::Problem>) {
    let Some((expires, lifetime)) = api.credentials else { return };
    let left = expires.saturating_sub(now);
    let part = |percent: i64| lifetime / 100 * percent;
    if left >= part(CREDENTIALS_LOW) {
        return;
    }
    let severity = if left < part(CREDENTIALS_LAST) { S::Critical } else { S::Warning };
    let mut message = if left <= 0 {
        "the credentials for the API server have ended".to_owned()
    } else {
        format!("the credentials for the API server end in {} h", left / 3600)
    };
    if let Some(why) = &api.credentials_trouble {
        message = format!("{message}; no next ones: {why}");
    }
    let hint = "bring a new token: `purelbctl node-kubeconfig NODE --token-only >token`, then on the node `install -m 0640 -g purelb token /etc/purelb/token`";
    found.push(problem(severity, "node", "kubernetes", message, hint));
}

fn problem(
    severity: S,
    object: impl Into<String>,
    field: &str,
    message: impl Into<String>,
    hint: impl Into<String>,
) -> pb::Problem {
    pb::Problem {
        severity: severity.into(),
        object: object.into(),
        field: field.into(),
        message: message.into(),
        hint: hint.into(),
    }
}

fn node(snapshot: &Snapshot, found: &mut Vec<pb::Problem>) {
    if !snapshot.unsynced.is_empty() {
        let names: Vec<String> = snapshot.unsynced.iter().map(ToString::to_string).collect();
        let message = format!("not listed completely yet: {}", names.join(", "));
        found.push(problem(
            S::Warning,
            "node",
            "",
            message,
            "if it lasts, check the API server and the daemon's rights (journalctl -u purelbd)",
        ));
    }
    // Before the first listing there is no Lease to speak of.
    if let FenceView::Fenced { cause } = &snapshot.fence
        && snapshot.unsynced.is_empty()
        && !snapshot.stopping
    {
        let riding = snapshot.totals.riding;
        let (severity, message) = match riding {
            0 => (S::Critical, format!("fenced, so it holds no local address: {cause}")),
            1 => (S::Warning, format!("1 address rides: {cause}")),
            _ => (S::Warning, format!("{riding} addresses ride: {cause}")),
        };
        found.push(problem(
            severity,
            "node",
            "",
            message,
            "check that the API server can be reached from here (journalctl -u purelbd)",
        ));
    }
    if let Some(since) = &snapshot.draining {
        found.push(problem(
            S::Warning,
            "node",
            "",
            format!("drained since {since}"),
            "`purelbctl undrain` ends it",
        ));
    }
    if snapshot.excluded {
        let message = format!("the Node is labelled {EXCLUDE_LABEL}: it takes part in no election");
        let next = "remove the label, or set spec.local.candidacy.excludeLabel: false in its LBNodeAgent";
        found.push(problem(S::Warning, "node", "", message, next));
    }
    if snapshot.rank == Rank::Last {
        let why = snapshot.impaired.map_or("was not well until just now".to_owned(), |i| format!("is {i}"));
        let message = format!("the Node {why}: it ranks last in every election");
        found.push(problem(S::Warning, "node", "", message, "see `kubectl describe node`"));
    }
    if snapshot.stopping {
        found.push(problem(S::Warning, "node", "", "the daemon is stopping", ""));
    }
}

fn configuration(snapshot: &Snapshot, found: &mut Vec<pb::Problem>) {
    match &snapshot.config_status {
        ConfigStatus::NotSelected if snapshot.unsynced.is_empty() => {
            let hint = "make an LBNodeAgent whose nodeSelector matches this node, or one without a selector";
            found.push(problem(S::Critical, "node", "", "no LBNodeAgent selects this node", hint));
        }
        ConfigStatus::NotSelected | ConfigStatus::Defaults | ConfigStatus::Configured => {}
        ConfigStatus::Rejected(p) => {
            let message = format!("{}; the last good configuration stays, if there was one", p.message);
            let object = format!("LBNodeAgent {}", p.object);
            found.push(problem(
                S::Critical,
                object,
                &p.field,
                message,
                "correct the object; `purelbctl validate --cluster` checks it",
            ));
        }
    }
    let ours = match &snapshot.config_status {
        ConfigStatus::Rejected(p) => Some(p),
        _ => None,
    };
    for p in snapshot.problems.iter().filter(|p| Some(*p) != ours) {
        found.push(problem(S::Warning, p.object.as_str(), &p.field, &*p.message, "correct the object"));
    }
}

fn members(snapshot: &Snapshot, found: &mut Vec<pb::Problem>) {
    for member in snapshot.members.iter().filter(|m| m.node != snapshot.node) {
        if !member.live {
            let message = format!("the Lease of {} is no longer renewed", member.node);
            found.push(problem(
                S::Warning,
                member.node.as_str(),
                "",
                message,
                "check that node, or delete the Lease if the node is gone for good",
            ));
        }
    }
}

fn addresses(snapshot: &Snapshot, found: &mut Vec<pb::Problem>) {
    let mut unnamed = 0;
    for vip in &snapshot.vips {
        let Some(ReasonProblem { severity, advice }) = vip.reason.profile().problem else { continue };
        if found.len() >= MOST_NAMED_ADDRESSES {
            unnamed += 1;
            continue;
        }
        let severity = match severity {
            ProblemSeverity::Warning => S::Warning,
            ProblemSeverity::Critical => S::Critical,
        };
        found.push(problem(severity, vip.vip.to_string(), "", reason_text(&vip.reason), advice));
    }
    if unnamed > 0 {
        let message = format!("{unnamed} more addresses have problems");
        found.push(problem(S::Warning, "node", "", message, "`purelbctl get vips` lists them"));
    }
}

#[cfg(test)]
mod tests;
