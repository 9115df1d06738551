//! Names of things: nodes, instances, services, interfaces and virtual addresses.

use std::borrow::Borrow;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a text is not one of our names.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IdError {
    #[error("a {what} may not be empty")]
    Empty { what: &'static str },
    #[error("{what} {value:?} is longer than {max} bytes")]
    TooLong { what: &'static str, value: String, max: usize },
    #[error("{what} {value:?} contains {bad:?}, which is not allowed there")]
    BadCharacter { what: &'static str, value: String, bad: char },
    #[error("{value:?} is not an IP address: give an IPv4 or IPv6 address without a prefix length")]
    NotAnAddress { value: String },
}

/// Cheap to clone: these travel through every map of the engine.
macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal, $allowed:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn new(text: &str) -> Result<Self, IdError> {
                if text.is_empty() {
                    return Err(IdError::Empty { what: $what });
                }
                if text.len() > $max {
                    let value: String = text.chars().take(40).collect();
                    return Err(IdError::TooLong { what: $what, value, max: $max });
                }
                let allowed: fn(char) -> bool = $allowed;
                if let Some(bad) = text.chars().find(|c| !allowed(*c)) {
                    return Err(IdError::BadCharacter { what: $what, value: text.to_owned(), bad });
                }
                Ok(Self(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.as_str().to_owned()
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type!(
    /// A Kubernetes Node's name.
    NodeName,
    "node name",
    253,
    |c| !c.is_whitespace() && !c.is_control() && c != ','
);
name_type!(
    /// One run of a daemon: a new one at every start.
    InstanceId,
    "instance id",
    253,
    |c| !c.is_whitespace() && !c.is_control()
);
name_type!(
    /// A network interface's name.
    IfName,
    "interface name",
    15,
    |c| !c.is_whitespace() && !c.is_control() && c != '/'
);
name_type!(
    /// `namespace/name` of a Service, or of any other namespaced object.
    ObjectKey,
    "namespace/name",
    510,
    |c| !c.is_whitespace() && !c.is_control()
);

impl ObjectKey {
    pub fn of(namespace: &str, name: &str) -> Result<Self, IdError> {
        Self::new(&format!("{namespace}/{name}"))
    }

    pub fn namespace(&self) -> &str {
        self.as_str().split_once('/').map_or("", |(ns, _)| ns)
    }

    pub fn name(&self) -> &str {
        self.as_str().split_once('/').map_or(self.as_str(), |(_, name)| name)
    }
}

/// The kernel's number of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IfIndex(pub u32);

/// A virtual address. An IPv4-mapped IPv6 address is the IPv4 address it maps, so
/// that one address has one identity and one text everywhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "IpAddr", into = "IpAddr")]
pub struct Vip(IpAddr);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Bits of an address of this family.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

impl Vip {
    pub fn new(ip: IpAddr) -> Self {
        Self(ip.to_canonical())
    }

    pub fn ip(self) -> IpAddr {
        self.0
    }

    pub fn family(self) -> Family {
        Family::of(self.0)
    }

    /// The address alone, as a prefix of full length.
    pub fn host_net(self) -> IpNet {
        IpNet::from(self.0)
    }
}

impl From<IpAddr> for Vip {
    fn from(ip: IpAddr) -> Self {
        Self::new(ip)
    }
}

impl From<Vip> for IpAddr {
    fn from(vip: Vip) -> Self {
        vip.0
    }
}

impl FromStr for Vip {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        text.trim()
            .parse::<IpAddr>()
            .map(Self::new)
            .map_err(|_| IdError::NotAnAddress { value: text.chars().take(64).collect() })
    }
}

impl fmt::Display for Vip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Vip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests;
