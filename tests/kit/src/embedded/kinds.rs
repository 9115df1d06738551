//! The kinds the embedded server knows, one row each. Adding a kind is adding a row
//! (or handing [`Kind::custom`] to the builder).

use k8s_openapi::api::{coordination, core, discovery};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::defaults;

/// How a list inside an object is merged by an apply patch. A list that is not
/// named in the table is atomic: owned and replaced as one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListType {
    /// Items with an identity: the named fields.
    Map(&'static [&'static str]),
    /// Scalars, each owned by itself.
    Set,
}

/// A column of `kubectl get`.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub title: &'static str,
    /// Dotted path; a list is shown joined by commas.
    pub path: &'static str,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    pub short: &'static [&'static str],
    pub namespaced: bool,
    /// Has `/status`: status and the rest are written apart.
    pub status: bool,
    /// A status given at creation is kept (Nodes register with theirs).
    pub keeps_status_at_creation: bool,
    /// A write of `/status` may change labels and annotations as well.
    pub status_writes_metadata: bool,
    /// `metadata.generation` counts changes outside metadata and status.
    pub generation: bool,
    /// A PUT may leave `metadata.resourceVersion` out.
    pub unconditional_update: bool,
    /// A PUT of a name that does not exist creates it.
    pub create_on_update: bool,
    /// A deletion answers with the object instead of a Status.
    pub returns_deleted: bool,
    /// Selectable fields besides name and namespace.
    pub fields: &'static [&'static str],
    /// Lists that an apply patch merges item by item.
    pub lists: &'static [(&'static str, ListType)],
    /// Maps that an apply patch owns and replaces as one value.
    pub atomic: &'static [&'static str],
    pub columns: &'static [Column],
    /// The kind whose objects these are, where one object shows under two kinds.
    pub(crate) stored_as: Option<&'static str>,
    pub(crate) shape: Shape,
}

/// What gives an object of a kind its form.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    /// No schema: kept as sent.
    Free,
    /// Read into the typed object and back: unknown fields go, wrong types are refused.
    Typed(fn(Value) -> Result<Value, String>),
}

fn typed<K: DeserializeOwned + Serialize>(value: Value) -> Result<Value, String> {
    let object: K = serde_json::from_value(value).map_err(|error| error.to_string())?;
    serde_json::to_value(object).map_err(|error| error.to_string())
}

impl Kind {
    /// A custom resource as a CRD with a status subresource makes it.
    pub const fn custom(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
    ) -> Kind {
        Kind {
            group,
            version,
            plural,
            kind,
            short: &[],
            namespaced: true,
            status: true,
            keeps_status_at_creation: false,
            status_writes_metadata: false,
            generation: true,
            unconditional_update: false,
            create_on_update: false,
            returns_deleted: false,
            fields: &[],
            lists: &[("status.conditions", ListType::Map(&["type"]))],
            atomic: &[],
            columns: &[],
            stored_as: None,
            shape: Shape::Free,
        }
    }

    const fn built_in(
        group: &'static str,
        plural: &'static str,
        kind: &'static str,
        shape: fn(Value) -> Result<Value, String>,
    ) -> Kind {
        Kind {
            status: false,
            status_writes_metadata: true,
            generation: false,
            unconditional_update: true,
            lists: &[],
            shape: Shape::Typed(shape),
            ..Kind::custom(group, "v1", plural, kind)
        }
    }

    /// `leases.coordination.k8s.io`, as errors name it.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_string()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// `coordination.k8s.io/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Under which name its objects are kept.
    pub(crate) fn storage(&self) -> String {
        self.stored_as.map_or_else(|| self.qualified(), str::to_string)
    }

    /// Whether it comes from a CRD; lists of those repeat kind and apiVersion in every item.
    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.shape, Shape::Free)
    }

    pub(crate) fn list_type(&self, path: &str) -> Option<ListType> {
        let common = match path {
            "metadata.ownerReferences" => Some(ListType::Map(&["uid"])),
            "metadata.finalizers" => Some(ListType::Set),
            _ => None,
        };
        common.or_else(|| self.lists.iter().find(|(of, _)| *of == path).map(|(_, list)| *list))
    }

    /// Brings an object into the form it is kept in.
    pub(crate) fn shaped(&self, mut object: Value) -> Result<Value, String> {
        object["apiVersion"] = self.api_version().into();
        object["kind"] = self.kind.into();
        match self.shape {
            Shape::Free => Ok(object),
            Shape::Typed(read) => read(object),
        }
    }

    /// The stored object as this kind shows it.
    pub(crate) fn shown(&self, stored: &Value) -> Value {
        match self.stored_as {
            Some(_) => defaults::events_from_core(stored),
            None => stored.clone(),
        }
    }

    /// The object of this kind as it is stored.
    pub(crate) fn stored(&self, shown: Value) -> Value {
        match self.stored_as {
            Some(_) => defaults::events_to_core(shown),
            None => shown,
        }
    }
}

