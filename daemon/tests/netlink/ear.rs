//! What tests of asking and hearing have in common: our end of a cable, and the other.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::{LinkAddr, MsgFlags, SockaddrLike, sendto};
use purelb_core::ids::{IfIndex, Vip};
use purelb_core::messages::Input;
use purelb_core::segment::{HardwareAddr, QuestionKind, SegmentQuestion, SegmentReport, SegmentSighting};
use purelb_wire::MacAddr;
use purelbd::announce::{PacketSender, SegmentListener, SegmentStats};
use purelbd::host::clock;
use socket2::{Domain, Socket, Type};

use crate::mirror::Mirror;
use crate::ns::{DEADLINE, Other, addresses_on, index_of, ip, ip_json, name, until};

pub(crate) const STRANGER: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x99]);
/// Each node's own address and one to be asked for, in both families.
pub(crate) const HERE: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
pub(crate) const THERE: [&str; 2] = ["192.0.2.2", "2001:db8::2"];

/// What the daemon's adapters are to the engine.
pub(crate) struct Ear {
    pub(crate) mirror: Mirror,
    pub(crate) sender: PacketSender,
    pub(crate) listener: SegmentListener,
    pub(crate) stats: Arc<SegmentStats>,
    next_id: u64,
}

impl Ear {
    pub(crate) async fn start() -> Self {
        let mirror = Mirror::start().await;
        let links = mirror.monitor.links();
        let stats = Arc::new(SegmentStats::default());
        let listener = SegmentListener::new(links.clone(), stats.clone());
        Self { sender: PacketSender::open(links).unwrap(), mirror, listener, stats, next_id: 1 }
    }

    pub(crate) fn listen(&mut self, interfaces: &[(&str, IfIndex)]) -> Vec<(IfIndex, Result<(), String>)> {
        let wanted: BTreeMap<_, _> = interfaces.iter().map(|(text, index)| (*index, name(text))).collect();
        let mut answers = Vec::new();
        self.listener.listen(wanted, &mut answers);
        listening(answers)
    }

    pub(crate) fn listen_well(&mut self, interface: &str) -> IfIndex {
        let index = index_of(interface);
        assert_eq!(self.listen(&[(interface, index)]), [(index, Ok(()))]);
        index
    }

    pub(crate) fn read(&mut self) -> (Vec<(IfIndex, Result<(), String>)>, Option<SegmentReport>) {
        let mut answers = Vec::new();
        self.listener.read(&mut answers);
        let report = answers.iter().find_map(|input| match input {
            Input::Heard(report) => Some(report.clone()),
            _ => None,
        });
        (listening(answers), report)
    }

    pub(crate) fn question(&mut self, index: IfIndex, kind: QuestionKind, target: &str) -> SegmentQuestion {
        self.next_id += 1;
        SegmentQuestion {
            id: self.next_id,
            index,
            interface: name("a0"),
            target: vip(target),
            kind,
            from: None,
            to: None,
        }
    }

    pub(crate) fn ask(&mut self, question: &SegmentQuestion) -> purelb_core::Mono {
        let Input::Asked { id, result } = self.listener.ask(&self.sender, question) else {
            panic!("not an answer to a question");
        };
        assert_eq!(id, question.id);
        result.unwrap()
    }

    /// Reads until one sighting fits, and gives it back.
    pub(crate) async fn hear(
        &mut self,
        what: &str,
        fits: impl Fn(&SegmentSighting) -> bool,
    ) -> SegmentSighting {
        let since = Instant::now();
        let mut all = Vec::new();
        while since.elapsed() < DEADLINE {
            let report = self.read().1.expect("listening");
            if let Some(found) = report.sightings.iter().find(|one| fits(one)) {
                assert!(found.at <= report.listened_until || found.at <= clock::now(), "{found:?}");
                return found.clone();
            }
            all.extend(report.sightings);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("{what}: not heard within {DEADLINE:?}; heard {all:#?}");
    }
}

pub(crate) fn listening(answers: Vec<Input>) -> Vec<(IfIndex, Result<(), String>)> {
    let only = |input| match input {
        Input::Listening { index, result } => Some((index, result)),
        _ => None,
    };
    answers.into_iter().filter_map(only).collect()
}

pub(crate) fn vip(text: &str) -> Vip {
    text.parse().unwrap()
}

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn mac_of(interface: &str) -> HardwareAddr {
    let shown = ip_json(&format!("link show dev {interface}"));
    shown[0]["address"].as_str().unwrap().parse::<MacAddr>().unwrap().octets()
}

pub(crate) fn mac_there(other: &Other, interface: &'static str) -> HardwareAddr {
    other.run(move || mac_of(interface))
}

/// A host at the other end of a cable, and both have addresses.
pub(crate) async fn neighbour() -> Other {
    let other = Other::new();
    other.cable("a0", "b0");
    // Link-local addresses are announced some time after the start, and wake us.
    ip("link set a0 addrgenmode none");
    ip("-6 addr flush dev a0");
    other.ip("link set b0 addrgenmode none");
    other.ip("-6 addr flush dev b0");
    for (prefix, [here, there]) in [(24, [HERE[0], THERE[0]]), (64, [HERE[1], THERE[1]])] {
        let nodad = if prefix == 64 { "nodad" } else { "" };
        ip(&format!("addr add {here}/{prefix} dev a0 {nodad}"));
        other.ip(&format!("addr add {there}/{prefix} dev b0 {nodad}"));
    }
    plugged_in(&other, "a0").await;
    other
}

/// Until the kernels have noticed, and have taken their addresses: before that they drop what
/// is sent, and say nothing.
pub(crate) async fn plugged_in(other: &Other, interface: &str) {
    let state = |interface: &str| {
        let tentative = addresses_on(interface).iter().any(|one| one["tentative"] == true);
        let state = ip_json(&format!("link show dev {interface}"))[0]["operstate"].clone();
        if tentative { "tentative".into() } else { state }
    };
    until("the cable is plugged in", DEADLINE, || {
        let states = [state(interface), other.run(move || state("b0"))];
        if states.iter().all(|state| state == "UP") { Ok(()) } else { Err(states) }
    })
    .await;
}

/// Raw frames out of the other end.
pub(crate) fn send(other: &Other, interface: &'static str, frames: Vec<Vec<u8>>) {
    other.run(move || send_here(interface, &frames));
}

pub(crate) fn send_here(interface: &str, frames: &[Vec<u8>]) {
    let socket = Socket::new(Domain::PACKET, Type::RAW, None).unwrap();
    let to = link_address(index_of(interface));
    for frame in frames {
        sendto(socket.as_raw_fd(), frame, &to, MsgFlags::empty()).unwrap();
    }
}

/// A frame every 2 ms, by a thread of its own in the calling one's namespace.
pub(crate) fn flood(interface: &str, frame: Vec<u8>, lasting: Duration) -> std::thread::JoinHandle<()> {
    let to = link_address(index_of(interface));
    std::thread::spawn(move || {
        let socket = Socket::new(Domain::PACKET, Type::RAW, None).unwrap();
        let since = Instant::now();
        while since.elapsed() < lasting {
            sendto(socket.as_raw_fd(), &frame, &to, MsgFlags::empty()).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
    })
}

#[allow(unsafe_code)]
pub(crate) fn link_address(index: IfIndex) -> LinkAddr {
    let mut raw = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: index.0.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: a whole `sockaddr_ll` that lives until it has been copied.
    unsafe { LinkAddr::from_raw((&raw mut raw).cast(), Some(length)) }.unwrap()
}
