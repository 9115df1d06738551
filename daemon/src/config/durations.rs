//! Durations as people write them: `250ms`, `10s`, `1m30s`, `2h`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de::Error};

pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text(*value))
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text)
        .ok_or_else(|| D::Error::custom(format!("{text:?} is no duration; write 250ms, 10s or 1m30s")))
}

fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let count: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let millis = match &rest[..letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        sum = sum.checked_add(Duration::from_millis(count.checked_mul(millis)?))?;
        rest = &rest[letters..];
    }
    Some(sum)
}

fn text(value: Duration) -> String {
    let millis = value.as_millis();
    match millis {
        0 => "0s".to_owned(),
        _ if !millis.is_multiple_of(1000) => format!("{millis}ms"),
        _ => format!("{}s", millis / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (words, millis) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("1m30s", 90_000),
            ("2h", 7_200_000),
            ("0s", 0),
            (" 5s ", 5_000),
        ] {
            assert_eq!(parse(words), Some(Duration::from_millis(millis)), "{words}");
        }
        for words in ["", "10", "s", "-1s", "1.5s", "10 s", "99999999999999999999s", "18446744073709551615h"]
        {
            assert_eq!(parse(words), None, "{words}");
        }
    }

    proptest::proptest! {
        #[test]
        fn reads_what_it_writes(millis in 0u64..10_000_000_000) {
            let value = Duration::from_millis(millis);
            proptest::prop_assert_eq!(parse(&text(value)), Some(value));
        }

        #[test]
        fn never_panics(words in "\\PC{0,20}") {
            let _ = parse(&words);
        }
    }
}
