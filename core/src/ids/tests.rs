use super::*;

#[test]
fn a_mapped_address_is_the_address_it_maps() {
    let mapped: Vip = "::ffff:192.168.1.100".parse().unwrap();
    let plain: Vip = "192.168.1.100".parse().unwrap();
    assert_eq!(mapped, plain);
    assert_eq!(mapped.to_string(), "192.168.1.100");
    assert_eq!(mapped.family(), Family::V4);
}

#[test]
fn ipv6_text_is_canonical() {
    let vip: Vip = "FD00:0001:0:0:0:0:0:00F0".parse().unwrap();
    assert_eq!(vip.to_string(), "fd00:1::f0");
}

#[test]
fn bad_names_say_what_is_wrong() {
    assert_eq!(NodeName::new(""), Err(IdError::Empty { what: "node name" }));
    assert!(matches!(NodeName::new("a b"), Err(IdError::BadCharacter { bad: ' ', .. })));
    assert!(matches!(IfName::new("a-very-long-interface"), Err(IdError::TooLong { max: 15, .. })));
    assert!(NodeName::new(&"n".repeat(254)).is_err());
    assert!("10.0.0.0/24".parse::<Vip>().is_err());
}

#[test]
fn keys_split_into_namespace_and_name() {
    let key = ObjectKey::of("web", "front").unwrap();
    assert_eq!((key.namespace(), key.name()), ("web", "front"));
}
