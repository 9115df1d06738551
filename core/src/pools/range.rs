//! One configured range: its addresses, its subnet, and the addresses in it that no
//! Service may get.

use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;

use super::error::{RangeError, RangeProblem};
use super::span::{Span, SpanError, canonical_net, excerpt, number};
use crate::ids::{Family, Vip};

/// An AddressPool as the user wrote it.
#[derive(Clone, Copy, Debug)]
pub struct PoolText<'a> {
    /// A CIDR, `from-to`, or one address.
    pub pool: &'a str,
    /// The CIDR the pool lies in.
    pub subnet: &'a str,
    /// `default` (also: empty) or `/n`.
    pub aggregation: &'a str,
}

/// Prefix length a remote address gets on the dummy interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregation {
    /// The subnet's own.
    Subnet,
    Prefix(u8),
}

/// Which addresses of a range are never given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRules {
    /// IPv4 addresses ending in .0 and .255, whatever the subnet: some old clients
    /// and filters refuse them.
    pub skip_last_octet: bool,
    /// The IPv4 subnet's network and broadcast address (not in /31 and /32), and the
    /// IPv6 subnet-router anycast address (not in /127 and /128): neighbours do not
    /// treat them as one host's.
    pub skip_subnet_edges: bool,
    /// Addresses of gateways, nodes and other hosts.
    pub reserved: Vec<Span>,
}

impl Default for RangeRules {
    fn default() -> Self {
        Self { skip_last_octet: false, skip_subnet_edges: true, reserved: Vec::new() }
    }
}

/// Why an address of a range is never given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExclusionReason {
    Special,
    NetworkAddress,
    BroadcastAddress,
    SubnetRouterAnycast,
    Reserved,
    LastOctet,
}

impl fmt::Display for ExclusionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Special => {
                "it is no host's address (unspecified, loopback, link-local IPv6, multicast or IPv4-mapped)"
            }
            Self::NetworkAddress => "it is the network address of the subnet",
            Self::BroadcastAddress => "it is the broadcast address of the subnet",
            Self::SubnetRouterAnycast => "it is the subnet-router anycast address of the subnet",
            Self::Reserved => "it is reserved",
            Self::LastOctet => "addresses ending in .0 and .255 are switched off",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RangeHole {
    pub(super) first: u128,
    pub(super) last: u128,
    why: ExclusionReason,
}

/// A checked range of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    field: Arc<str>,
    span: Span,
    subnet: IpNet,
    aggregation: Aggregation,
    skip_last_octet: bool,
    /// Sorted, disjoint, inside the span. Without the .0/.255 ones: a /8 has 131,072
    /// of them, so they are computed.
    holes: Vec<RangeHole>,
    usable: u128,
}

/// Addresses that are no host's. The IPv4-mapped block is here since such an address
/// would turn into an IPv4 one as soon as it is a `Vip`. In order: 0.0.0.0/8,
/// 127.0.0.0/8, 224.0.0.0/4, the limited broadcast; ::/127, ::ffff:0:0/96, fe80::/10,
/// ff00::/8.
const SPECIAL: [(Family, u128, u128); 8] = [
    (Family::V4, 0, 0x00ff_ffff),
    (Family::V4, 0x7f00_0000, 0x7fff_ffff),
    (Family::V4, 0xe000_0000, 0xefff_ffff),
    (Family::V4, 0xffff_ffff, 0xffff_ffff),
    (Family::V6, 0, 1),
    (Family::V6, 0xffff_0000_0000, 0xffff_ffff_ffff),
    (Family::V6, 0xfe80 << 112, (0xfec0 << 112) - 1),
    (Family::V6, 0xff00 << 112, u128::MAX),
];

impl Range {
    /// Reads and checks one AddressPool. `field` is its path in the object, as in
    /// `spec.local.v4pools[1]`, and comes back in errors.
    pub fn parse(
        field: &str,
        text: PoolText<'_>,
        family: Family,
        rules: &RangeRules,
    ) -> Result<Self, RangeError> {
        let wrong =
            |part: &str, problem: RangeProblem| RangeError { field: format!("{field}.{part}"), problem };
        let span: Span = text.pool.parse().map_err(|error| wrong("pool", RangeProblem::Span(error)))?;
        let check = |part: &str, found: Family| {
            let wanted = family;
            if found == wanted {
                Ok(())
            } else {
                Err(wrong(part, RangeProblem::WrongFamily { found, wanted }))
            }
        };
        check("pool", span.family())?;
        let subnet = parse_subnet(text.subnet).map_err(|problem| wrong("subnet", problem))?;
        check("subnet", Family::of(subnet.addr()))?;
        if !Span::of_net(subnet).covers(&span) {
            return Err(wrong("pool", RangeProblem::OutsideSubnet { pool: span, subnet }));
        }
        let aggregation =
            parse_aggregation(text.aggregation, family).map_err(|problem| wrong("aggregation", problem))?;
        let mut range = Self {
            field: field.into(),
            span,
            subnet,
            aggregation,
            skip_last_octet: rules.skip_last_octet && family == Family::V4,
            holes: holes(&span, &subnet, rules),
            usable: 0,
        };
        range.usable = range.count_usable();
        if range.usable == 0 {
            let why = range.why_number(span.low()).unwrap_or(ExclusionReason::Reserved);
            return Err(wrong("pool", RangeProblem::NothingUsable { pool: span, why }));
        }
        Ok(range)
    }

    /// Path of the AddressPool in its object.
    pub fn field(&self) -> &str {
        &self.field
    }

