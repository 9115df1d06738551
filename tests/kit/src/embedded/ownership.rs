//! Who owns which field: `metadata.managedFields`, and what an apply patch does with it.
//!
//! An object is flattened into leaves, each with a path. A manager owns a set of
//! paths. An update takes what it changes; an apply owns exactly what it names,
//! gives up (and removes) what it named last time and no longer does, and is
//! refused where it would change what another manager owns.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::kinds::{Kind, ListType};

/// One step of a path, in the notation of FieldsV1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// `f:name`
    Field(String),
    /// `k:{"port":80}`: the item of a list with this identity.
    Item(String),
    /// `v:"text"`: a member of a set.
    Member(String),
}

type Path = Vec<Step>;
type Paths = BTreeSet<Path>;
type Leaves = BTreeMap<Path, Value>;

/// How a manager came to own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// Who writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) manager: String,
    pub(crate) operation: Operation,
    pub(crate) subresource: String,
}

#[derive(Debug, Clone)]
struct Owner {
    writer: Writer,
    api_version: String,
    time: Value,
    paths: Paths,
}

/// The owners of one object.
#[derive(Debug, Clone)]
pub(crate) struct Owners(Vec<Owner>);

/// What the server sets or guards itself: owned by nobody.
const UNOWNED: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

fn leaves(kind: &Kind, object: &Value) -> Leaves {
    let mut found = Leaves::new();
    for (field, value) in object.as_object().into_iter().flatten() {
        match field.as_str() {
            "apiVersion" | "kind" => {}
            "metadata" => {
                for (field, value) in value.as_object().into_iter().flatten() {
                    if !UNOWNED.contains(&field.as_str()) {
                        let path = vec![Step::Field("metadata".into()), Step::Field(field.clone())];
                        flatten(kind, &format!("metadata.{field}"), path, value, &mut found);
                    }
                }
            }
            _ => flatten(kind, field, vec![Step::Field(field.clone())], value, &mut found),
        }
    }
    found
}

fn flatten(kind: &Kind, name: &str, path: Path, value: &Value, found: &mut Leaves) {
    let below = |step: Step| path.iter().cloned().chain([step]).collect::<Path>();
    match value {
        Value::Object(map) if !map.is_empty() && !kind.atomic.contains(&name) => {
            for (field, value) in map {
                flatten(kind, &format!("{name}.{field}"), below(Step::Field(field.clone())), value, found);
            }
        }
        Value::Array(items) if !items.is_empty() => match kind.list_type(name) {
            Some(ListType::Map(keys)) => {
                for item in items {
                    let path = below(Step::Item(identity(item, keys)));
                    found.insert(path.clone(), Value::Null);
                    for (field, value) in item.as_object().into_iter().flatten() {
                        let path = path.iter().cloned().chain([Step::Field(field.clone())]).collect();
                        flatten(kind, &format!("{name}[].{field}"), path, value, found);
                    }
                }
            }
            Some(ListType::Set) => {
                for item in items {
                    found.insert(below(Step::Member(item.to_string())), Value::Null);
                }
            }
            None => {
                found.insert(path, value.clone());
            }
        },
        _ => {
            found.insert(path, value.clone());
        }
    }
}

fn identity(item: &Value, keys: &[&str]) -> String {
    let of = keys.iter().map(|key| {
        // A Service's port is TCP unless it says otherwise, also in an apply patch.
        let value =
            if *key == "protocol" && item[*key].is_null() { json!("TCP") } else { item[*key].clone() };
        ((*key).to_string(), value)
    });
    Value::Object(of.collect::<Map<_, _>>()).to_string()
}

/// `.metadata.annotations.x`, as conflicts name a field.
fn worded(path: &Path) -> String {
    let steps = path.iter().map(|step| match step {
        Step::Field(name) => format!(".{name}"),
        Step::Item(key) => {
            let keys: Map<String, Value> = serde_json::from_str(key).unwrap_or_default();
            let keys = keys.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>();
            format!("[{}]", keys.join(","))
        }
        Step::Member(value) => format!("[={value}]"),
    });
    steps.collect()
}

impl Owners {
    pub(crate) fn of(object: &Value) -> Owners {
        let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        Owners(
            entries
                .map(|entry| {
                    let mut paths = Paths::new();
                    read_fields(&entry["fieldsV1"], &mut Vec::new(), &mut paths);
                    let operation = match entry["operation"].as_str() {
                        Some("Apply") => Operation::Apply,
                        _ => Operation::Update,
                    };
                    Owner {
                        writer: Writer {
                            manager: text(&entry["manager"]),
                            operation,
                            subresource: text(&entry["subresource"]),
                        },
                        api_version: text(&entry["apiVersion"]),
                        time: entry["time"].clone(),
                        paths,
                    }
                })
                .collect(),
        )
    }

