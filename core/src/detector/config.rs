//! How often a segment is asked, and how many silences mean something.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetectorConfig {
    pub enabled: bool,
    /// Between two questions to the same owner.
    pub interval: Duration,
    /// Unanswered questions in a row before the addresses themselves are asked for.
    pub misses: u32,
}

impl Default for DetectorConfig {
    fn default() -> Self {
        Self { enabled: true, interval: Duration::from_millis(100), misses: 3 }
    }
}

const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DetectorConfigError {
    #[error("the interval between two questions, {0:?}, must be from {SHORTEST:?} to {LONGEST:?}")]
    Interval(Duration),
    #[error("{0} unanswered questions: must be from 2 to 20, since a single one may get lost")]
    Misses(u32),
}

impl DetectorConfig {
    pub fn checked(self) -> Result<Self, DetectorConfigError> {
        if !(SHORTEST..=LONGEST).contains(&self.interval) {
            return Err(DetectorConfigError::Interval(self.interval));
        }
        if !(2..=20).contains(&self.misses) {
            return Err(DetectorConfigError::Misses(self.misses));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_the_bounds_are_said() {
        DetectorConfig::default().checked().unwrap();
        let with = |millis, misses| {
            let interval = Duration::from_millis(millis);
            DetectorConfig { interval, misses, ..DetectorConfig::default() }
                .checked()
                .map_err(|e| e.to_string())
        };
        assert!(with(50, 2).is_ok() && with(10_000, 20).is_ok());
        assert!(with(49, 3).unwrap_err().contains("from 50ms to 10s"));
        assert!(with(100, 1).unwrap_err().contains("from 2 to 20"));
    }
}
