//! Conditions of an object's status, changed the way Kubernetes expects.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The object is understood and in use.
pub const ACCEPTED: &str = "Accepted";
/// What a provider has given and no Service holds any more is given back.
pub const SWEPT: &str = "Swept";

/// What is now true of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding<'a> {
    /// Such as [`ACCEPTED`].
    pub kind: &'a str,
    pub holds: bool,
    /// One CamelCase word.
    pub reason: &'a str,
    /// For people.
    pub message: &'a str,
    /// `metadata.generation` it was found for.
    pub generation: Option<i64>,
}

/// Puts the finding into the list. Answers whether anything changed, so that a
/// status is written once per change and not once per look. The time changes only
/// with the status, as readers expect.
pub fn set(conditions: &mut Vec<Condition>, finding: &Finding<'_>, now: Timestamp) -> bool {
    let status = if finding.holds { "True" } else { "False" };
    let old = conditions.iter_mut().find(|c| c.type_ == finding.kind);
    let since = match &old {
        Some(old) if old.status == status => old.last_transition_time.clone(),
        _ => Time(now),
    };
    let new = Condition {
        type_: finding.kind.to_owned(),
        status: status.to_owned(),
        reason: finding.reason.to_owned(),
        message: finding.message.to_owned(),
        observed_generation: finding.generation,
        last_transition_time: since,
    };
    match old {
        Some(old) if *old == new => false,
        Some(old) => {
            *old = new;
            true
        }
        None => {
            conditions.push(new);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_and_times_follow_the_status() {
        let at = |s: i64| Timestamp::from_second(s).unwrap();
        let good =
            Finding { kind: ACCEPTED, holds: true, reason: "Parsed", message: "", generation: Some(1) };
        let mut list = Vec::new();
        assert!(set(&mut list, &good, at(1)));
        assert!(!set(&mut list, &good, at(2)), "the same again is no change");
        let reworded = Finding { message: "m", ..good.clone() };
        assert!(set(&mut list, &reworded, at(3)));
        assert_eq!(list[0].last_transition_time, Time(at(1)), "still true since then");
        let bad = Finding { holds: false, reason: "ParseFailed", ..good };
        assert!(set(&mut list, &bad, at(4)));
        assert_eq!((list.len(), list[0].status.as_str()), (1, "False"));
        assert_eq!(list[0].last_transition_time, Time(at(4)));
        assert!(set(&mut list, &Finding { kind: "Other", ..bad }, at(5)));
        assert_eq!(list.len(), 2);
    }
}
