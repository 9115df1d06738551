//! Ranges of addresses as pools name them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use purelb_core::{Family, Vip};
use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RangeError {
    #[error("{0:?} is neither a prefix (192.0.2.0/28), nor a range (192.0.2.10-192.0.2.20), nor an address")]
    Unreadable(String),
    #[error("{from} and {to} are not of one address family")]
    MixedFamilies { from: Vip, to: Vip },
    #[error("the range ends before it begins: {from} comes after {to}")]
    Backwards { from: Vip, to: Vip },
    #[error("{0:?} is not a prefix such as 192.0.2.0/24")]
    NotAPrefix(String),
    #[error("{0:?} is an IPv4 address written as IPv6: write it as IPv4")]
    Mapped(String),
}

/// Addresses from the first to the last, both included; of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    first: Vip,
    last: Vip,
}

impl Range {
    pub fn new(first: Vip, last: Vip) -> Result<Self, RangeError> {
        if first.family() != last.family() {
            return Err(RangeError::MixedFamilies {
                from: first,
                to: last,
            });
        }
        if first > last {
            return Err(RangeError::Backwards {
                from: first,
                to: last,
            });
        }
        Ok(Self { first, last })
    }

    /// A prefix, `from-to`, or one address. Spaces around the dash are tolerated.
    pub fn parse(text: &str) -> Result<Self, RangeError> {
        let text = text.trim();
        if let Some((from, to)) = text.split_once('-') {
            return Self::new(address(from, text)?, address(to, text)?);
        }
        if text.contains('/') {
            let net = text
                .parse::<IpNet>()
                .map_err(|_| RangeError::Unreadable(clip(text)))?;
            refuse_mapped(net.addr(), text)?;
            return Ok(Self {
                first: Vip::new(net.network()),
                last: Vip::new(net.broadcast()),
            });
        }
        let one = address(text, text)?;
        Ok(Self {
            first: one,
            last: one,
        })
    }

    pub fn first(self) -> Vip {
        self.first
    }

    pub fn last(self) -> Vip {
        self.last
    }

    pub fn family(self) -> Family {
        self.first.family()
    }

    pub fn contains(self, vip: Vip) -> bool {
        vip.family() == self.family() && self.first <= vip && vip <= self.last
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.family() == other.family() && self.first <= other.last && other.first <= self.last
    }

    /// How many addresses; saturates for all of IPv6.
    pub fn size(self) -> u128 {
        number(self.last)
            .saturating_sub(number(self.first))
            .saturating_add(1)
    }

    /// The address `index` after the first.
    pub fn nth(self, index: u128) -> Option<Vip> {
        let at = number(self.first).checked_add(index)?;
        (at <= number(self.last)).then(|| vip(at, self.family()))
    }

    pub fn lies_in(self, net: IpNet) -> bool {
        net.contains(&self.first.ip()) && net.contains(&self.last.ip())
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            return self.first.fmt(f);
        }
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// A subnet: masked, never an IPv4 prefix in IPv6 clothes.
pub fn parse_subnet(text: &str) -> Result<IpNet, RangeError> {
    let net = text
        .trim()
        .parse::<IpNet>()
        .map_err(|_| RangeError::NotAPrefix(clip(text)))?;
    refuse_mapped(net.addr(), text)?;
    Ok(net.trunc())
}

fn address(text: &str, whole: &str) -> Result<Vip, RangeError> {
    let ip = text
        .trim()
        .parse::<IpAddr>()
        .map_err(|_| RangeError::Unreadable(clip(whole)))?;
    refuse_mapped(ip, text)?;
    Ok(Vip::new(ip))
}

fn refuse_mapped(ip: IpAddr, text: &str) -> Result<(), RangeError> {
    if ip.to_canonical() == ip {
        Ok(())
    } else {
        Err(RangeError::Mapped(clip(text)))
    }
}

/// What a message quotes of a text that anyone may write.
fn clip(text: &str) -> String {
    text.chars().take(64).collect()
}

pub(crate) fn number(vip: Vip) -> u128 {
    match vip.ip() {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    }
}

fn vip(number: u128, family: Family) -> Vip {
    Vip::new(match family {
        // Callers stay between two addresses of the family, so it always fits.
        Family::V4 => IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX))),
        Family::V6 => IpAddr::V6(Ipv6Addr::from(number)),
    })
}

#[cfg(test)]
mod tests;
