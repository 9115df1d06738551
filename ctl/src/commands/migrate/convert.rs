//! One v1 object into one v2 object.

use purelb_core::pools::RangeRules;
use serde_json::{Map, Value, json};

use crate::offline::saved_objects::object_name;

/// What an operator decides for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnounceMode {
    Local,
    Remote,
}

impl AnnounceMode {
    fn key(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
        }
    }
}

/// Groups with pools of their own need one; NetBox groups are remote by nature, and a
/// group that already says `remote` has been decided.
pub fn needs_decision(object: &Value) -> bool {
    object["kind"] == "ServiceGroup" && object["spec"]["local"].is_object()
}

/// What the question to the operator quotes.
pub fn pool_texts(object: &Value) -> Vec<String> {
    let set = &object["spec"]["local"];
    let lists = [&set["v4pools"], &set["v6pools"]].into_iter().filter_map(Value::as_array).flatten();
    let ones = [set, &set["v4pool"], &set["v6pool"]];
    let all = ones.into_iter().chain(lists);
    all.filter_map(|p| p["pool"].as_str()).map(str::to_owned).collect()
}

/// The v2 object, and notes; or what is wrong, with object and field.
pub fn convert(object: &Value, decision: AnnounceMode) -> Result<(Value, Vec<String>), String> {
    let name = object_name(object);
    let kind = object["kind"].as_str().unwrap_or_default();
    let mut notes = Vec::new();
    let spec = match kind {
        "ServiceGroup" => group(object, decision, &mut notes),
        "LBNodeAgent" => agent(object, &mut notes),
        other => Err(format!("kind {other:?} is not one of ours")),
    };
    let wrong = |e: String| format!("{kind} {name}: {e}");
    let spec = spec.map_err(wrong)?;
    let mut new =
        json!({"apiVersion": "purelb.io/v2", "kind": kind, "metadata": metadata(object), "spec": spec});
    check(kind, &mut new).map_err(wrong)?;
    Ok((new, notes.into_iter().map(|n| format!("{kind} {name}: {n}")).collect()))
}

/// What we write must be what v2 accepts.
fn check(kind: &str, new: &mut Value) -> Result<(), String> {
    let problem = match kind {
        "ServiceGroup" => {
            let object = serde_json::from_value(new.clone()).map_err(|e| e.to_string())?;
            purelb_api::service_group::parse(&object, &RangeRules::default()).err()
        }
        _ => {
            let object = serde_json::from_value(new.clone()).map_err(|e| e.to_string())?;
            purelb_api::node_agent::facts(&object).config.err()
        }
    };
    problem.map_or(Ok(()), |p| Err(format!("{}: {}", p.field, p.message)))
}

/// The parts a user wrote; what the server adds stays behind.
fn metadata(object: &Value) -> Value {
    let mut out = Map::new();
    for key in ["name", "namespace", "labels", "annotations"] {
        let mut value = object["metadata"][key].clone();
        if let Some(map) = value.as_object_mut() {
            map.remove("kubectl.kubernetes.io/last-applied-configuration");
            if map.is_empty() {
                continue;
            }
        }
        if !value.is_null() {
            out.insert(key.into(), value);
        }
    }
    Value::Object(out)
}

fn group(object: &Value, decision: AnnounceMode, notes: &mut Vec<String>) -> Result<Value, String> {
    let spec = object["spec"].as_object().ok_or("spec is missing")?;
    let mut out = Map::new();
    for (key, value) in spec {
        match key.as_str() {
            "local" => drop(out.insert(decision.key().into(), pools("spec.local", value, notes)?)),
            "remote" => drop(out.insert("remote".into(), pools("spec.remote", value, notes)?)),
            "netbox" => {
                let mut netbox = value.clone();
                if let Some(map) = netbox.as_object_mut() {
                    drop_empty(map, "aggregation");
                }
                notes.push("NetBox addresses are announced by every node, as remote pools are".into());
                out.insert("netbox".into(), netbox);
            }
            "namespaces" | "namespaceDefault" | "enforceNamespaces" => {
                out.insert(key.clone(), value.clone());
            }
            other => {
                return Err(format!("spec.{other} is not known in v1 or has no v2 counterpart; take it out"));
            }
        }
    }
    Ok(Value::Object(out))
}