    fn to_value(&self) -> Value {
        let entries = self.0.iter().filter(|owner| !owner.paths.is_empty()).map(|owner| {
            let mut fields = json!({});
            for path in &owner.paths {
                write_fields(&mut fields, path);
            }
            let operation = match owner.writer.operation {
                Operation::Apply => "Apply",
                Operation::Update => "Update",
            };
            let mut entry = json!({
                "manager": owner.writer.manager, "operation": operation, "apiVersion": owner.api_version,
                "time": owner.time, "fieldsType": "FieldsV1", "fieldsV1": fields,
            });
            if !owner.writer.subresource.is_empty() {
                entry["subresource"] = owner.writer.subresource.as_str().into();
            }
            entry
        });
        entries.collect::<Vec<_>>().into()
    }

    /// Writes the owners into an object.
    pub(crate) fn into(self, object: &mut Value) {
        let owners = self.to_value();
        if owners.as_array().is_some_and(Vec::is_empty) {
            super::defaults::remove(&mut object["metadata"], "managedFields");
        } else {
            object["metadata"]["managedFields"] = owners;
        }
    }

    /// An update made `new` of `old`: it owns what it changed, nobody owns what is gone.
    pub(crate) fn updated(&mut self, kind: &Kind, writer: &Writer, old: &Value, new: &Value, time: &Value) {
        let (old, new) = (leaves(kind, old), leaves(kind, new));
        let changed = new.iter().filter(|(path, value)| old.get(*path) != Some(value));
        let changed = changed.map(|(path, _)| path.clone()).collect::<Paths>();
        for owner in &mut self.0 {
            owner.paths.retain(|path| new.contains_key(path) && !changed.contains(path));
        }
        if !changed.is_empty() {
            let owner = self.entry(kind, writer, time);
            owner.time = time.clone();
            owner.paths.extend(changed);
        }
        self.0.retain(|owner| !owner.paths.is_empty());
    }

