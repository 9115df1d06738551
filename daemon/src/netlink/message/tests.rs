use netlink_packet_route::address::AddressMessage;
use proptest::prelude::*;
use rtnetlink::packet_core::{NLM_F_ACK, NLMSG_ERROR};

use super::*;

fn error_message(code: i32, flags: u16, rest: &[u8]) -> Vec<u8> {
    let mut body = code.to_ne_bytes().to_vec();
    body.extend_from_slice(rest);
    let length = u32::try_from(HEADER_LEN + body.len()).unwrap();
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(NLMSG_ERROR.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(7_u32.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes
}

fn verdict_of(bytes: &[u8]) -> Result<(), KernelRefusal> {
    acknowledgement(&messages(bytes).next().unwrap())
}

#[test]
fn requests_come_apart_as_they_were_put_together() {
    let mut datagram = Vec::new();
    for seq in [5, 6] {
        let message = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        assert!(NetlinkRequest::new(message, NLM_F_ACK).encode(Mono::ZERO, seq, &mut datagram));
    }
    let seen: Vec<_> = messages(&datagram).map(|m| (m.kind, m.flags, m.seq, m.body.len())).collect();
    let flags = NLM_F_ACK | NLM_F_REQUEST;
    assert_eq!(seen, [(22, flags, 5, 8), (22, flags, 6, 8)]);
}

#[test]
fn a_refusal_carries_the_kernels_explanation() {
    assert_eq!(verdict_of(&error_message(0, NLM_F_CAPPED, &[0; 16])), Ok(()));
    let plain = verdict_of(&error_message(-19, NLM_F_CAPPED, &[0; 16])).unwrap_err();
    assert_eq!((plain.errno, plain.hint), (Errno::ENODEV, None));

    let mut explained = vec![0; 16];
    explained.extend(12_u16.to_ne_bytes());
    explained.extend(ATTR_MESSAGE.to_ne_bytes());
    explained.extend(b"because\0");
    let refused = verdict_of(&error_message(-22, NLM_F_CAPPED | NLM_F_ACK_TLVS, &explained)).unwrap_err();
    assert_eq!(refused.to_string(), "Invalid argument (because)");
}

#[test]
fn a_wrong_length_ends_the_datagram() {
    let good = error_message(0, 0, &[0; 16]);
    let mut short = good.clone();
    short[..4].copy_from_slice(&15_u32.to_ne_bytes());
    assert_eq!(messages(&[good.clone(), short].concat()).count(), 1);
    assert_eq!(messages(&good[..good.len() - 1]).count(), 0);
    assert_eq!(messages(&[]).count(), 0);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for message in messages(&bytes) {
            let _ = (acknowledgement(&message), dump_end(&message));
            let _ = attributes(message.body).count();
        }
        let _ = attributes(&bytes).count();
    }

    #[test]
    fn nor_an_answer_with_any_contents(
        code in any::<i32>(),
        flags in any::<u16>(),
        rest in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let _ = verdict_of(&error_message(code, flags, &rest));
    }
}
