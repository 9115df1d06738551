use proptest::prelude::*;

use super::*;
use crate::ethernet::EthernetFrame;
use crate::{ClaimKind, FrameClass, classify};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);
const OWNER: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn mk_question(target: &str, from: Option<&str>, to: Option<MacAddr>) -> AddressQuestion {
    AddressQuestion { target: ip(target), from: from.map(ip), mac: MAC, to }
}

fn destination(frame: &[u8]) -> MacAddr {
    EthernetFrame::parse(frame).unwrap().destination
}

#[test]
fn a_probe_claims_nothing() {
    for target in ["192.0.2.9", "2001:db8::12:3456"] {
        for to in [None, Some(OWNER)] {
            let frame = mk_question(target, None, to).resolve_frame().unwrap();
            assert_eq!(classify(&frame), FrameClass::Probe { ip: ip(target), mac: MAC });
        }
    }
}

#[test]
fn a_question_from_an_address_claims_that_one_alone() {
    let asked =
        |target, from, to| classify(&mk_question(target, Some(from), to).resolve_frame().unwrap()).claim();
    for to in [None, Some(OWNER)] {
        let claim = asked("192.0.2.9", "192.0.2.1", to).unwrap();
        assert_eq!((claim.ip, claim.kind), (ip("192.0.2.1"), ClaimKind::ArpRequestSender));
        let claim = asked("2001:db8::9", "2001:db8::1", to).unwrap();
        assert_eq!(
            (claim.ip, claim.mac, claim.kind),
            (ip("2001:db8::1"), MAC, ClaimKind::SolicitationSource)
        );
    }
}

#[test]
fn the_frame_goes_to_one_host_or_to_those_that_may_have_the_address() {
    let group = MacAddr([0x33, 0x33, 0xff, 0x12, 0x34, 0x56]);
    for (target, from, all) in
        [("192.0.2.9", "192.0.2.1", MacAddr::BROADCAST), ("2001:db8::12:3456", "2001:db8::1", group)]
    {
        for (to, wanted) in [(None, all), (Some(OWNER), OWNER)] {
            let question = mk_question(target, Some(from), to);
            assert_eq!(destination(&question.resolve_frame().unwrap()), wanted);
            assert_eq!(destination(&question.echo_frame(1, 2, b"").unwrap()), wanted);
        }
    }
    let frame = mk_question("2001:db8::12:3456", None, Some(OWNER)).resolve_frame().unwrap();
    let message = NdpMessage::parse(&frame[14..]).unwrap();
    assert_eq!((destination(&frame), message.destination), (OWNER, "ff02::1:ff12:3456".parse().unwrap()));
}

#[test]
fn what_cannot_be_asked_says_why() {
    let echo = |target, from| mk_question(target, from, None).echo_frame(1, 1, b"").unwrap_err();
    assert_eq!(echo("192.0.2.1", None), QuestionError::NoSource);
    let other = QuestionError::OtherFamily { from: ip("192.0.2.1"), target: ip("2001:db8::1") };
    assert_eq!(echo("2001:db8::1", Some("192.0.2.1")), other);
    for bad in ["0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "ff02::1"] {
        let refused = mk_question(bad, None, None).resolve_frame().unwrap_err();
        assert_eq!(refused, QuestionError::NotOneHost(ip(bad)));
    }
    let long = [0; echo::LONGEST_PAYLOAD + 1];
    let question = mk_question("192.0.2.1", Some("192.0.2.2"), None);
    assert_eq!(question.echo_frame(1, 1, &long), Err(QuestionError::TooLong));
}

proptest! {
    #[test]
    fn any_question_is_asked_or_refused(target: IpAddr, from: Option<IpAddr>, mac: [u8; 6], to: Option<[u8; 6]>) {
        let question = AddressQuestion { target, from, mac: MacAddr(mac), to: to.map(MacAddr) };
        if let Ok(frame) = question.resolve_frame() {
            let wanted = from.unwrap_or(target);
            match classify(&frame) {
                FrameClass::Probe { ip, mac } => prop_assert_eq!((from, ip, mac), (None, wanted, question.mac)),
                FrameClass::Claim(claim) => prop_assert_eq!((claim.ip, claim.mac), (wanted, question.mac)),
                FrameClass::Other => prop_assert!(false, "nobody understands the question"),
            }
        }
        if let Ok(frame) = question.echo_frame(3, 4, b"x") {
            let echo = EchoMessage::parse(&frame[14..]).unwrap();
            prop_assert_eq!((echo.destination, Some(echo.source), echo.hops), (target, from, 1));
        }
    }
}
