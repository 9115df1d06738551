//! A 48-bit Ethernet address.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{0}` is not an Ethernet address: write six pairs of hex digits, like 02:00:00:00:00:01")]
pub struct ParseMacError(String);

impl MacAddr {
    pub const BROADCAST: Self = Self([0xff; 6]);
    pub const ZERO: Self = Self([0; 6]);

    pub const fn octets(self) -> [u8; 6] {
        self.0
    }

    /// An address a single host can own: neither a group address nor all zeros.
    pub fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self != Self::ZERO
    }

    pub(crate) fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MacAddr {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let bad = || ParseMacError(text.to_owned());
        let mut octets = [0; 6];
        let mut pairs = text.split(':');
        for octet in &mut octets {
            let pair = pairs.next().ok_or_else(bad)?;
            if pair.len() != 2 || !pair.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(bad());
            }
            *octet = u8::from_str_radix(pair, 16).map_err(|_| bad())?;
        }
        if pairs.next().is_some() {
            return Err(bad());
        }
        Ok(Self(octets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let mac: MacAddr = "02:00:5e:AB:00:ff".parse().unwrap();
        assert_eq!(mac, MacAddr([2, 0, 0x5e, 0xab, 0, 0xff]));
        assert_eq!(mac.to_string(), "02:00:5e:ab:00:ff");
    }

    #[test]
    fn refuses_what_is_not_six_pairs() {
        for bad in [
            "",
            "02:00:5e:ab:00",
            "02:00:5e:ab:00:ff:01",
            "2:0:5e:ab:0:ff",
            "02:00:5e:ab:00:+f",
            "02:00:5e:ab:00:é",
        ] {
            assert!(bad.parse::<MacAddr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn group_addresses_and_zero_belong_to_nobody() {
        assert!(MacAddr([2, 0, 0, 0, 0, 1]).is_unicast());
        assert!(!MacAddr::BROADCAST.is_unicast());
        assert!(!MacAddr([0x33, 0x33, 0, 0, 0, 1]).is_unicast());
        assert!(!MacAddr::ZERO.is_unicast());
    }
}
