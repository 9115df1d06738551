//! What happens inside the lab's hosts: addresses, neighbours, processes, power, and
//! the way to the API server and back.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use ipnet::IpNet;
use purelb_kit::lab::{
    API_ADDRESS, API_PORT, AddressFlags, Change, Cut, Lab, NeighbourState, NewAddress, Node, Probing,
};
use purelb_kit::wait::eventually;
use purelb_wire::MacAddr;

const WITHIN: Duration = Duration::from_secs(10);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn mk_lab() -> Result<Lab> {
    Lab::builder()
        .segment("lan", ["192.0.2.0/24", "2001:db8:1::/64"])
        .node("a", ["lan"])
        .node("b", ["lan"])
        .client("c", ["lan"])
        .build()
}

fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[tokio::test]
async fn addresses_show_flags_lifetimes_and_the_mark() -> Result<()> {
    let lab = mk_lab()?;
    let a = lab.node("a");
    let marked = NewAddress::new(net("192.0.2.100/24")).lifetimes(300, 200).proto(0x50);
    a.add_address("eth0", &marked.clone().flags(AddressFlags::Noprefixroute))?;
    let held = a.address(ip("192.0.2.100"))?.context("the address is there")?;
    assert_eq!((held.net, held.dev.as_str(), held.proto), (net("192.0.2.100/24"), "eth0", Some(0x50)));
    assert!(
        held.flags.contains(AddressFlags::Noprefixroute) && !held.flags.contains(AddressFlags::Permanent)
    );
    let near = |left: Option<Duration>, seconds: u64| {
        left.is_some_and(|left| (seconds - 5..=seconds).contains(&left.as_secs()))
    };
    assert!(near(held.valid, 300) && near(held.preferred, 200), "{held:?}");

    assert!(a.add_address("eth0", &marked).is_err(), "it is there already");
    a.add_address("eth0", &NewAddress::new(net("192.0.2.100/24")).lifetimes(900, 0).proto(0x51).replace())?;
    let held = a.address(ip("192.0.2.100"))?.context("the address is there")?;
    assert!(near(held.valid, 900) && held.flags.contains(AddressFlags::Deprecated), "{held:?}");

    let own = a.address(ip("192.0.2.11"))?.context("the node's own address")?;
    assert_eq!((own.valid, own.proto), (None, None));
    assert!(own.flags.contains(AddressFlags::Permanent));
    let text = format!("{:#}", a.del_address("eth0", ip("192.0.2.200")).unwrap_err());
    assert!(text.contains("does not hold 192.0.2.200"), "{text}");
    Ok(())
}

