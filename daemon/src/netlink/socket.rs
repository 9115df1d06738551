//! One rtnetlink socket: opened with a large buffer, read without trusting anybody
//! but the kernel.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::socket::{NetlinkAddr, recvfrom, setsockopt, sockopt};
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{Socket as RawSocket, SocketAddr};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The kernel's dumps come in pieces of at most 32 KiB; a link with many virtual
/// functions can be longer in one message.
pub(crate) const READ_BUFFER: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct NetlinkSocket {
    inner: RawSocket,
}

/// What one read brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SocketRead {
    /// So many bytes from the kernel.
    Datagram(usize),
    /// The kernel had more to say than the buffer took: something is missing.
    Overrun,
}

impl NetlinkSocket {
    /// Opens a socket in the calling thread's network namespace.
    pub(crate) fn open(groups: &[rtnetlink::MulticastGroup], receive_buffer: usize) -> io::Result<Self> {
        let mut inner = RawSocket::new(NETLINK_ROUTE)?;
        // Beyond rmem_max only with CAP_NET_ADMIN, which the daemon has; without it a
        // smaller buffer still works, with more overruns.
        if setsockopt(&inner, sockopt::RcvBufForce, &receive_buffer).is_err() {
            setsockopt(&inner, sockopt::RcvBuf, &receive_buffer)?;
        }
        // Explanations and filtered dumps: kernels before 4.20 know neither; we filter
        // again ourselves.
        let _ = inner.set_ext_ack(true);
        let _ = inner.set_cap_ack(true);
        let _ = inner.set_netlink_get_strict_chk(true);
        let mask = groups.iter().fold(0, |mask, group| mask | 1 << (*group as u32 - 1));
        inner.bind(&SocketAddr::new(0, mask))?;
        Ok(Self { inner })
    }

    /// Room for what the kernel sends, as it accounts for it.
    pub(crate) fn receive_buffer(&self) -> io::Result<usize> {
        self.inner.get_rx_buf_sz()
    }

    pub(crate) fn set_receive_timeout(&self, timeout: std::time::Duration) -> io::Result<()> {
        let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
        let value = nix::sys::time::TimeVal::new(seconds, timeout.subsec_micros().into());
        Ok(setsockopt(&self.inner, sockopt::ReceiveTimeout, &value)?)
    }

    pub(crate) fn set_non_blocking(&self) -> io::Result<()> {
        self.inner.set_non_blocking(true)
    }

    pub(crate) fn send(&self, datagram: &[u8]) -> io::Result<()> {
        let sent = self.inner.send_to(datagram, &SocketAddr::new(0, 0), 0)?;
        if sent == datagram.len() {
            Ok(())
        } else {
            Err(io::Error::other("the kernel took only a part of a netlink request"))
        }
    }

    /// Reads one datagram. Those that another process sent are passed over.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<SocketRead> {
        loop {
            // `MSG_TRUNC` in nix's wrapper is not needed: a datagram that fills the
            // whole buffer counts as cut off.
            match recvfrom::<NetlinkAddr>(self.inner.as_raw_fd(), buffer) {
                Ok((length, _)) if length == buffer.len() => return Ok(SocketRead::Overrun),
                Ok((length, Some(sender))) if sender.pid() == 0 => return Ok(SocketRead::Datagram(length)),
                Ok(_) => {}
                Err(Errno::ENOBUFS) => return Ok(SocketRead::Overrun),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsRawFd for NetlinkSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

/// Tells when there is something to read.
pub(crate) type ReadableSocket = AsyncFd<Arc<NetlinkSocket>>;

/// In the runtime of the calling task.
#[allow(unsafe_code)]
pub(crate) fn register_readable(socket: Arc<NetlinkSocket>) -> io::Result<ReadableSocket> {
    // SAFETY: the descriptor belongs to the `Socket`, which neither closes nor replaces
    // it before it is dropped, and the `Arc` keeps it until the registration ends.
    Ok(unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than `net.core.rmem_max` allows without privileges.
    #[test]
    fn the_buffer_is_as_large_as_asked() {
        let asked = 8 * 1024 * 1024;
        let socket = NetlinkSocket::open(&[], asked).unwrap();
        let got = socket.receive_buffer().unwrap();
        assert!(got >= asked, "{got}: run the test as root (CAP_NET_ADMIN)");
    }
}