/// What every embedded server knows.
pub const KINDS: &[Kind] = &[
    Kind {
        namespaced: false,
        status: true,
        fields: &["status.phase"],
        short: &["ns"],
        columns: &[Column { title: "Status", path: "status.phase" }],
        ..Kind::built_in("", "namespaces", "Namespace", typed::<core::v1::Namespace>)
    },
    Kind {
        namespaced: false,
        status: true,
        keeps_status_at_creation: true,
        fields: &["spec.unschedulable"],
        lists: &[
            ("status.conditions", ListType::Map(&["type"])),
            ("status.addresses", ListType::Map(&["type"])),
            ("spec.podCIDRs", ListType::Set),
        ],
        short: &["no"],
        columns: &[Column { title: "Addresses", path: "status.addresses.address" }],
        ..Kind::built_in("", "nodes", "Node", typed::<core::v1::Node>)
    },
    Kind {
        status: true,
        create_on_update: true,
        returns_deleted: true,
        fields: &["spec.type", "spec.clusterIP"],
        lists: &[
            ("spec.ports", ListType::Map(&["port", "protocol"])),
            ("status.conditions", ListType::Map(&["type"])),
        ],
        atomic: &["spec.selector", "spec.sessionAffinityConfig"],
        short: &["svc"],
        columns: &[
            Column { title: "Type", path: "spec.type" },
            Column { title: "Cluster-IP", path: "spec.clusterIP" },
            Column { title: "External-IP", path: "status.loadBalancer.ingress.ip" },
            Column { title: "Port(s)", path: "spec.ports.port" },
        ],
        ..Kind::built_in("", "services", "Service", typed::<core::v1::Service>)
    },
    Kind {
        fields: &["type"],
        atomic: &[],
        columns: &[Column { title: "Type", path: "type" }],
        ..Kind::built_in("", "secrets", "Secret", typed::<core::v1::Secret>)
    },
    Kind {
        create_on_update: true,
        fields: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        atomic: &["involvedObject", "related"],
        short: &["ev"],
        columns: &[
            Column { title: "Type", path: "type" },
            Column { title: "Reason", path: "reason" },
            Column { title: "Object", path: "involvedObject.name" },
            Column { title: "Message", path: "message" },
        ],
        ..Kind::built_in("", "events", "Event", typed::<core::v1::Event>)
    },
    Kind {
        create_on_update: true,
        fields: &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "reason",
            "type",
        ],
        atomic: &["regarding", "related"],
        stored_as: Some("events"),
        columns: &[
            Column { title: "Type", path: "type" },
            Column { title: "Reason", path: "reason" },
            Column { title: "Object", path: "regarding.name" },
            Column { title: "Message", path: "note" },
        ],
        ..Kind::built_in("events.k8s.io", "events", "Event", typed::<k8s_openapi::api::events::v1::Event>)
    },
    Kind {
        unconditional_update: false,
        create_on_update: true,
        columns: &[
            Column { title: "Holder", path: "spec.holderIdentity" },
            Column { title: "Renewed", path: "spec.renewTime" },
        ],
        ..Kind::built_in("coordination.k8s.io", "leases", "Lease", typed::<coordination::v1::Lease>)
    },
    Kind {
        generation: true,
        lists: &[],
        columns: &[
            Column { title: "AddressType", path: "addressType" },
            Column { title: "Endpoints", path: "endpoints.addresses" },
        ],
        ..Kind::built_in(
            "discovery.k8s.io",
            "endpointslices",
            "EndpointSlice",
            typed::<discovery::v1::EndpointSlice>,
        )
    },
    Kind {
        short: &["sg", "sgs"],
        columns: &[
            Column { title: "Announce", path: "status.announce" },
            Column { title: "IPAM", path: "status.ipam" },
            Column { title: "Allocated-V4", path: "status.allocatedIPv4" },
            Column { title: "Allocated-V6", path: "status.allocatedIPv6" },
        ],
        ..Kind::custom("purelb.io", "v2", "servicegroups", "ServiceGroup")
    },
    Kind {
        short: &["lbna", "lbnas"],
        columns: &[Column { title: "Interface", path: "spec.local.localInterface" }],
        ..Kind::custom("purelb.io", "v2", "lbnodeagents", "LBNodeAgent")
    },
];