#[tokio::test]
async fn an_address_that_expires_leaves_an_event() -> Result<()> {
    let lab = mk_lab()?;
    let a = lab.node("a");
    let vip = ip("192.0.2.100");
    let watch = lab.watch_addresses()?;
    a.add_address("eth0", &NewAddress::new(net("192.0.2.100/24")).lifetimes(1, 1).proto(0x50))?;
    let events = eventually("the kernel to remove it", WITHIN, || {
        let events = watch.events(vip);
        async {
            if events.last().is_some_and(|e| e.change == Change::Removed) { Ok(events) } else { Err(events) }
        }
    })
    .await?;
    let (first, last) = (&events[0], events.last().context("more than one")?);
    assert_eq!((first.change, first.host.as_str(), first.address.dev.as_str()), (Change::Set, "a", "eth0"));
    assert_eq!(first.address.proto, Some(0x50));
    assert!(last.at.since(first.at) >= Duration::from_millis(900), "not before its time");
    assert_eq!(a.address(vip)?, None);
    assert!(watch.owners_timeline(vip)?.owners().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_clients_cache_can_be_spoiled_read_and_mended() -> Result<()> {
    let lab = mk_lab()?;
    let (a, c) = (lab.node("a"), lab.node("c"));
    for vip in [net("192.0.2.100/24"), net("2001:db8:1::100/64")] {
        let wrong = MacAddr([2, 0, 0, 0, 0, 0x66]);
        a.add_address("eth0", &NewAddress::new(vip).no_dad())?;
        let vip = vip.addr();
        c.set_neighbour("eth0", vip, wrong, NeighbourState::Stale)?;
        let entry = c.neighbour(vip)?.context("the entry just made")?;
        assert_eq!(
            (entry.mac, entry.state, entry.dev.as_str()),
            (Some(wrong), NeighbourState::Stale, "eth0")
        );
        // The announcement is believed over the wrong entry.
        a.announce("eth0", vip)?;
        eventually("the announcement to mend the entry", WITHIN, || {
            let entry = c.neighbour(vip);
            let right = a.ports()[0].mac;
            async move {
                match entry {
                    Ok(Some(entry)) if entry.mac == Some(right) => Ok(()),
                    other => Err(other),
                }
            }
        })
        .await?;
        c.flush_neighbours()?;
        assert_eq!(c.neighbour(vip)?.and_then(|entry| entry.mac), None);
    }
    Ok(())
}

#[tokio::test]
async fn processes_live_and_die_inside_their_node() -> Result<()> {
    let lab = mk_lab()?;
    let a = lab.node("a");
    let script = "trap 'echo asked to end; exit 7' TERM; ip -o addr show dev eth0; echo up; while :; do sleep 0.05; done";
    let mut process = a.spawn("daemon", sh(script))?;
    let ups = |wished: usize, log: String| async move {
        if log.matches("up\n").count() == wished { Ok(()) } else { Err(log) }
    };
    eventually("the first start", WITHIN, || ups(1, process.log())).await?;
    assert!(process.log().contains("192.0.2.11/24"), "it sees its node's interface: {}", process.log());

    let pid = process.pid();
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    process.stop()?;
    assert!(state().contains(") T "), "stopped when it says so: {}", state());
    process.resume()?;
    eventually("SIGCONT", WITHIN, || async { if state().contains(") T ") { Err(state()) } else { Ok(()) } })
        .await?;

    process.restart()?;
    assert_ne!(process.pid(), pid);
    assert_eq!(state(), "", "the first one is gone");
    eventually("the second start", WITHIN, || ups(2, process.log())).await?;
    let ended = process.terminate(WITHIN)?;
    assert_eq!(ended.code(), Some(7));
    assert!(process.log().ends_with("asked to end\n"), "{}", process.log());
    assert!(!process.is_running());
    process.kill()?;

    let refused = format!("{:#}", a.spawn("none", Command::new("/no/such/program")).unwrap_err());
    assert!(refused.contains("/no/such/program"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn power_off_is_silent_and_power_on_is_a_fresh_boot() -> Result<()> {
    let lab = mk_lab()?;
    let (a, c) = (lab.node("a"), lab.node("c"));
    let vip = ip("192.0.2.100");
    let (kernel, wire) = (lab.watch_addresses()?, lab.observe()?);
    a.add("eth0", net("192.0.2.100/24"))?;
    let process = a.spawn("daemon", sh("exec sleep 1000"))?;
    let prober = c.probe(Probing::udp([vip]).timeout(Duration::from_millis(100)))?;
    let answers = |wished: u64| {
        let report = prober.report();
        async move { if report.vip(vip).answered >= wished { Ok(()) } else { Err(report.to_string()) } }
    };
    eventually("answers", WITHIN, || answers(50)).await?;

    a.power_off()?;
    let off_at = purelb_kit::lab::now();
    assert!(process.wait(WITHIN)?.code().is_none(), "killed by a signal");
    assert!(a.addresses()?.iter().all(|address| address.dev == "lo"), "{:?}", a.addresses()?);
    let timeline = eventually("the end of ownership", WITHIN, || {
        let timeline = kernel.owners_timeline(vip);
        async { timeline.ok().filter(|t| t.owners().is_empty() && t.spans.len() > 1).ok_or("still held") }
    })
    .await?;
    assert!(timeline.spans.last().context("spans")?.from <= off_at);

    a.power_on()?;
    assert_eq!(a.address(vip)?, None, "VIPs do not survive");
    assert!(a.address(ip("192.0.2.11"))?.is_some() && a.address(ip("2001:db8:1::b"))?.is_some());
    a.add("eth0", net("192.0.2.100/24"))?;
    a.announce("eth0", vip)?;
    let before = prober.report().vip(vip).answered;
    eventually("answers after the boot", WITHIN, || answers(before + 50)).await?;
    assert!(wire.claims(vip).iter().all(|claim| claim.host.as_deref() == Some("a")), "it kept its MAC");
    Ok(())
}

/// A server that sends back what it gets, with a word in front.
fn mk_echo(word: &'static str) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = listener.local_addr()?;
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { return };
            std::thread::spawn(move || {
                let mut buffer = [0; 64];
                while let Ok(length @ 1..) = client.read(&mut buffer) {
                    let _ = client.write_all(word.as_bytes());
                    let _ = client.write_all(&buffer[..length]);
                }
            });
        }
    });
    Ok(at)
}

/// How long silence has to last to be called one.
const SILENCE: Duration = Duration::from_millis(300);

/// A connection that works is given the patience of a busy machine; one that must not
/// work gets as long as a silence.
fn dial_within(node: &Node, patience: Duration) -> Result<TcpStream> {
    let to = SocketAddr::from((API_ADDRESS, API_PORT));
    let stream = node.enter(|| TcpStream::connect_timeout(&to, patience))??;
    stream.set_read_timeout(Some(patience))?;
    Ok(stream)
}

fn dial_api(node: &Node) -> Result<TcpStream> {
    dial_within(node, WITHIN)
}

fn ask(stream: &mut TcpStream, text: &str) -> std::io::Result<String> {
    stream.write_all(text.as_bytes())?;
    let mut buffer = [0; 64];
    let mut got = Vec::new();
    while !got.ends_with(text.as_bytes()) {
        match stream.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            length => got.extend(&buffer[..length]),
        }
    }
    Ok(String::from_utf8_lossy(&got).into_owned())
}

#[tokio::test]
async fn one_node_can_be_cut_off_the_api_and_its_connections_stall() -> Result<()> {
    let lab = mk_lab()?;
    let (a, b) = (lab.node("a"), lab.node("b"));
    assert!(dial_within(&a, SILENCE).and_then(|mut s| Ok(ask(&mut s, "x")?)).is_err(), "no API server yet");
    lab.set_api(mk_echo("api:")?);
    let mut of_a = dial_api(&a)?;
    let mut of_b = dial_api(&b)?;
    assert_eq!(ask(&mut of_a, "one")?, "api:one");

    a.cut(Cut::Api)?;
    of_a.set_read_timeout(Some(SILENCE))?;
    let stalled = ask(&mut of_a, "two").unwrap_err();
    assert_eq!(stalled.kind(), std::io::ErrorKind::WouldBlock, "silence, not a reset: {stalled}");
    assert!(dial_within(&a, SILENCE).is_err(), "nor does a new one come through");
    assert_eq!(ask(&mut of_b, "two")?, "api:two", "others are not touched");

    // The way from the test to the node is another one and stays.
    let listener = a.enter(|| TcpListener::bind("0.0.0.0:0"))??;
    let exposed = a.expose(listener.local_addr()?.port())?;
    std::thread::spawn(move || {
        if let Ok((mut client, _)) = listener.accept() {
            let _ = client.write_all(b"from inside");
        }
    });
    let mut text = String::new();
    TcpStream::connect(exposed)?.read_to_string(&mut text)?;
    assert_eq!(text, "from inside");

    a.heal(&Cut::Api)?;
    // What was sent during the cut arrives: the kernel tries again by itself.
    of_a.set_read_timeout(Some(WITHIN))?;
    let mut late = [0; 7];
    of_a.read_exact(&mut late)?;
    assert_eq!(&late, b"api:two");

    a.set_api(mk_echo("own:")?)?;
    assert_eq!(ask(&mut dial_api(&a)?, "three")?, "own:three");
    assert_eq!(ask(&mut dial_api(&b)?, "three")?, "api:three");
    a.cut(Cut::Management)?;
    assert!(dial_within(&a, SILENCE).is_err());
    Ok(())
}

/// A bridge that took its MAC from a port would change it with that port: everybody's
/// neighbour entry for the API server would be wrong for seconds.
#[tokio::test]
async fn a_node_without_power_takes_nobody_elses_way_to_the_api() -> Result<()> {
    let names = ["n1", "n2", "n3", "n4", "n5"];
    let builder = Lab::builder().segment("lan", ["192.0.2.0/24"]);
    let lab = names.iter().fold(builder, |lab, name| lab.node(name, ["lan"])).build()?;
    lab.set_api(mk_echo("api:")?);
    let last = lab.node("n5");
    let server = IpAddr::from(API_ADDRESS);
    assert_eq!(ask(&mut dial_api(&last)?, "one")?, "api:one");
    let known = last.neighbour(server)?.and_then(|entry| entry.mac).context("the API server's MAC")?;
    // One of the four had the lowest MAC, most likely: their links are numbered at random.
    for name in &names[..4] {
        lab.node(name).power_off()?;
        let mut stream = dial_api(&last)?;
        assert_eq!(ask(&mut stream, "two")?, "api:two");
        let entry = last.neighbour(server)?.and_then(|entry| entry.mac);
        assert_eq!(entry, Some(known), "the same after {name} has lost its power");
    }
    Ok(())
}