    pub fn span(&self) -> Span {
        self.span
    }

    pub fn family(&self) -> Family {
        self.span.family()
    }

    pub fn subnet(&self) -> IpNet {
        self.subnet
    }

    pub fn aggregation(&self) -> Aggregation {
        self.aggregation
    }

    /// Prefix length a remote address of this range gets.
    pub fn prefix_len(&self) -> u8 {
        match self.aggregation {
            Aggregation::Subnet => self.subnet.prefix_len(),
            Aggregation::Prefix(len) => len,
        }
    }

    /// How many addresses Services can get. Exact: even `::/0` is less than 2^128
    /// once the special blocks are out.
    pub fn size(&self) -> u128 {
        self.usable
    }

    /// Some node advertises a subnet that contains the whole range: each of its
    /// addresses has a candidate there.
    pub fn served_by<'a>(&self, live: impl IntoIterator<Item = &'a IpNet>) -> bool {
        live.into_iter().any(|net| Span::of_net(*net).covers(&self.span))
    }

    /// Why this address of the range is never given; None: it may be.
    pub fn why_excluded(&self, ip: Vip) -> Option<ExclusionReason> {
        self.why_number(number(ip.ip()))
    }

    pub(super) fn why_number(&self, n: u128) -> Option<ExclusionReason> {
        let after = self.holes.partition_point(|hole| hole.first <= n);
        let hole = after.checked_sub(1).and_then(|i| self.holes.get(i));
        match hole.filter(|hole| n <= hole.last) {
            Some(hole) => Some(hole.why),
            None => (self.skip_last_octet && is_edge_octet(n)).then_some(ExclusionReason::LastOctet),
        }
    }

    pub(super) fn holes(&self) -> &[RangeHole] {
        &self.holes
    }

    /// Sizes are kept as "count minus one" until a hole was taken off, so that 2^128
    /// never has to be written down.
    fn count_usable(&self) -> u128 {
        let octets = |first: u128, last: u128| {
            if self.skip_last_octet { edge_octets(first, last) } else { 0 }
        };
        let (first, last) = (self.span.low(), self.span.high());
        let mut excluded = octets(first, last);
        for hole in &self.holes {
            let size = (hole.last - hole.first).saturating_add(1);
            excluded = excluded.saturating_add(size - octets(hole.first, hole.last));
        }
        let minus_one = last - first;
        match excluded.checked_sub(1) {
            None => minus_one.saturating_add(1),
            Some(excluded_minus_one) => minus_one.saturating_sub(excluded_minus_one),
        }
    }
}

fn is_edge_octet(n: u128) -> bool {
    matches!(n & 0xff, 0 | 255)
}

/// How many IPv4 numbers of `first..=last` end in .0 or .255.
fn edge_octets(first: u128, last: u128) -> u128 {
    let below = |n: u128| 2 * (n / 256) + u128::from(!n.is_multiple_of(256));
    below(last + 1) - below(first)
}

fn parse_subnet(text: &str) -> Result<IpNet, RangeProblem> {
    let text = text.trim();
    if text.is_empty() {
        return Err(RangeProblem::Span(SpanError::Empty));
    }
    text.parse::<IpNet>()
        .map(canonical_net)
        .map_err(|_| RangeProblem::Span(SpanError::NotACidr { text: excerpt(text) }))
}

fn parse_aggregation(text: &str, family: Family) -> Result<Aggregation, RangeProblem> {
    let text = text.trim();
    if text.is_empty() || text == "default" {
        return Ok(Aggregation::Subnet);
    }
    text.strip_prefix('/')
        .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|digits| digits.parse::<u8>().ok())
        .filter(|len| (8..=family.bits()).contains(len))
        .map(Aggregation::Prefix)
        .ok_or_else(|| RangeProblem::BadAggregation { text: excerpt(text), max: family.bits() })
}

/// Everything excluded from the span: sorted and disjoint, the first reason wins.
fn holes(span: &Span, subnet: &IpNet, rules: &RangeRules) -> Vec<RangeHole> {
    let special = SPECIAL.iter();
    let mut found: Vec<(Span, ExclusionReason)> = special
        .map(|(family, first, last)| (Span::of_numbers(*family, *first, *last), ExclusionReason::Special))
        .collect();
    if rules.skip_subnet_edges && subnet.prefix_len() + 2 <= subnet.max_prefix_len() {
        let all = Span::of_net(*subnet);
        let edge = |n| Span::of_numbers(all.family(), n, n);
        match all.family() {
            Family::V4 => {
                found.push((edge(all.low()), ExclusionReason::NetworkAddress));
                found.push((edge(all.high()), ExclusionReason::BroadcastAddress));
            }
            Family::V6 => found.push((edge(all.low()), ExclusionReason::SubnetRouterAnycast)),
        }
    }
    found.extend(rules.reserved.iter().map(|reserved| (*reserved, ExclusionReason::Reserved)));
    let mut clipped: Vec<(Span, ExclusionReason)> =
        found.into_iter().filter_map(|(block, why)| Some((block.intersection(span)?, why))).collect();
    clipped.sort();
    let mut holes: Vec<RangeHole> = Vec::new();
    for (block, why) in clipped {
        let mut first = block.low();
        if let Some(before) = holes.last() {
            if before.last >= block.high() {
                continue;
            }
            // Not past the end: the block reaches further than the hole before it.
            first = first.max(before.last + 1);
        }
        holes.push(RangeHole { first, last: block.high(), why });
    }
    holes
}
