use super::*;

/// Codes go over the wire, the table of reasons does not: they meet by their names.
#[test]
fn every_reason_is_found_by_its_code() {
    let codes = (1..).map_while(|number| pb::ReasonCode::try_from(number).ok());
    let names: Vec<String> = codes.map(reason_name).collect();
    for kind in ReasonKind::ALL {
        assert!(names.iter().any(|name| name == kind.name()), "{kind:?} in {names:?}");
    }
    assert_eq!(names.len(), ReasonKind::ALL.len());
}

#[test]
fn a_reason_of_a_newer_daemon_is_worth_a_look() {
    assert_eq!(reason_tone(pb::ReasonCode::Unspecified), Some(TextTone::Bad));
    assert_eq!(reason_tone(pb::ReasonCode::Announcing), Some(TextTone::Good));
}