/// The oldest spelling has one pool directly under `local`; its family shows in the text.
fn pools(at: &str, set: &Value, notes: &mut Vec<String>) -> Result<Value, String> {
    let set = set.as_object().ok_or_else(|| format!("{at} is not an object"))?;
    let mut out = Map::new();
    let mut single = Map::new();
    for (key, value) in set {
        let empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        match key.as_str() {
            _ if empty => {}
            "v4pool" | "v6pool" => drop(out.insert(key.clone(), pool(value))),
            "v4pools" | "v6pools" => {
                let list = value.as_array().ok_or_else(|| format!("{at}.{key} is not a list"))?;
                out.insert(key.clone(), list.iter().map(pool).collect());
            }
            "skipIPv6DAD" | "multiPool" | "balancePools" => drop(out.insert(key.clone(), value.clone())),
            "pool" | "subnet" | "aggregation" => drop(single.insert(key.clone(), value.clone())),
            other => {
                return Err(format!("{at}.{other} is not known in v1 or has no v2 counterpart; take it out"));
            }
        }
    }
    if single.get("pool").and_then(Value::as_str).is_some_and(|t| !t.is_empty()) {
        let v6 = single.get("subnet").and_then(Value::as_str).is_some_and(|s| s.contains(':'));
        let key = if v6 { "v6pool" } else { "v4pool" };
        if out.contains_key(key) {
            notes.push(format!("{at}.pool is left out: {key} is there too and counted in v1"));
        } else {
            out.insert(key.into(), pool(&Value::Object(single)));
        }
    }
    // v1 takes a single pool together with a list; v2 wants one spelling.
    for (one, many) in [("v4pool", "v4pools"), ("v6pool", "v6pools")] {
        if out.contains_key(many)
            && let Some(first) = out.remove(one)
            && let Some(list) = out.get_mut(many).and_then(Value::as_array_mut)
            && !list.contains(&first)
        {
            list.insert(0, first);
            notes.push(format!("{at}.{one} became the first of {many}"));
        }
    }
    Ok(Value::Object(out))
}

fn pool(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(map) = value.as_object_mut() {
        drop_empty(map, "aggregation");
    }
    value
}

/// v1 lets it be empty and means the default.
fn drop_empty(map: &mut Map<String, Value>, key: &str) {
    if map.get(key).is_some_and(|v| v.is_null() || v == "") {
        map.remove(key);
    }
}

fn agent(object: &Value, notes: &mut Vec<String>) -> Result<Value, String> {
    let mut out = Map::new();
    let empty = Map::new();
    let spec = object["spec"].as_object().unwrap_or(&empty);
    for (key, value) in spec {
        match key.as_str() {
            "local" => {}
            "nodeSelector" => drop(out.insert(key.clone(), value.clone())),
            other => {
                return Err(format!("spec.{other} is not known in v1 or has no v2 counterpart; take it out"));
            }
        }
    }
    let mut local = Map::new();
    let has_garp = spec.get("local").is_some_and(|l| l["garpConfig"].is_object());
    for (key, value) in spec.get("local").and_then(Value::as_object).unwrap_or(&empty) {
        match key.as_str() {
            "localint" | "extlbint" if value == "" => {}
            "localint" => drop(local.insert("localInterface".into(), value.clone())),
            "extlbint" => drop(local.insert("dummyInterface".into(), value.clone())),
            "interfaces" => drop(local.insert(key.clone(), value.clone())),
            // Older than garpConfig, which counts if both are there.
            "sendgarp" if has_garp => {}
            "sendgarp" => {
                local.insert("garpConfig".into(), json!({"enabled": value}));
                if value == false {
                    notes.push(
                        "sendgarp: false is kept (garpConfig.enabled: false); clients then learn of a move only when \
                         their caches expire, so consider taking garpConfig out"
                            .into(),
                    );
                }
            }
            "garpConfig" | "addressConfig" if value.is_null() => {}
            "garpConfig" => drop(local.insert(key.clone(), garp(value, notes)?)),
            "addressConfig" => drop(local.insert(key.clone(), addresses(value, notes)?)),
            other => {
                return Err(format!(
                    "spec.local.{other} is not known in v1 or has no v2 counterpart; take it out"
                ));
            }
        }
    }
    out.insert("local".into(), Value::Object(local));
    Ok(Value::Object(out))
}

