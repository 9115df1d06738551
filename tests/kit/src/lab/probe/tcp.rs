//! TCP probes: a connection each.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};

use super::message::{self, REPLY_MAX};
use super::{Notes, PROBE_PORT};
use crate::lab::clock;
use crate::lab::netns::Netns;

/// Connections open at once: two timeouts' worth at 1,000/s. A probe that finds no
/// place is passed over and counted as skipped, not as lost.
const CONNECTIONS: usize = 2048;

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A connection under way, and the probe it is for.
type Dialled = (u64, IpAddr, std::net::TcpStream);

pub(super) fn start(client: &Netns, notes: &Arc<Notes>) -> Result<(JoinHandle<()>, JoinHandle<()>)> {
    let (queue, dialled) = mpsc::channel::<Dialled>(CONNECTIONS);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the TCP prober's runtime")?;
    let receiver = {
        let notes = Arc::clone(notes);
        client.thread("probe-receive", move || {
            clock::prefer_this_thread();
            runtime.block_on(converse(notes, dialled));
        })?
    };
    let notes = Arc::clone(notes);
    let sender = client.thread("probe-send", move || {
        clock::prefer_this_thread();
        notes.keep_schedule(|sequence, vip| {
            // A connection the kernel refuses outright (no route) is a lost probe.
            if let Ok(connection) = dial(vip)
                && queue.try_send((sequence, vip, connection)).is_err()
            {
                notes.not_sent(sequence);
            }
        });
    })?;
    Ok((sender, receiver))
}

/// Sends the SYN from the sender's own thread, so that it keeps the schedule.
fn dial(vip: IpAddr) -> io::Result<std::net::TcpStream> {
    let to = SocketAddr::new(vip, PROBE_PORT);
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_linger(Some(Duration::ZERO))?;
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

async fn converse(notes: Arc<Notes>, mut dialled: mpsc::Receiver<Dialled>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    while !notes.stop_receiving.load(Ordering::Relaxed) {
        let Ok(next) = tokio::time::timeout(LOOK_EVERY, dialled.recv()).await else {
            continue;
        };
        let Some((sequence, vip, connection)) = next else {
            // The sender has ended. Conversations go on until the prober is told to end.
            tokio::time::sleep(Duration::from_millis(2)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        let notes = Arc::clone(&notes);
        tokio::spawn(async move {
            let asked = ask(&notes, sequence, connection);
            if let Ok(Ok(Some(node))) = tokio::time::timeout(notes.probing.timeout, asked).await {
                notes.answered(sequence, vip, &node, clock::now());
            }
            drop(place);
        });
    }
}

async fn ask(notes: &Notes, sequence: u64, connection: std::net::TcpStream) -> io::Result<Option<String>> {
    let mut stream = TcpStream::from_std(connection)?;
    stream.writable().await?;
    stream.write_all(&message::request(notes.run, sequence)).await?;
    let mut reply = Vec::with_capacity(REPLY_MAX);
    while message::reply_len(&reply).is_none_or(|length| reply.len() < length) {
        if stream.read_buf(&mut reply).await? == 0 {
            return Ok(None);
        }
    }
    let answer = message::read_reply(&reply, notes.run).filter(|(answers, _)| *answers == sequence);
    Ok(answer.map(|(_, node)| node.to_owned()))
}
