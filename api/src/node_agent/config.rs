//! An LBNodeAgent, checked: what the engine is told about it.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use purelb_core::facts::{
    AddressOptions, AgentConfig, AgentFacts, AutoInterface, CandidacyConfig, ConfigProblem, GarpConfig,
    Operator, Requirement, Selector,
};
use purelb_core::{IfName, ObjectKey, durations};
use regex::RegexBuilder;

use super::{AddressSpec, CandidacySpec, GarpSpec, LBNodeAgent, LocalSpec};
use crate::service_group::object_key;

/// Bounds what a pattern may cost in memory once compiled.
const PATTERN_BYTES: usize = 1 << 18;

/// A field and what is wrong with it.
type Wrong = (String, String);

fn wrong<T>(field: &str, message: impl ToString) -> Result<T, Wrong> {
    Err((field.to_owned(), message.to_string()))
}

/// Reads an object. One with a wrong selector selects nothing: a selector that is
/// half understood could otherwise configure nodes it was not written for.
pub fn facts(object: &LBNodeAgent) -> AgentFacts {
    let key = object_key(object);
    let problem =
        |key: &ObjectKey, (field, message): Wrong| ConfigProblem { object: key.clone(), field, message };
    match selector(object.spec.node_selector.as_ref()) {
        Ok(selector) => {
            let config = config(&object.spec.local).map_err(|w| problem(&key, w));
            AgentFacts { key, selector, config }
        }
        Err(w) => AgentFacts { config: Err(problem(&key, w)), selector: nothing(), key },
    }
}

/// Matches no node: a label cannot both be there and not.
fn nothing() -> Selector {
    let on = |operator| Requirement { key: "purelb.io/nothing".into(), operator, values: BTreeSet::new() };
    Selector {
        match_expressions: vec![on(Operator::Exists), on(Operator::DoesNotExist)],
        ..Selector::default()
    }
}

fn selector(raw: Option<&LabelSelector>) -> Result<Selector, Wrong> {
    let Some(raw) = raw else {
        return Ok(Selector::default());
    };
    let mut selector = Selector {
        match_labels: raw.match_labels.clone().unwrap_or_default(),
        match_expressions: Vec::new(),
    };
    for (i, e) in raw.match_expressions.iter().flatten().enumerate() {
        let at = format!("spec.nodeSelector.matchExpressions[{i}]");
        let values: BTreeSet<String> = e.values.iter().flatten().cloned().collect();
        let operator = match e.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            other => return wrong(&format!("{at}.operator"), format!("{other:?} is not an operator")),
        };
        match (operator, values.is_empty()) {
            (Operator::In | Operator::NotIn, true) => {
                return wrong(&format!("{at}.values"), "In and NotIn need values");
            }
            (Operator::Exists | Operator::DoesNotExist, false) => {
                return wrong(&format!("{at}.values"), "Exists and DoesNotExist take no values");
            }
            _ => selector.match_expressions.push(Requirement { key: e.key.clone(), operator, values }),
        }
    }
    Ok(selector)
}

fn config(local: &LocalSpec) -> Result<AgentConfig, Wrong> {
    let defaults = AgentConfig::default();
    let auto = match local.local_interface.as_str() {
        "default" => AutoInterface::DefaultRoute,
        "none" => AutoInterface::None,
        pattern => match RegexBuilder::new(pattern).size_limit(PATTERN_BYTES).build() {
            Ok(_) => AutoInterface::Pattern(pattern.to_owned()),
            Err(e) => {
                let message = format!("must be `default`, `none` or a regular expression: {e}");
                return wrong("spec.local.localInterface", message);
            }
        },
    };
    let mut interfaces = BTreeSet::new();
    for (i, name) in local.interfaces.iter().enumerate() {
        match IfName::new(name) {
            Ok(name) => interfaces.insert(name),
            Err(e) => return wrong(&format!("spec.local.interfaces[{i}]"), e),
        };
    }
    let dummy = match IfName::new(&local.dummy_interface) {
        Ok(name) => name,
        Err(e) => return wrong("spec.local.dummyInterface", e),
    };
    if interfaces.contains(&dummy) {
        return wrong(
            "spec.local.interfaces",
            format!("{dummy} is the dummy interface; it takes no part in elections"),
        );
    }
    let garp = garp(local.garp_config.as_ref())?;
    let addresses = local.address_config.as_ref();
    let at = "spec.local.addressConfig";
    Ok(AgentConfig {
        auto,
        interfaces,
        dummy,
        candidacy: candidacy(local.candidacy.as_ref())?,
        garp,
        detector: local.detector,
        local_address: address(
            &format!("{at}.localInterface"),
            addresses.and_then(|a| a.local_interface.as_ref()),
            defaults.local_address,
        )?,
        dummy_address: address(
            &format!("{at}.dummyInterface"),
            addresses.and_then(|a| a.dummy_interface.as_ref()),
            defaults.dummy_address,
        )?,
    })
}

