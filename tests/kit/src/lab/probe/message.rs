//! What probes say.
//!
//! ```text
//!  0       4               12              20      21
//! +-------+---------------+---------------+-------+----------------+
//! | "plbq"| run           | sequence      | length| node's name    |
//! +-------+---------------+---------------+-------+----------------+
//!  request: 20 bytes, "plbq"              reply: "plba", and the rest
//! ```

const ASK: [u8; 4] = *b"plbq";
const ANSWER: [u8; 4] = *b"plba";
pub(super) const REQUEST_LEN: usize = 20;
pub(super) const REPLY_MAX: usize = REQUEST_LEN + 1 + 255;

/// `run` tells one prober's probes from another's that used the same port before.
pub(super) fn request(run: u64, sequence: u64) -> [u8; REQUEST_LEN] {
    let mut bytes = [0; REQUEST_LEN];
    bytes[..4].copy_from_slice(&ASK);
    bytes[4..12].copy_from_slice(&run.to_be_bytes());
    bytes[12..].copy_from_slice(&sequence.to_be_bytes());
    bytes
}

/// The answer to a request; `None` if it is none.
pub(super) fn reply(request: &[u8], name: &str) -> Option<Vec<u8>> {
    let request: &[u8; REQUEST_LEN] = request.try_into().ok()?;
    if request[..4] != ASK {
        return None;
    }
    let mut bytes = request.to_vec();
    bytes[..4].copy_from_slice(&ANSWER);
    bytes.push(u8::try_from(name.len()).ok()?);
    bytes.extend(name.as_bytes());
    Some(bytes)
}

/// Which probe of `run` this answers, and who answers; `None` if it is none.
pub(super) fn read_reply(bytes: &[u8], run: u64) -> Option<(u64, &str)> {
    let (head, tail) = bytes.split_first_chunk::<REQUEST_LEN>()?;
    if head[..4] != ANSWER || head[4..12] != run.to_be_bytes() {
        return None;
    }
    let (length, name) = tail.split_first()?;
    let name = name.get(..usize::from(*length))?;
    let sequence = u64::from_be_bytes(head[12..].try_into().ok()?);
    Some((sequence, std::str::from_utf8(name).ok()?))
}

/// How long the reply that begins with these bytes is, once that is known.
pub(super) fn reply_len(bytes: &[u8]) -> Option<usize> {
    bytes.get(REQUEST_LEN).map(|length| REQUEST_LEN + 1 + usize::from(*length))
}
