//! Refusals, as the `metav1.Status` bodies a client of the real server would get.

use http::StatusCode;
use serde_json::{Value, json};

use super::kinds::Kind;

/// A request that was refused.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) code: StatusCode,
    reason: &'static str,
    message: String,
    details: Value,
}

/// The `details` every refusal about one object carries.
fn about(kind: &Kind, name: &str) -> Value {
    let mut details = json!({ "kind": kind.plural });
    if !name.is_empty() {
        details["name"] = name.into();
    }
    if !kind.group.is_empty() {
        details["group"] = kind.group.into();
    }
    details
}

impl Refusal {
    fn new(code: StatusCode, reason: &'static str, message: String) -> Self {
        Refusal { code, reason, message, details: Value::Null }
    }

    fn with(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{} \"{name}\" not found", kind.qualified()))
            .with(about(kind, name))
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.qualified());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).with(about(kind, name))
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified());
        Self::new(StatusCode::CONFLICT, "Conflict", message).with(about(kind, name))
    }

    /// A deletion that was to happen only to another object, or to another version of it.
    pub(crate) fn precondition(kind: &Kind, name: &str, field: &str, wanted: &str, has: &str) -> Self {
        let perhaps = match field {
            "UID" => "deleted and then recreated",
            _ => "modified",
        };
        let kind_name = if kind.group.is_empty() {
            kind.kind.to_string()
        } else {
            format!("{}.{}", kind.kind, kind.group)
        };
        let message = format!(
            "Operation cannot be fulfilled on {kind_name} \"{name}\": the {field} in the precondition ({wanted}) \
             does not match the {field} in record ({has}). The object might have been {perhaps}"
        );
        let mut details = about(kind, name);
        details["kind"] = kind.kind.into();
        Self::new(StatusCode::CONFLICT, "Conflict", message).with(details)
    }

    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// Fields another manager owns: `(manager as the server words it, field path)`.
    pub(crate) fn apply_conflict(conflicts: &[(String, String)]) -> Self {
        let listed = conflicts.iter().map(|(who, field)| format!("{who}: {field}")).collect::<Vec<_>>();
        let noun = if conflicts.len() == 1 { "conflict" } else { "conflicts" };
        let message = format!("Apply failed with {} {noun}: {}", conflicts.len(), listed.join("\n"));
        let causes = conflicts
            .iter()
            .map(|(who, field)| json!({"reason": "FieldManagerConflict", "message": who, "field": field}))
            .collect::<Vec<_>>();
        Self::new(StatusCode::CONFLICT, "Conflict", message).with(json!({ "causes": causes }))
    }

    /// `field` is refused for the reason `why`, which begins with the class of
    /// the error in the server's words (`Required value: …`).
    pub(crate) fn invalid(kind: &Kind, name: &str, field: &str, why: &str) -> Self {
        let message = format!("{}.{} \"{name}\" is invalid: {field}: {why}", kind.kind, kind.group);
        let message = if kind.group.is_empty() {
            format!("{} \"{name}\" is invalid: {field}: {why}", kind.kind)
        } else {
            message
        };
        let reason = match why {
            _ if why.starts_with("Required value") => "FieldValueRequired",
            _ if why.starts_with("Forbidden") => "FieldValueForbidden",
            _ => "FieldValueInvalid",
        };
        let mut details = about(kind, name);
        details["kind"] = kind.kind.into();
        details["causes"] = json!([{"reason": reason, "message": why, "field": field}]);
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with(details)
    }

    /// The request's options, rather than its object, are wrong.
    pub(crate) fn invalid_options(options: &str, field: &str, why: &str) -> Self {
        let message = format!("{options}.meta.k8s.io \"\" is invalid: {field}: {why}");
        let details = json!({
            "group": "meta.k8s.io", "kind": options,
            "causes": [{"reason": "FieldValueInvalid", "message": why, "field": field}],
        });
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with(details)
    }

    pub(crate) fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message.into())
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message.into())
    }

    /// What the real server has no better word for.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message.into())
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message.into())
    }

    pub(crate) fn too_large_version(asked: u64, newest: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {newest}");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).with(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }))
    }

    pub(crate) fn unsupported_media_type(sent: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: \
             application/json, application/json-patch+json, application/merge-patch+json, \
             application/apply-patch+yaml (sent: {sent})"
        );
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource".to_string();
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    /// The body a client reads.
    pub(crate) fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": self.message, "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            body["reason"] = self.reason.into();
        }
        if !self.details.is_null() {
            body["details"] = self.details.clone();
        }
        body
    }
}

/// The answer to a deletion that is done.
pub(crate) fn deleted(kind: &Kind, name: &str, uid: &str) -> Value {
    let mut details = about(kind, name);
    details["uid"] = uid.into();
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