fn garp(value: &Value, notes: &mut Vec<String>) -> Result<Value, String> {
    const AT: &str = "spec.local.garpConfig";
    let map = value.as_object().ok_or_else(|| format!("{AT} is not an object"))?;
    let mut out = Map::new();
    for (key, value) in map {
        match key.as_str() {
            _ if value.is_null() || value == "" => {}
            "enabled" | "count" | "verifyBeforeSend" => drop(out.insert(key.clone(), value.clone())),
            "initialDelay" | "interval" => {
                let millis = value.as_str().and_then(go_millis).ok_or_else(|| {
                    format!(
                        "{AT}.{key}: {value} is not a duration of whole milliseconds such as 500ms or 1.5s"
                    )
                })?;
                out.insert(key.clone(), format!("{millis}ms").into());
            }
            other => return Err(unknown(AT, other)),
        }
    }
    if out.get("enabled") == Some(&json!(false)) {
        notes.push(
            "garpConfig.enabled: false is kept; clients then learn of a move only when their caches expire"
                .into(),
        );
    }
    Ok(Value::Object(out))
}

/// A Go duration in milliseconds: 100ms, 1.5s, 1m30s, 500us. Nothing finer is kept in v2.
fn go_millis(text: &str) -> Option<u64> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut micros = 0u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        if !number.bytes().any(|b| b.is_ascii_digit()) {
            return None;
        }
        let length = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(length);
        let unit: u64 = match unit {
            "us" | "\u{b5}s" | "\u{3bc}s" => 1,
            "ms" => 1_000,
            "s" => 1_000_000,
            "m" => 60_000_000,
            "h" => 3_600_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let mut value = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.checked_mul(unit)? };
        let mut place = unit;
        for digit in fraction.bytes() {
            if !digit.is_ascii_digit() {
                return None;
            }
            place /= 10;
            value = value.checked_add(u64::from(digit - b'0') * place)?;
        }
        micros = micros.checked_add(value)?;
        rest = tail;
    }
    micros.is_multiple_of(1_000).then_some(micros / 1_000)
}

fn addresses(value: &Value, notes: &mut Vec<String>) -> Result<Value, String> {
    const AT: &str = "spec.local.addressConfig";
    let map = value.as_object().ok_or_else(|| format!("{AT} is not an object"))?;
    let mut out = Map::new();
    for (place, value) in map.iter().filter(|(_, v)| !v.is_null()) {
        if !["localInterface", "dummyInterface"].contains(&place.as_str()) {
            return Err(unknown(AT, place));
        }
        let at = format!("{AT}.{place}");
        let set = value.as_object().ok_or_else(|| format!("{at} is not an object"))?;
        let mut kept = Map::new();
        for (key, value) in set.iter().filter(|(_, v)| !v.is_null()) {
            match key.as_str() {
                // v1 says with 0 "never"; in v2 that is no preferredLifetime at all.
                "preferredLifetime" if *value == 0 => {}
                "validLifetime" | "preferredLifetime" | "noPrefixRoute" => {
                    drop(kept.insert(key.clone(), value.clone()))
                }
                other => return Err(unknown(&at, other)),
            }
        }
        if place == "localInterface" && kept.get("validLifetime") == Some(&json!(0)) {
            notes.push(format!(
                "{at}.validLifetime: 0 is kept: local addresses never expire, so nothing takes them away from a node whose daemon hangs"
            ));
        }
        out.insert(place.clone(), Value::Object(kept));
    }
    Ok(Value::Object(out))
}

fn unknown(at: &str, field: &str) -> String {
    format!("{at}.{field} is not known in v1 or has no v2 counterpart; take it out")
}

#[cfg(test)]
mod tests {
    use super::go_millis;

    #[test]
    fn go_durations() {
        for (text, millis) in [
            ("100ms", Some(100)),
            ("1.5s", Some(1500)),
            (".5s", Some(500)),
            ("1m30s", Some(90_000)),
            ("1h", Some(3_600_000)),
            ("2000us", Some(2)),
            ("2000\u{b5}s", Some(2)),
            ("500us", None),
            ("", None),
            ("5", None),
            ("s", None),
            ("1d", None),
            ("-1s", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(go_millis(text), millis, "{text:?}");
        }
    }
}
