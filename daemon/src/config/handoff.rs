//! How long the old owner of an address waits for the new one.

use std::time::Duration;

use purelb_core::config::HandoffTimes;
use purelb_core::durations;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const AUTO: &str = "auto";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Handoff {
    pub deadline: HandoffDeadline,
    #[serde(with = "durations")]
    pub linger: Duration,
}

impl Default for Handoff {
    fn default() -> Self {
        Self { deadline: HandoffDeadline::Auto, linger: HandoffTimes::default().linger }
    }
}

impl Handoff {
    /// In force with a Lease of this duration.
    pub fn times(&self, lease: Duration) -> HandoffTimes {
        let deadline = match self.deadline {
            HandoffDeadline::Auto => HandoffTimes::default().deadline.min(lease / 2),
            HandoffDeadline::Given(deadline) => deadline,
        };
        HandoffTimes { deadline, linger: self.linger }
    }
}

/// A default that fits every Lease: shorter timers alone must be a good configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandoffDeadline {
    /// 5 s, or half of the lease duration if that is shorter.
    #[default]
    Auto,
    Given(Duration),
}

impl Serialize for HandoffDeadline {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str(AUTO),
            Self::Given(deadline) => durations::serialize(deadline, serializer),
        }
    }
}

impl<'de> Deserialize<'de> for HandoffDeadline {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = durations::words(deserializer)?;
        if words.trim() == AUTO {
            return Ok(Self::Auto);
        }
        durations::parse(&words)
            .map(Self::Given)
            .map_err(|error| de::Error::custom(format!("{error}; or write {AUTO}")))
    }
}
