//! Creation, update, patch and deletion: what the real server does between reading a
//! request and storing an object.

use serde_json::{Map, Value, json};

use super::defaults::{complete, remove};
use super::kinds::Kind;
use super::ownership::{Operation, Owners, Writer};
use super::status::{self, Refusal};
use super::store::{Key, State};

/// One write, as far as its URL and headers say.
#[derive(Debug, Clone)]
pub(crate) struct Intent<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) subresource: &'a str,
    /// `fieldManager`, or the first word of the User-Agent.
    pub(crate) manager: String,
    pub(crate) dry_run: bool,
    pub(crate) force: bool,
}

/// How a patch is to be read.
#[derive(Debug, Clone)]
pub(crate) enum Patch {
    Merge(Value),
    Json(json_patch::Patch),
    Apply(Value),
}

/// What a write did to the object it answers with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Written {
    Created(Value),
    Updated(Value),
}

type Outcome<T> = Result<T, Refusal>;

fn now() -> Value {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Intent<'_> {
    fn key(&self, name: &str) -> Key {
        (self.namespace.to_string(), name.to_string())
    }

    fn writer(&self, operation: Operation) -> Writer {
        Writer { manager: self.manager.clone(), operation, subresource: self.subresource.to_string() }
    }

    fn current(&self, state: &State) -> Outcome<Value> {
        let found = state.get(&self.kind.storage(), &self.key(self.name));
        let found = found.ok_or_else(|| Refusal::not_found(self.kind, self.name))?;
        Ok(self.kind.shown(&found.value))
    }

    fn store(&self, state: &mut State, name: &str, object: Value) -> Value {
        if self.dry_run {
            return object;
        }
        let stored = state.commit(&self.kind.storage(), self.key(name), Some(self.kind.stored(object)));
        self.kind.shown(&stored.value)
    }

    /// The body has to be of the kind, and of the namespace, its URL names.
    fn check_identity(&self, object: &Value) -> Outcome<()> {
        if !object.is_object() {
            return Err(Refusal::bad_request("the body of the request is not an object"));
        }
        let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let wrong_kind = !kind.is_empty() && kind != self.kind.kind;
        if wrong_kind || (!api_version.is_empty() && api_version != self.kind.api_version()) {
            return Err(Refusal::bad_request(format!(
                "{kind} in version {api_version:?} cannot be handled as a {}",
                self.kind.kind
            )));
        }
        let namespace = text(&object["metadata"]["namespace"]);
        if !namespace.is_empty() && namespace != self.namespace {
            return Err(Refusal::bad_request(format!(
                "the namespace of the provided object does not match the namespace sent on the request: {namespace:?}"
            )));
        }
        Ok(())
    }

    fn shaped(&self, object: Value) -> Outcome<Value> {
        let readable = |error| {
            let message = format!(
                "{} in version {:?} cannot be handled as a {}: {error}",
                self.kind.kind, self.kind.version, self.kind.kind
            );
            Refusal::bad_request(message)
        };
        self.kind.shaped(object).map_err(readable)
    }
}

/// POST.
pub(crate) fn create(state: &mut State, intent: &Intent<'_>, object: Value) -> Outcome<Value> {
    intent.check_identity(&object)?;
    create_checked(state, intent, object, None)
}

