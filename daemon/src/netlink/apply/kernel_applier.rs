//! Carries out the engine's changes, each acknowledged by the kernel.
//!
//! A batch of address changes costs one dump and one datagram for every few hundred
//! changes: the kernel carries them out in order and answers each.
//!
//! **Only what is ours (R4).** Every batch looks at what the kernel shows first. An
//! address that is there without our mark is neither replaced nor removed. An address
//! that is not there is added with `NLM_F_EXCL`: should an operator's appear in between,
//! the kernel refuses ours instead of handing us theirs.
//!
//! **Never past the fence (R3).** The engine says until when an address may live. How many
//! whole seconds that is, is counted when the datagram is made, however long the change
//! waited before; with none left it is not sent. Where the kernel itself was slow to get
//! to it, the lifetime is given once more.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressProtocol, CacheInfo,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;
use purelb_core::Mono;
use purelb_core::ids::{IfIndex, IfName};
use purelb_core::messages::{AddressSpec, Input, KernelChange, KernelRefusal, Lifetimes};
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use thiserror::Error;

use super::{dummy_link, promote_secondaries};
use crate::host::clock;
use crate::netlink::apply::address_view::{self, AddressView, ShownAddress};
use crate::netlink::client::{DumpResult, NetlinkClient, NetlinkError};
use crate::netlink::message::NetlinkRequest;
use crate::netlink::ownership::AddressId;
use crate::netlink::ownership::{ADDRESS_MARK, AddressOwnership};

/// The kernel's word for "for ever".
const INFINITE: u32 = u32::MAX;

/// Why a change was not made, in words for `purelbctl` and events.
#[derive(Debug, Error)]
pub enum ApplyError {
    #[error("{net} on interface {} is not ours: it carries no mark of purelb and is left alone", index.0)]
    Foreign { index: IfIndex, net: IpNet },
    #[error(
        "{net} appeared on interface {} meanwhile and is not ours: it is left alone",
        index.0
    )]
    Appeared { index: IfIndex, net: IpNet },
    #[error("{net}: interface {} has it as /{there}; that has to go first", index.0)]
    OtherPrefix { index: IfIndex, net: IpNet, there: u8 },
    #[error("{net}: the lifetime it may have is over: it would end before it begins")]
    NoLifetime { net: IpNet },
    #[error(
        "{net} on interface {}: the kernel was busy for {took:?}, so that its lifetime may end late; it is given anew",
        index.0
    )]
    HeldUp { index: IfIndex, net: IpNet, took: Duration },
    #[error("{net}: there is no interface {} any more", index.0)]
    NoInterface { index: IfIndex, net: IpNet },
    #[error("{net}: IPv6 is disabled on interface {}: set net.ipv6.conf.NAME.disable_ipv6 = 0", index.0)]
    NoIpv6 { index: IfIndex, net: IpNet },
    #[error("changing addresses and links is not permitted: the daemon needs CAP_NET_ADMIN")]
    NotPermitted,
    #[error("{net} on interface {}: {error}", index.0)]
    Address { index: IfIndex, net: IpNet, error: NetlinkError },
    #[error("interface {name}: {error}")]
    Link { name: IfName, error: NetlinkError },
    #[error("looking at the addresses before changing them: {0}")]
    Look(String),
    #[error("{net} cannot be recorded as ours and is not added: {error}")]
    Record { net: IpNet, error: String },
}

impl ApplyError {
    fn into_refusal(self) -> KernelRefusal {
        let words = self.to_string();
        match self {
            Self::NotPermitted => KernelRefusal::NotPermitted(words),
            Self::NoInterface { .. } | Self::NoIpv6 { .. } => KernelRefusal::NoInterface(words),
            Self::Foreign { .. } | Self::Appeared { .. } => KernelRefusal::Foreign(words),
            Self::OtherPrefix { .. }
            | Self::NoLifetime { .. }
            | Self::HeldUp { .. }
            | Self::Address { .. }
            | Self::Link { .. }
            | Self::Look(_)
            | Self::Record { .. } => KernelRefusal::Passing(words),
        }
    }
}

/// What becomes of one operation.
enum Plan {
    Done(Result<(), ApplyError>),
    /// So many requests; the last one's answer is the result.
    Send {
        requests: usize,
    },
}

#[derive(Debug)]
pub struct KernelApplier {
    client: NetlinkClient,
    ownership: AddressOwnership,
}

impl KernelApplier {
    /// In the calling thread's network namespace.
    pub fn open(ownership: AddressOwnership) -> io::Result<Self> {
        Ok(Self { client: NetlinkClient::open()?, ownership })
    }

