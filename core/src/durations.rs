//! Durations as people write them, the same in every program, file and object.
//!
//! ```text
//!   duration = number             seconds: 5, 1.5
//!            | (number unit)+     summed up: 250ms, 10s, 1.5s, 1m30s, 2h
//!   number   = digits [ "." digits ]
//!   unit     = "ms" | "s" | "m" | "h"
//! ```
//! Exact down to the nanosecond and without floating point; what is finer is cut off.
//! Nothing that can be typed makes it panic: a number that is too large is refused.

use std::fmt;
use std::time::Duration;

use serde::de::{Error, Visitor};
use serde::{Deserializer, Serializer};
use thiserror::Error;

/// The grammar as a regular expression that Kubernetes schemas take, too.
pub const PATTERN: &str = "^([0-9]+([.][0-9]+)?|([0-9]+([.][0-9]+)?(ms|s|m|h))+)$";

const SECOND: u64 = 1_000_000_000;

/// Five hundred years: a sum of times of this length still fits a clock of nanoseconds.
const LONGEST_HOURS: u64 = 500 * 8766;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotADuration {
    #[error("{0:?} is no duration: write 250ms, 10s, 1.5s, 1m30s or 2h; a number alone is seconds")]
    Words(String),
    /// Of the right form: the schemas let it through.
    #[error("{0:?} is longer than 500 years: write 250ms, 10s, 1.5s, 1m30s or 2h; a number alone is seconds")]
    TooLong(String),
}

/// Reads a duration; blanks around it are passed over.
pub fn parse(text: &str) -> Result<Duration, NotADuration> {
    let nanos = read(text.trim()).ok_or_else(|| NotADuration::Words(text.to_owned()))?;
    let longest = u128::from(LONGEST_HOURS) * u128::from(SECOND) * 3600;
    match u64::try_from(nanos) {
        Ok(fits) if nanos <= longest => Ok(Duration::from_nanos(fits)),
        _ => Err(NotADuration::TooLong(text.to_owned())),
    }
}

/// Nanoseconds; more than any number of ours holds count as the most that one does.
fn read(text: &str) -> Option<u128> {
    let (mut total, mut rest) = (0_u128, text);
    loop {
        let (number, tail) = rest.split_at(rest.find(|c: char| !is_number(c)).unwrap_or(rest.len()));
        let (unit, tail) = tail.split_at(tail.find(is_number).unwrap_or(tail.len()));
        let unit = match unit {
            // Only alone: the 30 of 1m30 could be anything.
            "" if number.len() == text.len() => SECOND,
            "ms" => SECOND / 1000,
            "s" => SECOND,
            "m" => SECOND * 60,
            "h" => SECOND * 3600,
            _ => return None,
        };
        total = total.saturating_add(value(number, unit)?);
        rest = tail;
        if rest.is_empty() {
            return Some(total);
        }
    }
}

fn is_number(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

fn value(number: &str, unit: u64) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole = whole.parse::<u128>().unwrap_or(u128::MAX).saturating_mul(u128::from(unit));
    // Of an hour, so many digits are far below a nanosecond.
    let fraction = &fraction[..fraction.len().min(18)];
    let (part, of) = (fraction.parse::<u128>().ok()?, 10_u128.pow(u32::try_from(fraction.len()).ok()?));
    Some(whole.saturating_add(part * u128::from(unit) / of))
}

/// The shortest form that reads back as the same: `10s`, `250ms`, `1.0005s`.
pub fn text(value: Duration) -> String {
    let nanos = value.as_nanos();
    match nanos {
        _ if nanos.is_multiple_of(u128::from(SECOND)) => format!("{}s", value.as_secs()),
        _ if nanos.is_multiple_of(1_000_000) => format!("{}ms", value.as_millis()),
        _ => {
            let fraction = format!("{:09}", value.subsec_nanos());
            format!("{}.{}s", value.as_secs(), fraction.trim_end_matches('0'))
        }
    }
}

/// For `#[serde(with = "durations")]`.
pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text(*value))
}

/// Words, or a number of seconds.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parse(&words(deserializer)?).map_err(D::Error::custom)
}

/// The words of a setting that may stand there as a number as well: `5` is `"5"`.
pub fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    deserializer.deserialize_any(Words)
}

struct Words;

impl Visitor<'_> for Words {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration: 250ms, 10s, 1.5s, 1m30s or 2h, or a number of seconds")
    }

    fn visit_str<E: Error>(self, words: &str) -> Result<String, E> {
        Ok(words.to_owned())
    }

    fn visit_u64<E: Error>(self, seconds: u64) -> Result<String, E> {
        Ok(seconds.to_string())
    }

    fn visit_i64<E: Error>(self, seconds: i64) -> Result<String, E> {
        Ok(seconds.to_string())
    }

    fn visit_f64<E: Error>(self, seconds: f64) -> Result<String, E> {
        Ok(seconds.to_string())
    }
}

#[cfg(test)]
mod tests;
