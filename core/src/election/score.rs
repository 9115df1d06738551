//! The score of a node for a key: SHA-256 of `node#key`, the lowest wins.
//!
//! Every node computes the same scores from the same names, which is all the agreement
//! an election needs. A cluster of 1,000 nodes and 10,000 VIPs has ten million of them,
//! so the half of the message that belongs to the node is padded and, where the name is
//! long, compressed once ([`HashPrefix`]); what is left per score is one or two runs of the
//! compression function over a buffer on the stack.

use std::fmt::{self, Write as _};
use std::net::IpAddr;

use sha2::block_api::compress256;
use sha2::{Digest as _, Sha256};

/// What a node bids for an address. Ordered as its bytes are: the lowest wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Score(pub [u8; 32]);

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The rule as other implementations state it, for any key. The table below uses
/// [`HashPrefix::score`], which must give the same and is tested against this.
pub fn score(node: &str, key: &str) -> Score {
    let mut hash = Sha256::new();
    hash.update(node.as_bytes());
    hash.update(b"#");
    hash.update(key.as_bytes());
    Score(hash.finalize().into())
}

/// The longest canonical text of an address: eight groups of four digits.
const KEY_MAX: usize = 39;
const BLOCK: usize = 64;
/// The end marker and the message length that SHA-256 appends.
const PADDING: usize = 1 + 8;

/// The text of an address as it enters the hash: dotted quad, or RFC 5952. Kept per VIP
/// because writing it costs about as much as hashing it.
#[derive(Clone, Copy)]
pub(super) struct KeyText {
    bytes: [u8; KEY_MAX],
    len: u8,
}

impl KeyText {
    pub(super) fn of(ip: IpAddr) -> Self {
        let mut key = Self { bytes: [0; KEY_MAX], len: 0 };
        write!(key, "{}", ip.to_canonical()).expect("no canonical address is longer than 39 bytes");
        key
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Write for KeyText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let start = usize::from(self.len);
        let end = start + text.len();
        let room = self.bytes.get_mut(start..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = u8::try_from(end).map_err(|_| fmt::Error)?;
        Ok(())
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

/// The initial state of SHA-256 (FIPS 180-4, 5.3.3).
const INITIAL: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// The node's part of every message it is scored by.
///
/// ```text
///  node name           '#'  key          0x80  0…  length in bits
/// |--- whole blocks ---|--- tail ---|
///    in `state`          in `tail`     added per key
/// ```
#[derive(Clone)]
pub(super) struct HashPrefix {
    state: [u32; 8],
    tail: [u8; BLOCK],
    tail_len: usize,
    len: usize,
}

impl HashPrefix {
    pub(super) fn of(node: &str) -> Self {
        let mut text = Vec::with_capacity(node.len() + 1);
        text.extend_from_slice(node.as_bytes());
        text.push(b'#');
        let (whole, rest) = text.as_chunks::<BLOCK>();
        let mut state = INITIAL;
        compress256(&mut state, whole);
        let mut tail = [0; BLOCK];
        tail[..rest.len()].copy_from_slice(rest);
        Self { state, tail, tail_len: rest.len(), len: text.len() }
    }

    pub(super) fn score(&self, key: &KeyText) -> Score {
        let key = key.as_bytes();
        let end = self.tail_len + key.len();
        let bits = ((self.len + key.len()) as u64 * 8).to_be_bytes();
        let mut state = self.state;
        // A tail shorter than a block and a key of 39 bytes never need a third block.
        if end + PADDING <= BLOCK {
            let mut block = self.tail;
            block[self.tail_len..end].copy_from_slice(key);
            block[end] = 0x80;
            block[BLOCK - 8..].copy_from_slice(&bits);
            compress256(&mut state, &[block]);
        } else {
            let mut text = [0; 2 * BLOCK];
            text[..BLOCK].copy_from_slice(&self.tail);
            text[self.tail_len..end].copy_from_slice(key);
            text[end] = 0x80;
            text[2 * BLOCK - 8..].copy_from_slice(&bits);
            compress256(&mut state, text.as_chunks::<BLOCK>().0);
        }
        let mut out = [0; 32];
        for (bytes, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(state) {
            *bytes = word.to_be_bytes();
        }
        Score(out)
    }
}

impl fmt::Debug for HashPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Block boundaries are where padding goes wrong: every length of name there can be,
    /// with the shortest and the longest keys.
    #[test]
    fn the_prepared_head_gives_the_plain_score_for_every_length() {
        let keys =
            ["::", "1.1.1.1", "192.168.100.100", "2001:db8::1", "fd00:1111:2222:3333:4444:5555:6666:7777"];
        for len in 1..=253 {
            let node = "n".repeat(len);
            let head = HashPrefix::of(&node);
            for key in keys {
                let text = KeyText::of(key.parse().unwrap());
                assert_eq!(head.score(&text), score(&node, key), "{len} bytes of name, key {key}");
            }
        }
    }

    #[test]
    fn a_key_is_the_canonical_text() {
        for (given, text) in [
            ("192.168.1.100", "192.168.1.100"),
            ("::ffff:192.168.1.100", "192.168.1.100"),
            ("2001:0DB8:0:0:0:0:0:1", "2001:db8::1"),
            ("2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"),
            ("::102:304", "::102:304"),
        ] {
            assert_eq!(KeyText::of(given.parse().unwrap()).as_bytes(), text.as_bytes());
        }
    }

    #[test]
    fn a_score_prints_as_hex_and_orders_as_its_bytes() {
        // `printf 'node-a#192.168.1.100' | sha256sum` and the like.
        let (a, c) = (score("node-a", "192.168.1.100"), score("node-c", "192.168.1.100"));
        assert_eq!(c.to_string(), "561beaa0f80304712c160302d7985b22b0cbafd1ec189a76a40267ba08729d18");
        assert_eq!(a.to_string(), "d1c22f51a19cc01b94f2306ca895a9b170ce7b42f4d0c5b241e639fe19bbb745");
        assert!(c < a && c.to_string() < a.to_string());
    }
}