    /// Carries the operations out in order, and returns an [`Input::Applied`] for each,
    /// in the same order. One that fails does not keep the others from being tried.
    /// Blocks while another process holds the kernel's configuration lock.
    pub fn apply(&mut self, batch: Vec<(u64, KernelChange)>) -> Vec<Input> {
        let (ids, ops): (Vec<u64>, Vec<KernelChange>) = batch.into_iter().unzip();
        let results = self.carry_out(&ops);
        ids.into_iter()
            .zip(results)
            .map(|(id, result)| Input::Applied { id, result: result.map_err(ApplyError::into_refusal) })
            .collect()
    }

    pub(crate) fn carry_out(&mut self, ops: &[KernelChange]) -> Vec<Result<(), ApplyError>> {
        let mut results = Vec::with_capacity(ops.len());
        // Links stand alone, addresses between them go together.
        for run in ops.chunk_by(|a, b| is_address(a) && is_address(b)) {
            match run {
                [KernelChange::EnsureDummy { name }] => {
                    results.push(dummy_link::ensure(&mut self.client, name))
                }
                [KernelChange::RemoveDummy { name }] => {
                    results.push(dummy_link::remove(&mut self.client, name))
                }
                addresses => results.extend(self.change_addresses(addresses)),
            }
        }
        results
    }

    pub(crate) fn addresses(
        &mut self,
    ) -> Result<DumpResult<Vec<crate::netlink::parse::KernelAddress>>, NetlinkError> {
        address_view::dump_addresses(&mut self.client, None)
    }

    fn change_addresses(&mut self, ops: &[KernelChange]) -> Vec<Result<(), ApplyError>> {
        let only = one_interface(ops);
        let mut view = match address_view::dump_addresses(&mut self.client, only) {
            Ok(shown) => {
                // What a disturbed dump leaves out may still be there, and would no longer
                // be ours (R4): a record is settled by a whole one only.
                if shown.whole
                    && let Err(error) = self.ownership.settle(&shown.found, only, &[])
                {
                    tracing::warn!(%error, "the record of our addresses could not be written");
                }
                AddressView::new(&shown, &self.ownership)
            }
            Err(error) => {
                let text = error.to_string();
                return ops.iter().map(|_| Err(ApplyError::Look(text.clone()))).collect();
            }
        };
        let mut requests = Vec::new();
        let mut added = Vec::new();
        let order = removal_order(ops, &view);
        let mut plans: Vec<(usize, Plan)> =
            order.into_iter().map(|at| (at, plan(&ops[at], &mut view, &mut requests, &mut added))).collect();

        promote_secondaries::set_where_needed(&mut self.client, ops, &added);
        if let Err(error) = self.ownership.begin(&added) {
            self.refuse_unrecorded(ops, &mut plans, &mut requests, &error);
        }
        let mut answers = self.client.transact(requests).into_iter();
        let mut late = Vec::new();
        let mut numbered: Vec<(usize, Result<(), ApplyError>)> = plans
            .into_iter()
            .map(|(at, plan)| match plan {
                Plan::Done(result) => (at, result),
                Plan::Send { requests } => {
                    let last = answers.by_ref().take(requests).last();
                    if let (Some(Err(NetlinkError::HeldUp(_))), KernelChange::Put(spec)) = (&last, &ops[at]) {
                        late.push(spec.clone());
                    }
                    (at, result_of(&ops[at], last.unwrap_or(Err(NetlinkError::AnswerLost))))
                }
            })
            .collect();
        let mended = self.renew_lifetimes(late);
        for (at, result) in &mut numbered {
            if matches!(result, Err(ApplyError::HeldUp { .. }))
                && target(&ops[*at]).is_some_and(|k| mended.contains(&k))
            {
                *result = Ok(());
            }
        }
        numbered.sort_unstable_by_key(|(at, _)| *at);
        let results: Vec<_> = numbered.into_iter().map(|(_, result)| result).collect();
        self.settle(ops, &results, only, &added);
        results
    }

    /// The kernel got to these late, and counted their lifetimes from then: they are given
    /// what is left now, or nothing. Returns those that live as they should by now.
    fn renew_lifetimes(&mut self, late: Vec<AddressSpec>) -> Vec<AddressId> {
        if late.is_empty() {
            return Vec::new();
        }
        tracing::warn!(addresses = late.len(), "the kernel was busy: lifetimes are given anew");
        let again = |spec: &AddressSpec| NetlinkRequest::timed(spec.clone(), put_request, NLM_F_REPLACE);
        let answers = self.client.transact(late.iter().map(again).collect());
        let (mut mended, mut over) = (Vec::new(), Vec::new());
        for (spec, answer) in late.iter().zip(answers) {
            match answer {
                Ok(()) => mended.push((spec.index, spec.net)),
                Err(NetlinkError::TooLate) => over.push(delete_request(spec.index, spec.net)),
                Err(_) => {}
            }
        }
        for error in self.client.transact(over).into_iter().filter_map(Result::err) {
            tracing::warn!(%error, "an address whose time is over");
        }
        mended
    }

