//! Why a Service does not get what it asks for, in words its owner understands.

use thiserror::Error;

use crate::ids::{ObjectKey, Vip};
use crate::pools::{AllocateError, GroupName};

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error(transparent)]
    Pools(#[from] AllocateError),
    #[error("{0}")]
    BadAddresses(String),
    #[error("address {ip} is not in a pool of any ServiceGroup")]
    AddressNowhere { ip: Vip },
    #[error("purelb.io/service-group: {text:?} is not the name of a ServiceGroup")]
    BadGroupName { text: String },
    #[error("ServiceGroup {group} is not in use: {problem}")]
    GroupInvalid { group: GroupName, problem: String },
    #[error(
        "ServiceGroup {group} is only for the namespaces it lists, and {namespace} is none of them: use another group"
    )]
    GroupClosed { group: GroupName, namespace: String },
    #[error("namespace {namespace} uses ServiceGroup {bound_to} only; ServiceGroup {group} is not for it")]
    NamespaceBound { namespace: String, group: GroupName, bound_to: GroupName },
    #[error("the address provider of ServiceGroup {group} gave nothing: {problem}")]
    Provider { group: GroupName, problem: String },
    #[error("the address provider of ServiceGroup {group} gave {ip}, which Service {by} holds")]
    ProviderGaveHeld { group: GroupName, ip: Vip, by: ObjectKey },
}

impl Refusal {
    /// One word out of a fixed list: fit for a metric's label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Pools(error) => error.reason(),
            Self::BadAddresses(_) => "bad_addresses",
            Self::AddressNowhere { .. } => "out_of_pool",
            Self::BadGroupName { .. } => "bad_group_name",
            Self::GroupInvalid { .. } => "group_invalid",
            Self::GroupClosed { .. } => "group_closed",
            Self::NamespaceBound { .. } => "namespace_bound",
            Self::Provider { .. } => "provider",
            Self::ProviderGaveHeld { .. } => "provider_gave_held",
        }
    }

    /// The same as one CamelCase word, for a condition.
    pub fn reason(&self) -> String {
        let mut word = String::new();
        for part in self.label().split('_') {
            let mut letters = part.chars();
            word.extend(letters.next().map(|first| first.to_ascii_uppercase()));
            word.push_str(letters.as_str());
        }
        word
    }

    /// The group that refused, where one did.
    pub fn group(&self) -> Option<&GroupName> {
        match self {
            Self::Pools(error) => match error {
                AllocateError::NoSuchGroup { .. }
                | AllocateError::InUse { .. }
                | AllocateError::PortTaken { .. }
                | AllocateError::OtherPods { .. }
                | AllocateError::WrongFamily { .. }
                | AllocateError::Excluded { .. }
                | AllocateError::TwoOfOneFamily { .. } => None,
                AllocateError::GroupRefused { group, .. }
                | AllocateError::NoRange { group, .. }
                | AllocateError::NoEligibleRange { group, .. }
                | AllocateError::Exhausted { group, .. }
                | AllocateError::OutOfPool { group, .. } => Some(group),
            },
            Self::BadAddresses(_) | Self::AddressNowhere { .. } | Self::BadGroupName { .. } => None,
            Self::GroupInvalid { group, .. }
            | Self::GroupClosed { group, .. }
            | Self::NamespaceBound { group, .. }
            | Self::Provider { group, .. }
            | Self::ProviderGaveHeld { group, .. } => Some(group),
        }
    }
}
