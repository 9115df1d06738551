//! Who is at the other end, and what they may do.

use std::fmt;
use std::net::SocketAddr;

use tonic::{Request, Status};

/// Each includes the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientRole {
    Reader,
    Operator,
}

impl ClientRole {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "reader" => Some(Self::Reader),
            "operator" => Some(Self::Operator),
            _ => None,
        }
    }
}

impl fmt::Display for ClientRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reader => "reader",
            Self::Operator => "operator",
        })
    }
}

/// A client, as the kernel or its certificate vouches for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientPeer {
    pub who: PeerIdentity,
    pub role: Option<ClientRole>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerIdentity {
    Socket { uid: u32, gid: u32, pid: Option<i32> },
    Certificate { subject: String, address: SocketAddr },
}

impl fmt::Display for ClientPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.who {
            PeerIdentity::Socket { uid, gid, pid } => {
                write!(f, "uid {uid} gid {gid}")?;
                pid.map_or(Ok(()), |pid| write!(f, " pid {pid}"))
            }
            PeerIdentity::Certificate { subject, address } => write!(f, "{subject:?} at {address}"),
        }
    }
}

/// The peer of a request, if it has at least this role. A refusal is on record.
pub fn require<T>(request: &Request<T>, role: ClientRole, call: &str) -> Result<ClientPeer, Status> {
    let Some(peer) = request.extensions().get::<ClientPeer>() else {
        return Err(Status::internal("the connection has no peer"));
    };
    if peer.role >= Some(role) {
        return Ok(peer.clone());
    }
    let why = refusal(peer, role);
    super::audit::log_refusal(call, peer, &why);
    Err(Status::permission_denied(why))
}

fn refusal(peer: &ClientPeer, role: ClientRole) -> String {
    match (&peer.who, peer.role) {
        (PeerIdentity::Socket { uid, .. }, _) => {
            format!("user {uid} may not use the control socket: become root or join the group that owns it")
        }
        (PeerIdentity::Certificate { .. }, Some(has)) => {
            format!("the call needs the role {role}, and the certificate gives {has}: use one with {role}")
        }
        (PeerIdentity::Certificate { .. }, None) => format!(
            "the certificate gives no role: it needs the organizational unit purelb:reader or purelb:operator, \
             or the URI {}reader or {0}operator as a subject alternative name",
            super::ROLE_URI
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(role: Option<ClientRole>) -> Request<()> {
        let mut request = Request::new(());
        let who = PeerIdentity::Certificate { subject: "CN=a".into(), address: ([192, 0, 2, 1], 5).into() };
        request.extensions_mut().insert(ClientPeer { who, role });
        request
    }

    #[test]
    fn an_operator_reads_and_a_reader_does_not_operate() {
        assert!(require(&request(Some(ClientRole::Operator)), ClientRole::Reader, "GetStatus").is_ok());
        assert!(require(&request(Some(ClientRole::Operator)), ClientRole::Operator, "Drain").is_ok());
        assert!(require(&request(Some(ClientRole::Reader)), ClientRole::Reader, "GetStatus").is_ok());
        let refused = require(&request(Some(ClientRole::Reader)), ClientRole::Operator, "Drain").unwrap_err();
        assert_eq!(refused.code(), tonic::Code::PermissionDenied);
        assert!(refused.message().contains("needs the role operator"), "{refused}");
        assert!(
            require(&request(None), ClientRole::Reader, "GetStatus")
                .unwrap_err()
                .message()
                .contains("gives no role")
        );
        assert_eq!(
            require(&Request::new(()), ClientRole::Reader, "x").unwrap_err().code(),
            tonic::Code::Internal
        );
    }
}