    /// What cannot be recorded cannot be told from an operator's address later: none of
    /// this batch is sent, and what it would have removed is tried again.
    fn refuse_unrecorded(
        &self,
        ops: &[KernelChange],
        plans: &mut [(usize, Plan)],
        requests: &mut Vec<NetlinkRequest>,
        error: &io::Error,
    ) {
        requests.clear();
        for (at, plan) in plans {
            if let (Plan::Send { .. }, Some((_, net))) = (&plan, target(&ops[*at])) {
                *plan = Plan::Done(Err(ApplyError::Record { net, error: error.to_string() }));
            }
        }
    }

    /// Where a record is kept: note when the kernel created what we added.
    fn settle(
        &mut self,
        ops: &[KernelChange],
        results: &[Result<(), ApplyError>],
        only: Option<IfIndex>,
        added: &[AddressId],
    ) {
        if !self.ownership.uses_record() || added.is_empty() {
            return;
        }
        let failed = ops.iter().zip(results).filter(|(_, result)| result.is_err());
        let refused: Vec<AddressId> =
            failed.filter_map(|(op, _)| target(op).filter(|key| added.contains(key))).collect();
        // After a disturbed dump entries stay pending, which is ours as well; the next batch
        // settles them.
        let settled =
            address_view::dump_addresses(&mut self.client, only).map_err(io::Error::other).and_then(|now| {
                if now.whole {
                    self.ownership.settle(&now.found, only, &refused)
                } else {
                    self.ownership.forget(&refused)
                }
            });
        if let Err(error) = settled {
            tracing::warn!(%error, "the record of our addresses is not complete");
        }
    }
}

fn is_address(op: &KernelChange) -> bool {
    target(op).is_some()
}

fn target(op: &KernelChange) -> Option<AddressId> {
    match op {
        KernelChange::Remove { index, net } => Some((*index, *net)),
        KernelChange::Put(spec) => Some((spec.index, spec.net)),
        KernelChange::EnsureDummy { .. } | KernelChange::RemoveDummy { .. } => None,
    }
}

fn one_interface(ops: &[KernelChange]) -> Option<IfIndex> {
    let mut indices = ops.iter().filter_map(target).map(|(index, _)| index);
    let first = indices.next()?;
    indices.all(|index| index == first).then_some(first)
}

/// Operations in order, but among removals next to each other the primaries of IPv4
/// subnets last: for each primary that goes while others stay, the kernel makes another
/// one primary and sets the routes of all the rest anew. A thousand addresses of one
/// subnet take seconds that way, and milliseconds this way.
fn removal_order(ops: &[KernelChange], view: &AddressView) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ops.len()).collect();
    let removal = |at: usize| matches!(ops[at], KernelChange::Remove { .. });
    for run in order.chunk_by_mut(|a, b| removal(*a) && removal(*b)) {
        run.sort_by_key(|at| {
            let known = target(&ops[*at]).and_then(|(index, net)| view.exact(index, net));
            known.is_some_and(|known| !known.secondary)
        });
    }
    order
}

fn plan(
    op: &KernelChange,
    view: &mut AddressView,
    requests: &mut Vec<NetlinkRequest>,
    added: &mut Vec<AddressId>,
) -> Plan {
    let before = requests.len();
    let planned = match op {
        KernelChange::Remove { index, net } => plan_remove(*index, *net, view, requests),
        KernelChange::Put(spec) => plan_put(spec, view, requests, added),
        KernelChange::EnsureDummy { .. } | KernelChange::RemoveDummy { .. } => Ok(()),
    };
    match (planned, requests.len() - before) {
        (Ok(()), 0) => Plan::Done(Ok(())),
        (Ok(()), requests) => Plan::Send { requests },
        (Err(error), _) => Plan::Done(Err(error)),
    }
}

fn plan_remove(
    index: IfIndex,
    net: IpNet,
    view: &mut AddressView,
    requests: &mut Vec<NetlinkRequest>,
) -> Result<(), ApplyError> {
    match view.exact(index, net) {
        // Not seen, while not everything was seen. The next try looks again.
        None if view.has_gaps() => Err(ApplyError::Look("addresses changed all the while".to_owned())),
        // Gone already: that is what was asked for.
        None => Ok(()),
        Some(known) if !known.ours => Err(ApplyError::Foreign { index, net }),
        Some(_) => {
            view.remove(index, net);
            requests.push(delete_request(index, net));
            Ok(())
        }
    }
}