fn create_checked(
    state: &mut State,
    intent: &Intent<'_>,
    mut object: Value,
    owners: Option<Owners>,
) -> Outcome<Value> {
    let kind = intent.kind;
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    let metadata = &mut object["metadata"];
    if !text(&metadata["resourceVersion"]).is_empty() {
        return Err(Refusal::bad_request("resourceVersion should not be set on objects to be created"));
    }
    if text(&metadata["name"]).is_empty() {
        let prefix = text(&metadata["generateName"]);
        if prefix.is_empty() {
            let why = "Required value: name or generateName is required";
            return Err(Refusal::invalid(kind, "", "metadata.name", why));
        }
        let random = uuid::Uuid::new_v4().simple().to_string();
        metadata["name"] = format!("{prefix}{}", &random[..5]).into();
    }
    let name = text(&metadata["name"]).to_string();
    check_name(kind, &name)?;
    for unset in
        ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"]
    {
        remove(metadata, unset);
    }
    if kind.namespaced {
        if state.get("namespaces", &(String::new(), intent.namespace.to_string())).is_none() {
            let namespaces = Kind::custom("", "v1", "namespaces", "Namespace");
            return Err(Refusal::not_found(&namespaces, intent.namespace));
        }
        metadata["namespace"] = intent.namespace.into();
    } else {
        remove(metadata, "namespace");
    }
    metadata["uid"] = uuid::Uuid::new_v4().to_string().into();
    metadata["creationTimestamp"] = now();
    if kind.generation {
        metadata["generation"] = 1.into();
    } else {
        remove(metadata, "generation");
    }
    if state.get(&kind.storage(), &intent.key(&name)).is_some() {
        return Err(Refusal::already_exists(kind, &name));
    }
    if kind.status && !kind.keeps_status_at_creation {
        remove(&mut object, "status");
    }
    let mut object = intent.shaped(object)?;
    complete(kind, &mut state.given, &mut object, None);
    let owners = owners.unwrap_or_else(|| {
        let mut owners = Owners::of(&Value::Null);
        owners.updated(kind, &intent.writer(Operation::Update), &Value::Null, &object, &now());
        owners
    });
    owners.into(&mut object);
    Ok(intent.store(state, &name, object))
}

/// Names are DNS subdomains; an upper case letter in one is the mistake people make.
fn check_name(kind: &Kind, name: &str) -> Outcome<()> {
    let ok = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if name.len() <= 253 && name.chars().all(ok) && edge(name.chars().next()) && edge(name.chars().last()) {
        return Ok(());
    }
    let why = format!(
        "Invalid value: {name:?}: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
         characters, '-' or '.', and must start and end with an alphanumeric character"
    );
    Err(Refusal::invalid(kind, name, "metadata.name", &why))
}

/// PUT.
pub(crate) fn update(state: &mut State, intent: &Intent<'_>, object: Value) -> Outcome<Written> {
    let kind = intent.kind;
    intent.check_identity(&object)?;
    let named = text(&object["metadata"]["name"]);
    if named != intent.name {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({named}) does not match the name on the URL ({})",
            intent.name
        )));
    }
    let old = match intent.current(state) {
        Ok(old) => old,
        Err(_) if kind.create_on_update && intent.subresource.is_empty() => {
            return create_checked(state, intent, object, None).map(Written::Created);
        }
        Err(refusal) => return Err(refusal),
    };
    if text(&object["metadata"]["resourceVersion"]).is_empty() && !kind.unconditional_update {
        let why = "Invalid value: 0: must be specified for an update";
        return Err(Refusal::invalid(kind, intent.name, "metadata.resourceVersion", why));
    }
    finish(state, intent, &old, object, How::Replaced).map(Written::Updated)
}

/// PATCH.
pub(crate) fn patch(state: &mut State, intent: &Intent<'_>, patch: Patch) -> Outcome<Written> {
    match patch {
        Patch::Apply(applied) => apply(state, intent, applied),
        Patch::Merge(patch) => {
            let old = intent.current(state)?;
            let mut new = old.clone();
            merge_patch(&mut new, &patch);
            intent.check_identity(&new)?;
            finish(state, intent, &old, new, How::Patched).map(Written::Updated)
        }
        Patch::Json(patch) => {
            let old = intent.current(state)?;
            let mut new = old.clone();
            json_patch::patch(&mut new, &patch).map_err(|error| {
                Refusal::unprocessable(format!(
                    "the server rejected our request due to an error in our request: {error}"
                ))
            })?;
            intent.check_identity(&new)?;
            finish(state, intent, &old, new, How::Patched).map(Written::Updated)
        }
    }
}

