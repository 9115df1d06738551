//! One connection, whichever way it came in.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::peer::ClientPeer;

#[derive(Debug)]
enum ClientStream {
    Socket(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Resolves when a connection has to end.
type End = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Holds its place among the connections until it is closed.
pub struct ControlConnection {
    stream: ClientStream,
    peer: ClientPeer,
    /// `None`: it may stay. Without this a watch that was opened with a certificate would
    /// outlive it.
    end: Option<End>,
    _place: OwnedSemaphorePermit,
}

impl fmt::Debug for ControlConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn").field("stream", &self.stream).field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl ControlConnection {
    pub fn socket(stream: UnixStream, peer: ClientPeer, place: OwnedSemaphorePermit) -> Self {
        Self { stream: ClientStream::Socket(stream), peer, end: None, _place: place }
    }

    pub fn tls(
        stream: TlsStream<TcpStream>,
        peer: ClientPeer,
        end: impl Future<Output = ()> + Send + 'static,
        place: OwnedSemaphorePermit,
    ) -> Self {
        Self { stream: ClientStream::Tls(Box::new(stream)), peer, end: Some(Box::pin(end)), _place: place }
    }
}

impl Connected for ControlConnection {
    type ConnectInfo = ClientPeer;

    fn connect_info(&self) -> ClientPeer {
        self.peer.clone()
    }
}

impl AsyncRead for ControlConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A server always reads, to hear that its client has gone.
        if self.end.as_mut().is_some_and(|end| end.as_mut().poll(cx).is_ready()) {
            self.end = Some(Box::pin(std::future::ready(())));
            let why = "its certificate is no longer good, or it is time to show it again";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, why)));
        }
        match &mut self.stream {
            ClientStream::Socket(s) => Pin::new(s).poll_read(cx, buf),
            ClientStream::Tls(s) => Pin::new(s).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ControlConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            ClientStream::Socket(s) => Pin::new(s).poll_write(cx, buf),
            ClientStream::Tls(s) => Pin::new(s).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            ClientStream::Socket(s) => Pin::new(s).poll_flush(cx),
            ClientStream::Tls(s) => Pin::new(s).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            ClientStream::Socket(s) => Pin::new(s).poll_shutdown(cx),
            ClientStream::Tls(s) => Pin::new(s).poll_shutdown(cx),
        }
    }
}
