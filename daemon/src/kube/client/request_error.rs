//! Why a request failed, in the few kinds we act on.

use std::error::Error as _;
use std::time::Duration;

use kube::core::Status;
use thiserror::Error;

use crate::kube::counters::KubeCounters;

/// A server that asks for more patience than this is not obeyed: a state that is
/// minutes old helps nobody.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);
/// Messages end up in logs and events.
const LONGEST_MESSAGE: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    #[error("no answer in time")]
    Timeout,
    /// No connection, or it broke.
    #[error("{0}")]
    Unreachable(String),
    #[error("{code} {reason}: {message}")]
    Api { code: u16, reason: String, message: String, retry_after: Option<Duration> },
    /// An answer that is none.
    #[error("unreadable answer: {0}")]
    Unreadable(String),
}

impl RequestError {
    pub(crate) fn code(&self) -> u16 {
        match self {
            Self::Api { code, .. } => *code,
            _ => 0,
        }
    }

    /// Another endpoint, or another connection, may do better.
    pub(crate) fn is_endpoint_fault(&self) -> bool {
        match self {
            Self::Timeout | Self::Unreachable(_) | Self::Unreadable(_) => true,
            Self::Api { code, .. } => *code >= 500,
        }
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Api { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    pub(crate) fn count_in(&self, counters: &KubeCounters) {
        match self {
            Self::Timeout => counters.timeouts.add(),
            Self::Unreachable(_) => counters.unreachable.add(),
            Self::Api { code: 401, .. } => counters.unauthorized.add(),
            Self::Api { code: 403, .. } => counters.forbidden.add(),
            Self::Api { code: 409, .. } => counters.conflicts.add(),
            Self::Api { code: 429, .. } => counters.throttled.add(),
            Self::Api { code: 500.., .. } => counters.server_errors.add(),
            Self::Api { .. } | Self::Unreadable(_) => counters.other_errors.add(),
        }
    }

    pub(crate) fn from_status(code: u16, status: &Status) -> Self {
        let seconds = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
        let wait = Duration::from_secs(u64::from(seconds)).min(LONGEST_RETRY_AFTER);
        Self::Api {
            code,
            reason: clip(&status.reason),
            message: clip(&status.message),
            retry_after: (!wait.is_zero()).then_some(wait),
        }
    }
}

impl From<kube::Error> for RequestError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::from_status(status.code, &status),
            kube::Error::SerdeError(e) => Self::Unreadable(clip(&e.to_string())),
            kube::Error::FromUtf8(e) => Self::Unreadable(clip(&e.to_string())),
            other => Self::Unreachable(error_chain(&other)),
        }
    }
}

pub(crate) fn clip(text: &str) -> String {
    text.chars().take(LONGEST_MESSAGE).collect()
}

/// The outermost error alone ("client error (Connect)") does not say what to do.
fn error_chain(error: &kube::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let words = inner.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        source = inner.source();
    }
    clip(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_bounded_and_the_endpoint_is_blamed_for_its_own_errors_only() {
        let text = r#"{"code": 429, "details": {"retryAfterSeconds": 86400}}"#;
        let status: Status = serde_json::from_str(text).expect("a status");
        let failure = RequestError::from_status(429, &status);
        assert_eq!(failure.retry_after(), Some(LONGEST_RETRY_AFTER));
        assert!(!failure.is_endpoint_fault());
        assert!(RequestError::from_status(503, &Status::default()).is_endpoint_fault());
        assert!(!RequestError::from_status(409, &Status::default()).is_endpoint_fault());
    }

    #[test]
    fn a_hostile_message_stays_short() {
        let status = Status { message: "é".repeat(100_000), ..Status::default() };
        let RequestError::Api { message, .. } = RequestError::from_status(400, &status) else {
            panic!("a status")
        };
        assert_eq!(message.chars().count(), LONGEST_MESSAGE);
    }
}
