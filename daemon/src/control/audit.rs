//! The audit log: who did, or tried, what, and how it went. One line each, with the
//! target `purelb::audit`, so that it can be kept apart.

use std::fmt::Display;

use tracing::{info, warn};

use super::peer::ClientPeer;

const TARGET: &str = "purelb::audit";

/// A call that changes something, once its result is known.
pub fn log_call(
    call: &str,
    peer: &ClientPeer,
    arguments: &dyn Display,
    result: Result<&dyn Display, &dyn Display>,
) {
    match result {
        Ok(done) => {
            info!(target: TARGET, CALL = call, WHO = %peer, "audit: {call}{arguments} by {peer}: {done}");
        }
        Err(error) => {
            warn!(target: TARGET, CALL = call, WHO = %peer, "audit: {call}{arguments} by {peer} failed: {error}");
        }
    }
}

/// A call that was not allowed.
pub fn log_refusal(call: &str, peer: &ClientPeer, why: &str) {
    warn!(target: TARGET, CALL = call, WHO = %peer, "audit: {call} by {peer} refused: {why}");
}

/// A connection that never became one.
pub fn log_refused_connection(from: &dyn Display, why: &dyn Display) {
    warn!(target: TARGET, WHO = %from, "audit: connection from {from} refused: {why}");
}