/// RFC 7396.
fn merge_patch(target: &mut Value, patch: &Value) {
    let Some(changes) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (field, value) in changes {
        if value.is_null() {
            remove(target, field);
        } else {
            merge_patch(&mut target[field], value);
        }
    }
}

fn apply(state: &mut State, intent: &Intent<'_>, mut applied: Value) -> Outcome<Written> {
    let kind = intent.kind;
    intent.check_identity(&applied)?;
    if text(&applied["apiVersion"]).is_empty() || text(&applied["kind"]).is_empty() {
        return Err(Refusal::bad_request("an apply patch has to name apiVersion and kind"));
    }
    if !applied["metadata"]["managedFields"].is_null() {
        return Err(Refusal::bad_request("metadata.managedFields must be nil"));
    }
    let named = text(&applied["metadata"]["name"]);
    if !named.is_empty() && named != intent.name {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({named}) does not match the name on the URL ({})",
            intent.name
        )));
    }
    let time = now();
    let writer = intent.writer(Operation::Apply);
    drop_foreign_part(kind, intent.subresource, &mut applied);
    match intent.current(state) {
        Ok(old) => {
            let mut owners = Owners::of(&old);
            let merged = owners
                .apply(kind, &writer, &old, &applied, intent.force, &time)
                .map_err(|conflicts| Refusal::apply_conflict(&conflicts))?;
            finish(state, intent, &old, merged, How::Applied(owners)).map(Written::Updated)
        }
        Err(refusal) if !intent.subresource.is_empty() => Err(refusal),
        Err(_) => {
            // Where there is nothing, a version is no condition.
            remove(&mut applied["metadata"], "resourceVersion");
            let mut owners = Owners::of(&Value::Null);
            let empty = json!({});
            owners
                .apply(kind, &writer, &empty, &applied, intent.force, &time)
                .map_err(|conflicts| Refusal::apply_conflict(&conflicts))?;
            applied["metadata"]["name"] = intent.name.into();
            create_checked(state, intent, applied, Some(owners)).map(Written::Created)
        }
    }
}

/// What an apply patch may not own: status through the object, the rest through status.
fn drop_foreign_part(kind: &Kind, subresource: &str, applied: &mut Value) {
    let Some(map) = applied.as_object_mut() else {
        return;
    };
    if subresource == "status" {
        let metadata = kind.status_writes_metadata;
        map.retain(|field, _| {
            ["apiVersion", "kind", "status"].contains(&field.as_str()) || (metadata && field == "metadata")
        });
    } else if kind.status {
        map.remove("status");
    }
}

/// How the new object came about.
enum How {
    Replaced,
    Patched,
    /// By an apply patch, which has settled who owns what.
    Applied(Owners),
}

