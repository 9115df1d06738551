//! What one client may cost. Each number says what happens when it is reached.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct ControlLimits {
    /// A request that has no answer by then gets DEADLINE_EXCEEDED. Streams are not
    /// meant: they live as long as their reader reads.
    pub request: Duration,
    /// Bytes of a request; more gets OUT_OF_RANGE. The largest we know are a few
    /// hundred addresses.
    pub message: usize,
    /// Connections over the socket, and over TCP: counted apart, so that remote clients
    /// cannot lock the operator at the console out. One more waits to be accepted.
    pub socket_connections: usize,
    pub tls_connections: usize,
    /// TLS handshakes under way, and how long one may take; more wait to be accepted.
    pub handshakes: usize,
    pub handshake: Duration,
    /// Requests at once on one connection; more wait there.
    pub streams_per_connection: u32,
    /// Watches and drains at once; more get RESOURCE_EXHAUSTED.
    pub streams: usize,
    /// A stream whose reader takes nothing for this long is ended.
    pub stalled: Duration,
    /// A watch tells changes at most this often: what happens in between is merged.
    pub pace: Duration,
    /// A peer that does not answer a ping within half of this is gone.
    pub ping: Duration,
    /// A connection is asked to reconnect after this long, so that a role taken away
    /// with a certificate does not last for ever.
    pub connection_age: Duration,
    /// What is still open so long after that is cut off, where certificates are shown.
    pub connection_grace: Duration,
    /// How often certificate files are looked at.
    pub reload: Duration,
    /// Addresses in one request.
    pub addresses: usize,
    /// Events kept.
    pub events: usize,
}

impl Default for ControlLimits {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(30),
            message: 64 << 10,
            socket_connections: 64,
            tls_connections: 256,
            handshakes: 32,
            handshake: Duration::from_secs(5),
            streams_per_connection: 32,
            streams: 128,
            stalled: Duration::from_secs(30),
            pace: Duration::from_millis(100),
            ping: Duration::from_secs(20),
            connection_age: Duration::from_secs(3600),
            connection_grace: Duration::from_secs(60),
            reload: Duration::from_secs(10),
            addresses: 256,
            events: 1024,
        }
    }
}
