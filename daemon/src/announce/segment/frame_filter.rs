//! Which frames reach our sockets, as programs for the kernel (classic BPF).
//!
//! A filter is a list of rules: a frame is taken if every test of one rule holds. Offsets are
//! those of an untagged Ethernet frame, drawn in `purelb_wire`: the kernel has taken a VLAN
//! tag off before it hands a frame to a socket of its protocol.

use socket2::SockFilter;

use super::packet_socket::FRAME_ROOM;

/// To us, to everybody, to a group; more are frames for others, and our own.
const PACKET_HOST: u32 = 0;
const PACKET_OTHERHOST: u32 = 3;

const ARP_REQUEST: u32 = 1;
const ARP_REPLY: u32 = 2;
const PROTOCOL_ICMP: u32 = 1;
const NEXT_HEADER_ICMPV6: u32 = 58;
const ICMP_ECHO_REPLY: u32 = 0;
const ICMPV6_ECHO_REPLY: u32 = 129;
const ICMPV6_SOLICITATION: u32 = 135;
const ICMPV6_ADVERTISEMENT: u32 = 136;

const ARP_OPERATION: Value = Value::Half(20);
const ARP_SENDER: Value = Value::Word(28);
const ARP_TARGET: Value = Value::Word(38);
const IPV4_FRAGMENT: Value = Value::Half(20);
const IPV4_PROTOCOL: Value = Value::Byte(23);
const ICMP_TYPE: Value = Value::ByteBehindIpv4(0);
const ICMP_ECHO_ID: Value = Value::HalfBehindIpv4(4);
const IPV6_NEXT_HEADER: Value = Value::Byte(20);
const IPV6_SOURCE: [Value; 4] = [Value::Word(22), Value::Word(26), Value::Word(30), Value::Word(34)];
const ICMPV6_TYPE: Value = Value::Byte(54);
const ICMPV6_ECHO_ID: Value = Value::Half(58);

/// Something in, or said of, a frame.
#[derive(Clone, Copy, Debug)]
enum Value {
    /// To whom the frame is, as the kernel sees it.
    PacketType,
    Byte(u32),
    Half(u32),
    Word(u32),
    /// Behind the IPv4 header, whose length is in it.
    ByteBehindIpv4(u32),
    HalfBehindIpv4(u32),
}

#[derive(Clone, Copy, Debug)]
enum FrameTest {
    Is(Value, u32),
    IsNot(Value, u32),
    Below(Value, u32),
    /// None of these bits is set.
    Without(Value, u32),
    Same(Value, Value),
    Differ(Value, Value),
}

use FrameTest::{Below, Differ, Is, IsNot, Same, Without};

const FOR_US: FrameTest = Is(Value::PacketType, PACKET_HOST);
const HEARD: FrameTest = Below(Value::PacketType, PACKET_OTHERHOST);
const TO_ALL: [FrameTest; 2] = [HEARD, IsNot(Value::PacketType, PACKET_HOST)];

/// What everybody is told: announcements and probes.
pub(super) fn arp_claims() -> Vec<SockFilter> {
    compile(&[
        &[TO_ALL[0], TO_ALL[1], Is(ARP_OPERATION, ARP_REPLY)],
        &[HEARD, Is(ARP_OPERATION, ARP_REQUEST), Is(ARP_SENDER, 0)],
        &[HEARD, Is(ARP_OPERATION, ARP_REQUEST), Same(ARP_SENDER, ARP_TARGET)],
    ])
}

/// Answers to us, and who asks for others.
pub(super) fn arp_rest() -> Vec<SockFilter> {
    compile(&[
        &[FOR_US, Is(ARP_OPERATION, ARP_REPLY)],
        &[HEARD, Is(ARP_OPERATION, ARP_REQUEST), IsNot(ARP_SENDER, 0), Differ(ARP_SENDER, ARP_TARGET)],
    ])
}

/// The kernel's answers to our own echo requests.
pub(super) fn ipv4_rest(echo_id: u16) -> Vec<SockFilter> {
    compile(&[&[
        Is(IPV4_PROTOCOL, PROTOCOL_ICMP),
        FOR_US,
        // Whole packets only.
        Without(IPV4_FRAGMENT, 0x3fff),
        Is(ICMP_TYPE, ICMP_ECHO_REPLY),
        Is(ICMP_ECHO_ID, echo_id.into()),
    ]])
}

pub(super) fn ipv6_claims() -> Vec<SockFilter> {
    let icmp = Is(IPV6_NEXT_HEADER, NEXT_HEADER_ICMPV6);
    let [a, b, c, d] = IPV6_SOURCE.map(|word| Is(word, 0));
    compile(&[
        &[icmp, Is(ICMPV6_TYPE, ICMPV6_ADVERTISEMENT), TO_ALL[0], TO_ALL[1]],
        &[icmp, Is(ICMPV6_TYPE, ICMPV6_SOLICITATION), HEARD, a, b, c, d],
    ])
}

