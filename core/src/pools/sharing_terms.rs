//! On what terms a Service holds an address: its sharing key, its ports, and the pods
//! its traffic must meet on the node it arrives at.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::ids::ObjectKey;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}

/// What a Service listens on. TCP 53 and UDP 53 are two different ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    pub protocol: Protocol,
    pub port: u16,
}

impl Port {
    pub fn new(protocol: Protocol, port: u16) -> Self {
        Self { protocol, port }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.protocol, self.port)
    }
}

/// The value of `purelb.io/allow-shared-ip`: opaque, compared byte by byte.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharingKey(Arc<str>);

impl SharingKey {
    /// Blank text is no key: two Services that both left the annotation empty did
    /// not agree to share.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The pods of a Service whose `externalTrafficPolicy` is Local. One node announces an
/// address for all who share it, and such a Service's traffic is lost on a node that has
/// none of its pods: two of them share only if they are the same pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodSet(Arc<str>);

impl PodSet {
    /// A selector chooses among the pods of the Service's own namespace. Without one
    /// the endpoints are made by hand, and nobody else's are known to be the same.
    pub fn of(service: &ObjectKey, selector: &BTreeMap<String, String>) -> Self {
        if selector.is_empty() {
            return Self(service.to_string().into());
        }
        // Neither `:` nor `,` can be part of a namespace or a label.
        let labels: Vec<String> = selector.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Self(format!("{}:{}", service.namespace(), labels.join(",")).into())
    }
}

/// The terms of one Service, the same for all its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharingTerms {
    /// None: the address is this Service's alone.
    pub sharing: Option<SharingKey>,
    pub ports: BTreeSet<Port>,
    /// None: any node will do.
    pub pods: Option<PodSet>,
}

impl SharingTerms {
    /// The address is not shared.
    pub fn alone() -> Self {
        Self::default()
    }

    pub fn shared(key: SharingKey, ports: impl IntoIterator<Item = Port>) -> Self {
        Self { sharing: Some(key), ports: ports.into_iter().collect(), pods: None }
    }
}
