//! What a request is about, read from its method, path and query.
//!
//! The server dispatches on it, and the fault proxy matches rules against it, so
//! both mean the same thing by "a patch of a Lease's status".

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use http::{Method, Uri};

/// The verbs of the Kubernetes API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// Anything that is not about a resource: `/version`, discovery.
    Other,
}

impl Verb {
    /// Whether the request changes something.
    pub fn writes(self) -> bool {
        matches!(self, Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Other => "other",
        })
    }
}

/// The query parameters, decoded.
pub(crate) type Query = BTreeMap<String, String>;

/// What one request is about. Empty strings where a part is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub verb: Verb,
    pub group: String,
    pub version: String,
    pub namespace: String,
    /// The plural name of the kind, `leases`.
    pub plural: String,
    pub name: String,
    /// `status`, or empty.
    pub subresource: String,
}

impl Target {
    /// Reads a request line.
    pub fn of(method: &Method, uri: &Uri) -> Target {
        let path = uri.path();
        let segments =
            path.split('/').filter(|segment| !segment.is_empty()).map(percent_decode).collect::<Vec<_>>();
        let segments = segments.iter().map(AsRef::as_ref).collect::<Vec<&str>>();
        let mut target = Target {
            verb: Verb::Other,
            group: String::new(),
            version: String::new(),
            namespace: String::new(),
            plural: String::new(),
            name: String::new(),
            subresource: String::new(),
        };
        let rest = match segments.as_slice() {
            ["api", version, rest @ ..] => {
                target.version = (*version).to_string();
                rest
            }
            ["apis", group, version, rest @ ..] => {
                target.group = (*group).to_string();
                target.version = (*version).to_string();
                rest
            }
            _ => return target,
        };
        // A Namespace is a resource and a prefix at once: `namespaces/x/status` is
        // the Namespace, `namespaces/x/services` are its Services.
        let rest = match rest {
            ["namespaces", _, "status" | "finalize"] => rest,
            ["namespaces", namespace, inner @ ..] if !inner.is_empty() => {
                target.namespace = (*namespace).to_string();
                inner
            }
            _ => rest,
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, subresource] => (*plural, *name, *subresource),
            _ => return target,
        };
        target.plural = plural.to_string();
        target.name = name.to_string();
        target.subresource = subresource.to_string();
        let watching = query(uri).get("watch").is_some_and(|value| value == "true" || value == "1");
        target.verb = match (method, name.is_empty()) {
            (&Method::GET, true) if watching => Verb::Watch,
            (&Method::GET, true) => Verb::List,
            (&Method::GET, false) => Verb::Get,
            (&Method::POST, true) => Verb::Create,
            (&Method::PUT, false) => Verb::Update,
            (&Method::PATCH, false) => Verb::Patch,
            (&Method::DELETE, false) => Verb::Delete,
            (&Method::DELETE, true) => Verb::DeleteCollection,
            _ => Verb::Other,
        };
        target
    }

    /// `leases` or `services/status`.
    pub fn resource(&self) -> String {
        if self.subresource.is_empty() {
            self.plural.clone()
        } else {
            format!("{}/{}", self.plural, self.subresource)
        }
    }
}

/// The query of a request, each parameter decoded; the last of a name counts.
pub(crate) fn query(uri: &Uri) -> Query {
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = value.replace('+', " ");
            (percent_decode(name).into_owned(), percent_decode(&value).into_owned())
        })
        .collect()
}

fn percent_decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        match (bytes[at], hex.and_then(|pair| u8::from_str_radix(pair, 16).ok())) {
            (b'%', Some(byte)) => {
                decoded.push(byte);
                at += 3;
            }
            (byte, _) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&decoded).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: Method, uri: &str) -> Target {
        Target::of(&method, &uri.parse().unwrap())
    }

    #[test]
    fn reads_what_a_request_is_about() {
        let patch = of(Method::PATCH, "/api/v1/namespaces/default/services/web/status?fieldManager=a");
        assert_eq!((patch.verb, patch.resource().as_str()), (Verb::Patch, "services/status"));
        assert_eq!((patch.namespace.as_str(), patch.name.as_str()), ("default", "web"));

        let watch = of(Method::GET, "/apis/coordination.k8s.io/v1/leases?watch=true");
        assert_eq!((watch.verb, watch.group.as_str()), (Verb::Watch, "coordination.k8s.io"));

        let namespace = of(Method::PUT, "/api/v1/namespaces/default/status");
        assert_eq!((namespace.plural.as_str(), namespace.name.as_str()), ("namespaces", "default"));
        assert_eq!(of(Method::GET, "/api/v1/namespaces/default").verb, Verb::Get);
        assert_eq!(of(Method::GET, "/version").verb, Verb::Other);
    }

    #[test]
    fn decodes_parameters() {
        let uri = "/x?labelSelector=a%20in%20%28b%2Cc%29&fieldSelector=metadata.name%3Dx".parse().unwrap();
        let query = query(&uri);
        assert_eq!(query["labelSelector"], "a in (b,c)");
        assert_eq!(query["fieldSelector"], "metadata.name=x");
    }
}