/// Everything between "this is the new object" and its being stored.
fn finish(state: &mut State, intent: &Intent<'_>, old: &Value, mut new: Value, how: How) -> Outcome<Value> {
    let kind = intent.kind;
    let (was, is) = (&old["metadata"], &mut new["metadata"]);
    if !is.is_object() {
        *is = json!({});
    }
    let asked = text(&is["resourceVersion"]);
    if !asked.is_empty() && asked != text(&was["resourceVersion"]) {
        return Err(Refusal::modified(kind, intent.name));
    }
    let (uid, had) = (text(&is["uid"]), text(&was["uid"]));
    if !uid.is_empty() && uid != had {
        return Err(match how {
            How::Replaced => {
                let why =
                    format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {had}");
                Refusal::conflict(kind, intent.name, &why)
            }
            How::Patched | How::Applied(_) => {
                let why = format!("Invalid value: {uid:?}: field is immutable");
                Refusal::invalid(kind, intent.name, "metadata.uid", &why)
            }
        });
    }
    if text(&is["name"]) != intent.name && !is["name"].is_null() {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            text(&is["name"]),
            intent.name
        )));
    }
    if intent.subresource == "status" {
        let mut only_status = old.clone();
        only_status["status"] = new["status"].take();
        if kind.status_writes_metadata {
            only_status["metadata"] = new["metadata"].take();
        }
        new = only_status;
    } else if kind.status {
        new["status"] = old["status"].clone();
    }
    if new["status"].is_null() {
        remove(&mut new, "status");
    }
    let guarded = [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "selfLink",
        "managedFields",
    ];
    for field in guarded {
        match was.get(field) {
            Some(value) => new["metadata"][field] = value.clone(),
            None => {
                remove(&mut new["metadata"], field);
            }
        }
    }
    for map in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let value = &new["metadata"][map];
        if value.as_object().is_some_and(Map::is_empty)
            || value.as_array().is_some_and(Vec::is_empty)
            || value.is_null()
        {
            remove(&mut new["metadata"], map);
        }
    }
    let mut new = intent.shaped(new)?;
    complete(kind, &mut state.given, &mut new, Some(old));
    check_finalizers(intent, old, &new)?;
    let owners = match how {
        How::Applied(owners) => owners,
        How::Replaced | How::Patched => {
            let mut owners = Owners::of(old);
            owners.updated(kind, &intent.writer(Operation::Update), old, &new, &now());
            owners
        }
    };
    owners.into(&mut new);
    if new == *old {
        return Ok(new);
    }
    if kind.generation && content(old) != content(&new) {
        new["metadata"]["generation"] = (old["metadata"]["generation"].as_u64().unwrap_or(0) + 1).into();
    }
    let last_finalizer = new["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
    if !new["metadata"]["deletionTimestamp"].is_null() && last_finalizer {
        if !intent.dry_run {
            state.commit(&kind.storage(), intent.key(intent.name), None);
        }
        return Ok(new);
    }
    Ok(intent.store(state, intent.name, new))
}

/// What counts for the generation.
fn content(object: &Value) -> Map<String, Value> {
    let mut content = object.as_object().cloned().unwrap_or_default();
    content.remove("metadata");
    content.remove("status");
    content
}

/// An object that is going takes no new finalizers.
fn check_finalizers(intent: &Intent<'_>, old: &Value, new: &Value) -> Outcome<()> {
    let (before, after) = (&old["metadata"]["finalizers"], &new["metadata"]["finalizers"]);
    let had = |one| before.as_array().is_some_and(|before| before.contains(one));
    let added = after.as_array().into_iter().flatten().find(|one| !had(one));
    match added {
        Some(_) if !old["metadata"]["deletionTimestamp"].is_null() => {
            let why = "Forbidden: no new finalizers can be added if the object is being deleted";
            Err(Refusal::invalid(intent.kind, intent.name, "metadata.finalizers", why))
        }
        _ => Ok(()),
    }
}

/// DELETE of one object.
pub(crate) fn delete(state: &mut State, intent: &Intent<'_>, options: &Value) -> Outcome<Value> {
    let kind = intent.kind;
    let old = intent.current(state)?;
    let metadata = &old["metadata"];
    for (field, word) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (wanted, has) = (text(&options["preconditions"][field]), text(&metadata[field]));
        if !wanted.is_empty() && wanted != has {
            return Err(Refusal::precondition(kind, intent.name, word, wanted, has));
        }
    }
    if metadata["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty()) {
        if !metadata["deletionTimestamp"].is_null() {
            return Ok(old);
        }
        let mut going = old.clone();
        going["metadata"]["deletionTimestamp"] = now();
        going["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        if let Some(generation) = going["metadata"]["generation"].as_u64() {
            going["metadata"]["generation"] = (generation + 1).into();
        }
        return Ok(intent.store(state, intent.name, going));
    }
    if !intent.dry_run {
        if kind.qualified() == "namespaces" {
            for (storage, key) in state.keys_in(intent.name) {
                state.commit(&storage, key, None);
            }
        }
        state.commit(&kind.storage(), intent.key(intent.name), None);
    }
    let uid = text(&old["metadata"]["uid"]);
    Ok(if kind.returns_deleted { old } else { status::deleted(kind, intent.name, uid) })
}