    fn entry(&mut self, kind: &Kind, writer: &Writer, time: &Value) -> &mut Owner {
        let at = self.0.iter().position(|owner| owner.writer == *writer).unwrap_or_else(|| {
            self.0.push(Owner {
                writer: writer.clone(),
                api_version: kind.api_version(),
                time: time.clone(),
                paths: Paths::new(),
            });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// Merges `applied` into `live`. The conflicts, where it is refused.
    pub(crate) fn apply(
        &mut self,
        kind: &Kind,
        writer: &Writer,
        live: &Value,
        applied: &Value,
        force: bool,
        time: &Value,
    ) -> Result<Value, Vec<(String, String)>> {
        let (before, named) = (leaves(kind, live), leaves(kind, applied));
        let named_paths = named.keys().cloned().collect::<Paths>();
        let changes = |path: &Path| {
            before.get(path).is_some_and(|value| named.get(path).is_some_and(|new| new != value))
        };
        let mut conflicts = Vec::new();
        for owner in self.0.iter_mut().filter(|owner| owner.writer != *writer) {
            let contested = owner.paths.iter().filter(|path| changes(path)).cloned().collect::<Vec<_>>();
            let sub = match owner.writer.subresource.as_str() {
                "" => String::new(),
                sub => format!(" with subresource \"{sub}\""),
            };
            // Managers that apply are named alone; the version tells updates apart.
            let using = match owner.writer.operation {
                Operation::Apply => String::new(),
                Operation::Update => format!(" using {}", owner.api_version),
            };
            let who = format!("conflict with \"{}\"{sub}{using}", owner.writer.manager);
            conflicts.extend(contested.iter().map(|path| (who.clone(), worded(path))));
            for path in contested {
                owner.paths.remove(&path);
            }
        }
        if !conflicts.is_empty() && !force {
            return Err(conflicts);
        }
        let mut merged = merge(kind, "", live, applied);
        let mine = self.entry(kind, writer, time);
        let given_up = mine.paths.difference(&named_paths).cloned().collect::<Vec<_>>();
        if mine.paths != named_paths {
            mine.time = time.clone();
            mine.paths = named_paths;
        }
        // Longest first: an item goes only when nothing inside it is owned any more.
        for path in given_up.iter().rev() {
            let kept = self.0.iter().any(|owner| owner.paths.iter().any(|owned| owned.starts_with(path)));
            if !kept {
                remove_at(kind, &mut merged, path);
            }
        }
        self.0.retain(|owner| !owner.paths.is_empty());
        Ok(merged)
    }
}

/// `applied` laid over `live`: maps by field, keyed lists by item, sets by member,
/// everything else as one value.
fn merge(kind: &Kind, name: &str, live: &Value, applied: &Value) -> Value {
    match (live, applied) {
        (Value::Object(old), Value::Object(new)) if !kind.atomic.contains(&name) => {
            let mut merged = old.clone();
            for (field, value) in new {
                let name = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
                let value =
                    old.get(field).map_or_else(|| value.clone(), |old| merge(kind, &name, old, value));
                merged.insert(field.clone(), value);
            }
            Value::Object(merged)
        }
        (Value::Array(old), Value::Array(new)) => match kind.list_type(name) {
            Some(ListType::Map(keys)) => {
                let mut merged = old.clone();
                for item in new {
                    let found = merged.iter_mut().find(|old| identity(old, keys) == identity(item, keys));
                    match found {
                        Some(old) => *old = merge(kind, &format!("{name}[]"), old, item),
                        None => merged.push(item.clone()),
                    }
                }
                merged.into()
            }
            Some(ListType::Set) => {
                let mut merged = old.clone();
                for item in new.iter().filter(|item| !old.contains(item)) {
                    merged.push(item.clone());
                }
                merged.into()
            }
            None => applied.clone(),
        },
        _ => applied.clone(),
    }
}

/// Removes what a path points at, and the maps that become empty by it.
fn remove_at(kind: &Kind, object: &mut Value, path: &[Step]) {
    fn go(kind: &Kind, name: &str, value: &mut Value, path: &[Step]) {
        let [step, rest @ ..] = path else { return };
        match (step, value) {
            (Step::Field(field), Value::Object(map)) => {
                let name = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
                // An item keeps its identity as long as it is there.
                if let Some(Some(ListType::Map(keys))) =
                    name.rsplit_once("[].").map(|(of, _)| kind.list_type(of))
                    && keys.contains(&field.as_str())
                {
                    return;
                }
                if rest.is_empty() {
                    map.remove(field);
                } else if let Some(inner) = map.get_mut(field) {
                    go(kind, &name, inner, rest);
                    let emptied = match inner {
                        Value::Object(map) => map.is_empty(),
                        Value::Array(items) => items.is_empty(),
                        _ => false,
                    };
                    if emptied {
                        map.remove(field);
                    }
                }
            }
            (Step::Item(key), Value::Array(items)) => {
                let Some(ListType::Map(keys)) = kind.list_type(name) else {
                    return;
                };
                let Some(at) = items.iter().position(|item| identity(item, keys) == *key) else {
                    return;
                };
                if rest.is_empty() {
                    items.remove(at);
                } else {
                    go(kind, &format!("{name}[]"), &mut items[at], rest);
                }
            }
            (Step::Member(member), Value::Array(items)) => {
                let gone = serde_json::from_str::<Value>(member).ok();
                items.retain(|item| Some(item) != gone.as_ref());
            }
            _ => {}
        }
    }
    go(kind, "", object, path);
}

fn read_fields(fields: &Value, path: &mut Path, paths: &mut Paths) {
    let Some(map) = fields.as_object() else { return };
    if map.is_empty() && !path.is_empty() {
        paths.insert(path.clone());
    }
    for (name, inner) in map {
        let step = match name.split_once(':') {
            Some(("f", field)) => Step::Field(field.to_string()),
            Some(("k", key)) => Step::Item(key.to_string()),
            Some(("v", value)) => Step::Member(value.to_string()),
            _ => {
                paths.insert(path.clone());
                continue;
            }
        };
        path.push(step);
        read_fields(inner, path, paths);
        path.pop();
    }
}

fn write_fields(fields: &mut Value, path: &Path) {
    let mut at = fields;
    for step in path {
        let name = match step {
            Step::Field(field) => format!("f:{field}"),
            Step::Item(key) => format!("k:{key}"),
            Step::Member(value) => format!("v:{value}"),
        };
        at = &mut at[name];
        if at.is_null() {
            *at = json!({});
        }
    }
    // An item is owned beside its fields.
    if matches!(path.last(), Some(Step::Item(_))) {
        at["."] = json!({});
    }
}

#[cfg(test)]
mod tests;