pub(super) fn ipv6_rest(echo_id: u16) -> Vec<SockFilter> {
    let icmp = Is(IPV6_NEXT_HEADER, NEXT_HEADER_ICMPV6);
    compile(&[
        &[icmp, Is(ICMPV6_TYPE, ICMPV6_ADVERTISEMENT), FOR_US],
        // Addresses that hosts ask from begin with something.
        &[icmp, Is(ICMPV6_TYPE, ICMPV6_SOLICITATION), HEARD, IsNot(IPV6_SOURCE[0], 0)],
        &[icmp, Is(ICMPV6_TYPE, ICMPV6_ECHO_REPLY), FOR_US, Is(ICMPV6_ECHO_ID, echo_id.into())],
    ])
}

const LOAD_FOR_COMPARISON: u32 = libc::BPF_MISC | libc::BPF_TAX;

/// A jump of a test that fails: to the next rule.
const NEXT_RULE: u8 = u8::MAX;

fn compile(rules: &[&[FrameTest]]) -> Vec<SockFilter> {
    let mut program = Vec::new();
    for rule in rules {
        let mut part: Vec<Step> = rule.iter().flat_map(|test| test.steps()).collect();
        part.push(Step::plain(libc::BPF_RET | libc::BPF_K, FRAME_ROOM as u32));
        let length = part.len();
        for (at, step) in part.into_iter().enumerate() {
            // Counted from the next instruction.
            let next_rule = u8::try_from(length - at - 1).expect("a rule is short");
            let jump = |to: u8| if to == NEXT_RULE { next_rule } else { to };
            let code = u16::try_from(step.code).expect("codes have eight bits");
            program.push(SockFilter::new(code, jump(step.holds), jump(step.fails), step.operand));
        }
    }
    program.push(SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0));
    program
}

#[derive(Clone, Copy, Debug)]
struct Step {
    code: u32,
    holds: u8,
    fails: u8,
    operand: u32,
}

impl Step {
    fn plain(code: u32, operand: u32) -> Self {
        Self { code, holds: 0, fails: 0, operand }
    }

    /// Goes on to the next instruction if the comparison holds.
    fn require(comparison: u32, operand: u32) -> Self {
        Self { code: libc::BPF_JMP | comparison, holds: 0, fails: NEXT_RULE, operand }
    }

    /// Goes on if it does not.
    fn refuse(comparison: u32, operand: u32) -> Self {
        Self { code: libc::BPF_JMP | comparison, holds: NEXT_RULE, fails: 0, operand }
    }
}

impl FrameTest {
    fn steps(self) -> Vec<Step> {
        let with = |value: Value, step: Step| {
            let mut steps = value.load();
            steps.push(step);
            steps
        };
        let both = |one: Value, other: Value, step: Step| {
            let mut steps = one.load();
            steps.push(Step::plain(LOAD_FOR_COMPARISON, 0));
            steps.extend(with(other, step));
            steps
        };
        match self {
            Is(value, wanted) => with(value, Step::require(libc::BPF_JEQ | libc::BPF_K, wanted)),
            IsNot(value, other) => with(value, Step::refuse(libc::BPF_JEQ | libc::BPF_K, other)),
            Below(value, bound) => with(value, Step::refuse(libc::BPF_JGE | libc::BPF_K, bound)),
            Without(value, bits) => with(value, Step::refuse(libc::BPF_JSET | libc::BPF_K, bits)),
            Same(one, other) => both(one, other, Step::require(libc::BPF_JEQ | libc::BPF_X, 0)),
            Differ(one, other) => both(one, other, Step::refuse(libc::BPF_JEQ | libc::BPF_X, 0)),
        }
    }
}

impl Value {
    /// Into the accumulator. A frame that ends before is not taken.
    fn load(self) -> Vec<Step> {
        let absolute = |size: u32, at: u32| vec![Step::plain(libc::BPF_LD | size | libc::BPF_ABS, at)];
        // The header's length, from its first byte, into the index register.
        let behind_ipv4 = |size: u32, at: u32| {
            let length = Step::plain(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 14);
            vec![length, Step::plain(libc::BPF_LD | size | libc::BPF_IND, 14 + at)]
        };
        match self {
            Self::PacketType => {
                let at = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE).cast_unsigned();
                absolute(libc::BPF_W, at)
            }
            Self::Byte(at) => absolute(libc::BPF_B, at),
            Self::Half(at) => absolute(libc::BPF_H, at),
            Self::Word(at) => absolute(libc::BPF_W, at),
            Self::ByteBehindIpv4(at) => behind_ipv4(libc::BPF_B, at),
            Self::HalfBehindIpv4(at) => behind_ipv4(libc::BPF_H, at),
        }
    }
}
