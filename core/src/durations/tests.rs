use proptest::prelude::*;

use super::*;

#[test]
fn reads_what_people_write() {
    for (words, nanos) in [
        ("5", 5_000_000_000),
        ("0", 0),
        ("1.5", 1_500_000_000),
        ("250ms", 250_000_000),
        ("10s", 10_000_000_000),
        ("1.5s", 1_500_000_000),
        ("0.0001ms", 100),
        ("1s1ms", 1_001_000_000),
        ("1m30s", 90_000_000_000),
        ("2h", 7_200_000_000_000),
        ("0.1h", 360_000_000_000),
        ("8760h", 31_536_000_000_000_000),
        (" 5s ", 5_000_000_000),
        // Finer than a nanosecond.
        ("1.0000000019s", 1_000_000_001),
    ] {
        assert_eq!(parse(words), Ok(Duration::from_nanos(nanos)), "{words}");
    }
}

#[test]
fn refuses_everything_else_with_the_words_in_it() {
    for words in [
        "",
        "s",
        ".",
        ".5s",
        "5.s",
        "5.",
        "1..2s",
        "-1s",
        "+1s",
        "1e3s",
        "1 s",
        "1m30",
        "10S",
        "1d",
        "1us",
        "١s",
        "99999999999999999999s",
        "18446744073709551615h",
        "9223372036854775807m",
    ] {
        let refused = parse(words).unwrap_err().to_string();
        assert!(refused.contains(&format!("{words:?}")) && refused.contains("10s"), "{refused}");
    }
}

#[test]
fn what_no_clock_can_hold_is_too_long() {
    assert!(parse("4383000h").is_ok());
    for words in ["4383001h", "4383000h1ms", "5124100h", "99999999999999999999999999999999999999999s"] {
        assert_eq!(parse(words), Err(NotADuration::TooLong(words.to_owned())));
    }
}

proptest! {
    #[test]
    fn reads_what_it_writes(seconds in 0_u64..10_000_000_000, nanos in 0_u32..1_000_000_000, whole in any::<bool>()) {
        let value = Duration::new(seconds, if whole { nanos / 1_000_000 * 1_000_000 } else { nanos });
        prop_assert_eq!(parse(&text(value)), Ok(value));
    }

    /// Which unit it is said in makes no difference.
    #[test]
    fn one_length_in_all_units(millis in 0_u64..1_000_000_000_000) {
        let value = Ok(Duration::from_millis(millis));
        let (whole, rest) = (millis / 1000, millis % 1000);
        prop_assert_eq!(parse(&format!("{millis}ms")), value.clone());
        prop_assert_eq!(parse(&format!("{whole}.{rest:03}s")), value.clone());
        prop_assert_eq!(parse(&format!("{whole}.{rest:03}")), value.clone());
        prop_assert_eq!(parse(&format!("{whole}s{rest}ms")), value.clone());
        let (minutes, seconds) = (whole / 60, whole % 60);
        prop_assert_eq!(parse(&format!("{}h{}m{seconds}s{rest}ms", minutes / 60, minutes % 60)), value);
    }

    /// The schema lets through what the programs read, and nothing else but numbers that
    /// no clock can hold.
    #[test]
    fn the_pattern_is_the_grammar(words in "[0-9.msh]{0,8}|([0-9]{1,3}([.][0-9]{1,3})?(ms|s|m|h)?){1,3}|[0-9]{6,30}(ms|s|m|h)") {
        let pattern = regex::Regex::new(PATTERN).unwrap();
        let of_the_form = !matches!(parse(&words), Err(NotADuration::Words(_)));
        prop_assert_eq!(pattern.is_match(&words), of_the_form, "{}", words);
    }

    #[test]
    fn never_panics(words in "\\PC{0,30}|[0-9]{1,40}(\\.[0-9]{0,40})?(ms|s|m|h)") {
        let _ = parse(&words);
    }
}