fn plan_put(
    spec: &AddressSpec,
    view: &mut AddressView,
    requests: &mut Vec<NetlinkRequest>,
    added: &mut Vec<AddressId>,
) -> Result<(), ApplyError> {
    let AddressSpec { index, net, .. } = *spec;
    if spec.lifetimes(clock::now()).is_none() {
        return Err(ApplyError::NoLifetime { net });
    }
    let same = view.same_address(index, net);
    if same.iter().any(|known| !known.ours) {
        return Err(ApplyError::Foreign { index, net });
    }
    let known = view.exact(index, net);
    // IPv6 holds an address once per interface, whatever its prefix length: a replace
    // would quietly keep the old length.
    if let (IpNet::V6(_), None, Some(other)) = (net, known, same.first()) {
        let there = other.prefix;
        return Err(ApplyError::OtherPrefix { index, net, there });
    }
    let flags = match known {
        None => NLM_F_CREATE | NLM_F_EXCL,
        // The kernel replaces lifetimes of an IPv4 address, but never this flag: the one
        // change that needs a removal. Both go in one datagram, microseconds apart.
        Some(known) if net.addr().is_ipv4() && known.no_prefix_route != spec.no_prefix_route => {
            requests.push(delete_request(index, net));
            NLM_F_CREATE | NLM_F_EXCL
        }
        Some(_) => NLM_F_CREATE | NLM_F_REPLACE,
    };
    if flags & NLM_F_EXCL != 0 {
        added.push((index, net));
    }
    requests.push(NetlinkRequest::timed(spec.clone(), put_request, flags));
    view.put(
        index,
        net,
        ShownAddress {
            prefix: net.prefix_len(),
            ours: true,
            no_prefix_route: spec.no_prefix_route,
            secondary: true,
        },
    );
    Ok(())
}

fn result_of(op: &KernelChange, answer: Result<(), NetlinkError>) -> Result<(), ApplyError> {
    let (Err(error), Some((index, net))) = (answer, target(op)) else {
        return Ok(());
    };
    let errno = match &error {
        NetlinkError::Refused(no) => Some(no.errno),
        _ => None,
    };
    match (op, errno) {
        _ if matches!(error, NetlinkError::TooLate) => Err(ApplyError::NoLifetime { net }),
        (KernelChange::Remove { .. }, Some(Errno::EADDRNOTAVAIL | Errno::ENODEV)) => Ok(()),
        (_, Some(Errno::EPERM)) => Err(ApplyError::NotPermitted),
        (KernelChange::Put(_), Some(Errno::EEXIST)) => Err(ApplyError::Appeared { index, net }),
        (KernelChange::Put(_), Some(Errno::ENODEV)) => Err(ApplyError::NoInterface { index, net }),
        (KernelChange::Put(_), Some(Errno::EACCES)) => Err(ApplyError::NoIpv6 { index, net }),
        _ => match error {
            NetlinkError::HeldUp(took) => Err(ApplyError::HeldUp { index, net, took }),
            error => Err(ApplyError::Address { index, net, error }),
        },
    }
}

fn address_message(index: IfIndex, net: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = index.0;
    message.header.prefix_len = net.prefix_len();
    message.header.family = match net {
        IpNet::V4(_) => AddressFamily::Inet,
        IpNet::V6(_) => AddressFamily::Inet6,
    };
    let ip: IpAddr = net.addr();
    message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
    message
}

fn delete_request(index: IfIndex, net: IpNet) -> NetlinkRequest {
    NetlinkRequest::new(RouteNetlinkMessage::DelAddress(address_message(index, net)), 0)
}

/// Made when it is sent: until then nobody knows how many seconds are left.
fn put_request(spec: &AddressSpec, now: Mono) -> Option<RouteNetlinkMessage> {
    spec.lifetimes(now).map(|lifetimes| RouteNetlinkMessage::NewAddress(put_message(spec, lifetimes)))
}

fn put_message(spec: &AddressSpec, lifetimes: Lifetimes) -> AddressMessage {
    let mut message = address_message(spec.index, spec.net);
    let mut cache = CacheInfo::default();
    cache.ifa_valid = lifetimes.valid.unwrap_or(INFINITE);
    cache.ifa_preferred = lifetimes.preferred.unwrap_or(INFINITE);
    let mut flags = AddressFlags::empty();
    flags.set(AddressFlags::Noprefixroute, spec.no_prefix_route);
    flags.set(AddressFlags::Nodad, spec.no_dad && spec.net.addr().is_ipv6());
    message.header.flags = AddressHeaderFlags::from_bits_truncate((flags.bits() & 0xff) as u8);
    message.attributes.extend([
        AddressAttribute::CacheInfo(cache),
        AddressAttribute::Flags(flags),
        AddressAttribute::Protocol(AddressProtocol::Other(ADDRESS_MARK)),
    ]);
    message
}

#[cfg(test)]
mod tests;
