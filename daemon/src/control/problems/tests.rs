use purelb_core::config::EngineConfig;
use purelb_core::{Engine, InstanceId, Mono, NodeName};

use super::*;

const NOW: i64 = 1_900_000_000;
const YEAR: i64 = 365 * SECONDS_PER_DAY;

fn mk_snapshot() -> Snapshot {
    let config = EngineConfig::new(NodeName::new("a").unwrap(), InstanceId::new("one").unwrap());
    Engine::new(config).snapshot(Mono::ZERO)
}

/// What is said of credentials of a year of which so much is left.
fn told(left: i64, trouble: Option<&str>) -> Option<(S, String, String)> {
    let api = ControlTrouble {
        credentials: Some((NOW + left, YEAR)),
        credentials_trouble: trouble.map(str::to_owned),
        ..ControlTrouble::default()
    };
    let found = find_problems(&mk_snapshot(), &api, NOW).into_iter().find(|p| p.field == "kubernetes")?;
    Some((found.severity(), found.message, found.hint))
}

#[test]
fn credentials_that_are_about_to_end_are_a_problem() {
    let percent = |n: i64| YEAR / 100 * n;
    let table = [
        (percent(100), None, None),
        // The daemon asks for the next ones with a fifth left: no trouble yet.
        (percent(20), Some("forbidden"), None),
        (percent(15), Some("forbidden"), None),
        (percent(14), None, Some((S::Warning, "the credentials for the API server end in 1226 h"))),
        (
            percent(14),
            Some("forbidden"),
            Some((S::Warning, "the credentials for the API server end in 1226 h; no next ones: forbidden")),
        ),
        (percent(5), None, Some((S::Warning, "the credentials for the API server end in 438 h"))),
        (percent(4), None, Some((S::Critical, "the credentials for the API server end in 350 h"))),
        (1, None, Some((S::Critical, "the credentials for the API server end in 0 h"))),
        (0, None, Some((S::Critical, "the credentials for the API server have ended"))),
        (
            -SECONDS_PER_DAY,
            Some("unauthorized"),
            Some((S::Critical, "the credentials for the API server have ended; no next ones: unauthorized")),
        ),
    ];
    for (left, trouble, expected) in table {
        let told = told(left, trouble);
        let said = told.as_ref().map(|(severity, message, _)| (*severity, message.as_str()));
        assert_eq!(said, expected, "{left} s left, {trouble:?}");
    }
    // What a packaged machine has, and no page of the source tree.
    let (_, _, hint) = told(0, None).unwrap();
    assert!(hint.contains("--token-only") && hint.contains("/etc/purelb/token"), "{hint}");
    assert!(!hint.contains("docs/"), "{hint}");
    assert_eq!(
        find_problems(&mk_snapshot(), &ControlTrouble::default(), NOW)
            .iter()
            .filter(|p| p.field == "kubernetes")
            .count(),
        0
    );
}