fn garp(raw: Option<&GarpSpec>) -> Result<GarpConfig, Wrong> {
    const AT: &str = "spec.local.garpConfig";
    let defaults = GarpConfig::default();
    let Some(raw) = raw else { return Ok(defaults) };
    let Ok(count @ 1..=10) = u32::try_from(raw.count) else {
        return wrong(&format!("{AT}.count"), "must be from 1 to 10");
    };
    let interval = one_of(AT, ("intervalMs", raw.interval_ms), ("interval", raw.interval.as_deref()), 100)?;
    let delay = one_of(AT, ("delayMs", raw.delay_ms), ("initialDelay", raw.initial_delay.as_deref()), 0)?;
    Ok(GarpConfig {
        enabled: raw.enabled,
        count,
        interval: interval.unwrap_or(defaults.interval),
        delay: delay.unwrap_or(defaults.delay),
        refresh: seldom(&format!("{AT}.refresh"), "off", raw.refresh.as_deref(), None)?,
        verify: raw.verify_before_send,
    })
}

fn candidacy(raw: Option<&CandidacySpec>) -> Result<CandidacyConfig, Wrong> {
    let defaults = CandidacyConfig::default();
    let Some(raw) = raw else { return Ok(defaults) };
    let at = "spec.local.candidacy.notReadyAfter";
    let last_after = seldom(at, "never", raw.not_ready_after.as_deref(), defaults.last_after)?;
    Ok(CandidacyConfig { exclude_label: raw.exclude_label, last_after })
}

/// What is not to happen often: a refresh that a thousand addresses can afford, a moment of
/// a kubelet that moves nothing. 0: not at all.
fn seldom(
    at: &str,
    not_at_all: &str,
    text: Option<&str>,
    default: Option<Duration>,
) -> Result<Option<Duration>, Wrong> {
    const LEAST: Duration = Duration::from_secs(10);
    const MOST: Duration = Duration::from_secs(24 * 3600);
    match text.map(durations::parse) {
        None => Ok(default),
        Some(Ok(Duration::ZERO)) => Ok(None),
        Some(Ok(time)) if (LEAST..=MOST).contains(&time) => Ok(Some(time)),
        Some(Ok(_)) => wrong(at, format!("must be 0 ({not_at_all}) or from 10s to 24h")),
        Some(Err(error)) => wrong(at, error),
    }
}

/// The two spellings of one setting; both may be given if they say the same.
fn one_of(
    at: &str,
    (ms_name, ms): (&str, Option<i64>),
    (text_name, text): (&str, Option<&str>),
    least: u64,
) -> Result<Option<Duration>, Wrong> {
    let allowed = Duration::from_millis(least)..=Duration::from_millis(5000);
    let ms = match ms.map(|n| u64::try_from(n).map(Duration::from_millis)) {
        None => None,
        Some(Ok(d)) if allowed.contains(&d) => Some(d),
        Some(_) => {
            return wrong(&format!("{at}.{ms_name}"), format!("must be from {least} to 5000"));
        }
    };
    let text = match text.map(durations::parse) {
        None => None,
        Some(Ok(d)) if allowed.contains(&d) => Some(d),
        Some(Ok(_)) => {
            return wrong(&format!("{at}.{text_name}"), format!("must be from {least}ms to 5s"));
        }
        Some(Err(error)) => return wrong(&format!("{at}.{text_name}"), error),
    };
    match (ms, text) {
        (Some(a), Some(b)) if a.as_millis() != b.as_millis() => {
            let message = format!("{text_name} and {ms_name} say different things; give one of them");
            wrong(&format!("{at}.{text_name}"), message)
        }
        (a, b) => Ok(b.or(a)),
    }
}

fn address(at: &str, raw: Option<&AddressSpec>, defaults: AddressOptions) -> Result<AddressOptions, Wrong> {
    let Some(raw) = raw else { return Ok(defaults) };
    let seconds = |name: &str, value: i64| match u32::try_from(value) {
        Ok(n) if n <= i32::MAX.unsigned_abs() => Ok(n),
        _ => wrong(&format!("{at}.{name}"), "must be a number of seconds from 0 to 2147483647"),
    };
    let valid = match raw.valid_lifetime {
        None => defaults.valid,
        Some(value) => match seconds("validLifetime", value)? {
            0 => None,
            n => Some(n),
        },
    };
    let preferred = match (raw.preferred_lifetime, valid) {
        (None, _) => None,
        // 0 and 0: permanent, both.
        (Some(0), None) => None,
        (Some(value), _) => Some(seconds("preferredLifetime", value)?),
    };
    if let (Some(preferred), Some(valid)) = (preferred, valid)
        && preferred > valid
    {
        let message = format!("{preferred} is longer than the validLifetime {valid}");
        return wrong(&format!("{at}.preferredLifetime"), message);
    }
    Ok(AddressOptions {
        valid,
        preferred,
        no_prefix_route: raw.no_prefix_route.unwrap_or(defaults.no_prefix_route),
    })
}

#[cfg(test)]
mod tests;
