//! What can be decided about a Service.

use super::facts::ServiceCondition;
use crate::facts::PoolType;
use crate::ids::{Family, ObjectKey, Vip};
use crate::pools::GroupName;

/// What to do about a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// All is as it should be.
    Nothing,
    Write(Box<Change>),
    /// Its group's provider has to be asked first.
    Ask(ProviderQuestion),
}

/// The difference between what a Service has and what it should have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The annotations of ours.
    pub marks: Option<ServiceMarks>,
    /// `re-evaluate` was obeyed and comes off.
    pub evaluated: bool,
    /// The addresses the status should show.
    pub ingress: Option<Vec<Vip>>,
    pub told: Option<ServiceCondition>,
    pub notes: Vec<ServiceEvent>,
    pub tally: AllocationTally,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceMarks {
    Set {
        group: String,
        pool: PoolType,
        skip_ipv6_dad: bool,
    },
    /// The Service is not ours any more.
    Clear,
}

/// For the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationTally {
    pub group: Option<GroupName>,
    pub multi_pool: bool,
    pub partial: bool,
    pub balanced: bool,
    /// Label of a refusal the Service is told for the first time.
    pub refused: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceEventKind {
    AddressAssigned,
    AddressReleased,
    AllocationFailed,
    ConfigurationWarning,
    DeprecationWarning,
}

impl ServiceEventKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AddressAssigned => "AddressAssigned",
            Self::AddressReleased => "AddressReleased",
            Self::AllocationFailed => "AllocationFailed",
            Self::ConfigurationWarning => "ConfigurationWarning",
            Self::DeprecationWarning => "DeprecationWarning",
        }
    }

    pub fn is_warning(self) -> bool {
        !matches!(self, Self::AddressAssigned | Self::AddressReleased)
    }
}

/// An event for the Service's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceEvent {
    pub kind: ServiceEventKind,
    pub message: String,
}

/// What a provider is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderQuestion {
    pub group: GroupName,
    pub service: ObjectKey,
    pub sharing_key: Option<String>,
    /// These very addresses, or
    pub explicit: Vec<Vip>,
    /// one address of each of these families.
    pub families: Vec<Family>,
    /// Nothing at all is worse than one of them.
    pub either: bool,
}
