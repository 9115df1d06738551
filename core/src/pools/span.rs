//! A run of addresses of one family, both ends included.
//!
//! Ends are inclusive on purpose: the exclusive end of `::/0`, and its size, do not
//! fit into 128 bits, and a wrapped end would read as an empty pool.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};
use thiserror::Error;

use crate::ids::{Family, Vip};

/// Why a text is not a run of addresses.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpanError {
    #[error("is empty: give a CIDR (192.0.2.0/24), a range (192.0.2.10-192.0.2.20) or one address")]
    Empty,
    #[error("{text:?} is not an IP address: give an IPv4 or IPv6 address")]
    NotAnAddress { text: String },
    #[error("{text:?} is not a CIDR: give an address and a prefix length the family has, as in 192.0.2.0/24")]
    NotACidr { text: String },
    #[error("goes from {from} to {to}, which are of different families: use two ranges")]
    MixedFamilies { from: Vip, to: Vip },
    #[error("goes from {from} down to {to}: put the lower address first")]
    Backwards { from: Vip, to: Vip },
}

/// Addresses `first..=last` of one family. Never empty.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    family: Family,
    first: u128,
    last: u128,
}

/// The address as a number, within its family.
pub(super) fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

/// The address of a number. Numbers of the IPv4 family come from IPv4 addresses
/// and stay between two of them, so they fit.
pub(super) fn address(family: Family, number: u128) -> IpAddr {
    match family {
        Family::V4 => {
            let bits = u32::try_from(number).expect("an IPv4 number lies between two IPv4 addresses");
            IpAddr::V4(Ipv4Addr::from(bits))
        }
        Family::V6 => IpAddr::V6(Ipv6Addr::from(number)),
    }
}

/// Masked, and an IPv4-mapped IPv6 prefix as the IPv4 prefix it stands for: a `Vip`
/// has one identity, so has its network.
pub(super) fn canonical_net(net: IpNet) -> IpNet {
    if let IpNet::V6(v6) = net.trunc()
        && let Some(v4) = v6.network().to_ipv4_mapped()
        && let Some(len) = v6.prefix_len().checked_sub(96)
        && let Ok(v4) = Ipv4Net::new(v4, len)
    {
        return IpNet::V4(v4);
    }
    net.trunc()
}

/// User text in an error: enough to recognise it, never a page of it.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}

impl Span {
    pub fn between(from: Vip, to: Vip) -> Result<Self, SpanError> {
        if from.family() != to.family() {
            return Err(SpanError::MixedFamilies { from, to });
        }
        let (first, last) = (number(from.ip()), number(to.ip()));
        if first > last {
            return Err(SpanError::Backwards { from, to });
        }
        Ok(Self { family: from.family(), first, last })
    }

    /// As [`Self::first`] and [`Self::last`] gave them.
    pub fn of_addresses(first: IpAddr, last: IpAddr) -> Option<Self> {
        let (family, low, high) = (Family::of(first), number(first), number(last));
        (family == Family::of(last) && low <= high).then_some(Self { family, first: low, last: high })
    }

    pub fn single(ip: Vip) -> Self {
        let n = number(ip.ip());
        Self { family: ip.family(), first: n, last: n }
    }

    /// Every address of the prefix; host bits are ignored.
    pub fn of_net(net: IpNet) -> Self {
        let net = canonical_net(net);
        Self { family: Family::of(net.addr()), first: number(net.network()), last: number(net.broadcast()) }
    }

    pub fn family(&self) -> Family {
        self.family
    }

    /// The lowest address. An `IpAddr`, not a `Vip`: the edge of a wide IPv6 prefix
    /// may be an IPv4-mapped address, which as a `Vip` would change its family.
    pub fn first(&self) -> IpAddr {
        address(self.family, self.first)
    }

    /// The highest address.
    pub fn last(&self) -> IpAddr {
        address(self.family, self.last)
    }

    /// How many addresses; only `::/0` has one more than fits, and counts one less.
    pub fn size(&self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    pub fn contains(&self, ip: Vip) -> bool {
        ip.family() == self.family && (self.first..=self.last).contains(&number(ip.ip()))
    }

    pub fn covers(&self, other: &Self) -> bool {
        self.family == other.family && self.first <= other.first && other.last <= self.last
    }

    pub fn overlaps(&self, other: &Self) -> bool {
        self.intersection(other).is_some()
    }

    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let first = self.first.max(other.first);
        let last = self.last.min(other.last);
        (self.family == other.family && first <= last).then_some(Self { family: self.family, first, last })
    }

    /// From numbers known to be in order and of that family.
    pub(super) fn of_numbers(family: Family, first: u128, last: u128) -> Self {
        debug_assert!(first <= last);
        Self { family, first, last }
    }

    pub(super) fn low(&self) -> u128 {
        self.first
    }

    pub(super) fn high(&self) -> u128 {
        self.last
    }
}

impl FromStr for Span {
    type Err = SpanError;

    /// A CIDR, `from-to`, or one address; spaces around each part are fine.
    fn from_str(text: &str) -> Result<Self, SpanError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(SpanError::Empty);
        }
        let parse = |part: &str| {
            part.parse::<Vip>().map_err(|_| SpanError::NotAnAddress { text: excerpt(part.trim()) })
        };
        if let Some((from, to)) = text.split_once('-') {
            return Self::between(parse(from)?, parse(to)?);
        }
        if text.contains('/') {
            return text
                .parse::<IpNet>()
                .map(Self::of_net)
                .map_err(|_| SpanError::NotACidr { text: excerpt(text) });
        }
        parse(text).map(Self::single)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first())
        } else {
            write!(f, "{}-{}", self.first(), self.last())
        }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
