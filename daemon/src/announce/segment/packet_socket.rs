//! One packet socket: one interface, one type of frame, one filter.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, MultiHeaders, recvmmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use purelb_core::ids::IfIndex;
use socket2::{Domain, SockFilter, Socket, Type};

use crate::announce::packet_sender::link_address;

/// Longer than any frame we understand; the kernel cuts off what is more.
pub(super) const FRAME_ROOM: usize = 512;
/// As the kernel counts it a small frame takes less than a kibibyte: a thousand of them,
/// for a reader that comes at least once a second.
pub(super) const RECEIVE_BUFFER: usize = 1024 * 1024;
/// Taken with one call.
const FRAMES_AT_ONCE: usize = 32;
/// Fewer cannot have filled the buffer, however the kernel counts them.
const MANY_FRAMES: usize = 8;

#[derive(Debug)]
pub(super) struct PacketSocket(Socket);

/// What one turn brought.
#[derive(Debug, Default)]
pub(super) struct SocketTurn {
    /// There was nothing more.
    pub(super) drained: bool,
    /// Frames that found no room.
    pub(super) lost: u64,
}

impl PacketSocket {
    /// In the calling thread's network namespace.
    pub(super) fn open(ethertype: u16, index: IfIndex, filter: &[SockFilter]) -> io::Result<Self> {
        // Without a protocol it gets no frames before the filter is in place.
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
        socket.set_nonblocking(true)?;
        socket.attach_filter(filter)?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        // Beyond rmem_max only with CAP_NET_ADMIN, which the daemon has; a smaller buffer
        // works, with more overruns.
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
        }
        socket.bind(&link_address(index, ethertype))?;
        // The kernel binds to an interface that is down, and says so afterwards.
        match socket.take_error()? {
            Some(error) => Err(error),
            None => Ok(Self(socket)),
        }
    }

    /// Hands frames with the kernel's stamps to `take`, about `most` of them.
    pub(super) fn read(
        &self,
        most: usize,
        mut take: impl FnMut(&[u8], Option<TimeSpec>),
    ) -> io::Result<SocketTurn> {
        let mut room = [[0u8; FRAME_ROOM]; FRAMES_AT_ONCE];
        let mut turn = SocketTurn::default();
        let mut count = 0;
        while count < most && !turn.drained {
            let mut slices: Vec<_> = room.iter_mut().map(|frame| [IoSliceMut::new(frame)]).collect();
            let stamps = nix::cmsg_space!(TimeSpec);
            let mut headers = MultiHeaders::<()>::preallocate(FRAMES_AT_ONCE, Some(stamps));
            let read =
                recvmmsg(self.0.as_raw_fd(), &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None);
            let messages = match read {
                Ok(messages) => messages,
                Err(Errno::EAGAIN) => {
                    turn.drained = true;
                    break;
                }
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let before = count;
            for message in messages {
                count += 1;
                let stamp = message.cmsgs().ok().and_then(|mut all| {
                    all.find_map(|one| match one {
                        ControlMessageOwned::ScmTimestampns(stamp) => Some(stamp),
                        _ => None,
                    })
                });
                if let Some(frame) = message.iovs().next() {
                    take(frame, stamp);
                }
            }
            turn.drained = count - before < FRAMES_AT_ONCE;
        }
        if count >= MANY_FRAMES || !turn.drained {
            turn.lost = self.lost()?;
        }
        Ok(turn)
    }

    /// Frames that found no room since this was last asked.
    #[allow(unsafe_code)]
    fn lost(&self) -> io::Result<u64> {
        let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to a structure of that length, all
        // of whose bit patterns are valid; both live until the call returns.
        let answer = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        Errno::result(answer)?;
        Ok(statistics.tp_drops.into())
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
