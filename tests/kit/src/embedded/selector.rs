//! Label and field selectors.

use serde_json::Value;

use super::kinds::Kind;
use super::status::Refusal;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Demand {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

/// What a list or a watch is narrowed to. Everything, by default.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    /// Empty: all namespaces.
    pub(crate) namespace: String,
    labels: Vec<(String, Demand)>,
    fields: Vec<(String, Demand)>,
}

impl Selector {
    pub(crate) fn parse(kind: &Kind, namespace: &str, labels: &str, fields: &str) -> Result<Self, Refusal> {
        let labels = split_outside_parentheses(labels)
            .map(|term| parse_label(term).ok_or_else(|| unreadable(term)))
            .collect::<Result<Vec<_>, _>>()?;
        let fields = fields
            .split(',')
            .filter(|term| !term.is_empty())
            .map(|term| {
                let (path, demand) = parse_field(term).ok_or_else(|| unreadable(term))?;
                let known =
                    ["metadata.name", "metadata.namespace"].contains(&path) || kind.fields.contains(&path);
                if !known {
                    let message = format!("field label not supported: {path}");
                    return Err(Refusal::bad_request(message));
                }
                Ok((path.to_string(), demand))
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Selector { namespace: namespace.to_string(), labels, fields })
    }

    /// Whether a count of what is left to list can be told without looking at it.
    pub(crate) fn takes_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        if !self.namespace.is_empty() && metadata["namespace"] != self.namespace.as_str() {
            return false;
        }
        let labels = &metadata["labels"];
        self.labels.iter().all(|(key, demand)| demand.met(labels[key.as_str()].as_str()))
            && self.fields.iter().all(|(path, demand)| demand.met(Some(&field(object, path))))
    }
}

impl Demand {
    fn met(&self, value: Option<&str>) -> bool {
        let among = |wanted: &[String]| value.is_some_and(|value| wanted.iter().any(|one| one == value));
        match self {
            Demand::In(wanted) => among(wanted),
            Demand::NotIn(unwanted) => !among(unwanted),
            Demand::Exists => value.is_some(),
            Demand::Absent => value.is_none(),
        }
    }
}

/// A selectable field as text; an absent one is the empty string, an absent flag
/// `false`, as the real server has it.
fn field(object: &Value, path: &str) -> String {
    let found = path.split('.').fold(object, |value, part| &value[part]);
    match found {
        Value::String(text) => text.clone(),
        Value::Null if path == "spec.unschedulable" => "false".to_string(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn unreadable(term: &str) -> Refusal {
    Refusal::bad_request(format!("unable to parse requirement: {term:?} is not a selector"))
}

fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|term| !term.is_empty())
}

fn parse_field(term: &str) -> Option<(&str, Demand)> {
    if let Some((path, value)) = term.split_once("!=") {
        return Some((path, Demand::NotIn(vec![value.to_string()])));
    }
    let (path, value) = term.split_once("==").or_else(|| term.split_once('='))?;
    Some((path, Demand::In(vec![value.to_string()])))
}

fn parse_label(term: &str) -> Option<(String, Demand)> {
    let is_key = |key: &str| !key.is_empty() && !key.contains([' ', '(', ')', '!', '=', ',']);
    let named = |key: &str, demand| is_key(key).then(|| (key.to_string(), demand));
    if let Some(open) = term.find('(') {
        let values = term[open + 1..].strip_suffix(')')?;
        let values = values.split(',').map(|value| value.trim().to_string()).collect();
        let (key, word) = term[..open].trim().rsplit_once(' ')?;
        return match word {
            "in" => named(key.trim(), Demand::In(values)),
            "notin" => named(key.trim(), Demand::NotIn(values)),
            _ => None,
        };
    }
    if let Some(key) = term.strip_prefix('!') {
        return named(key.trim(), Demand::Absent);
    }
    if let Some((key, value)) = term.split_once("!=") {
        return named(key.trim(), Demand::NotIn(vec![value.trim().to_string()]));
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return named(key.trim(), Demand::In(vec![value.trim().to_string()]));
    }
    named(term, Demand::Exists)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matches(labels: &str, fields: &str) -> bool {
        let kind = Kind { fields: &["spec.type"], ..Kind::custom("", "v1", "services", "Service") };
        let object = json!({
            "metadata": {"name": "web", "namespace": "a", "labels": {"app": "web", "tier": "front"}},
            "spec": {"type": "LoadBalancer"},
        });
        Selector::parse(&kind, "", labels, fields).unwrap().matches(&object)
    }

    #[test]
    fn labels() {
        for yes in ["app=web", "app==web,tier in (back, front)", "tier", "!gone", "app!=x", "gone notin (a)"]
        {
            assert!(matches(yes, ""), "{yes}");
        }
        for no in ["app=x", "tier notin (front)", "!app", "gone", "app=web,tier=back", "gone in (a)"] {
            assert!(!matches(no, ""), "{no}");
        }
    }

    #[test]
    fn fields() {
        assert!(matches("", "metadata.name=web,spec.type=LoadBalancer"));
        assert!(!matches("", "spec.type!=LoadBalancer"));
        let kind = Kind::custom("", "v1", "services", "Service");
        assert!(Selector::parse(&kind, "", "", "spec.other=1").is_err());
        assert!(Selector::parse(&kind, "", "a in b", "").is_err());
    }
}
