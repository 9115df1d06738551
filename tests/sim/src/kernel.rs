//! A node's kernel: links, addresses that expire by themselves, default routes.
//! It outlives the process, and knows nothing of elections.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use purelb_core::facts::{AddrFacts, DefaultRoute, LinkFacts};
use purelb_core::messages::{AddressSpec, FactsUpdate, Input, KernelDump};
use purelb_core::{IfIndex, IfName, Vip};

use crate::queue::{SEC, T};

pub const ETH0: IfIndex = IfIndex(2);
pub const ETH1: IfIndex = IfIndex(3);
pub const DUMMY: IfIndex = IfIndex(50);

#[derive(Clone, Debug)]
pub struct Link {
    pub facts: LinkFacts,
    /// `None`: the dummy and the loopback reach nobody.
    pub segment: Option<usize>,
}

#[derive(Clone, Debug)]
pub struct Addr {
    pub facts: AddrFacts,
    pub token: u64,
    pub valid_until: Option<T>,
    pub since: T,
}

#[derive(Clone, Debug, Default)]
pub struct Kernel {
    pub links: BTreeMap<IfIndex, Link>,
    pub addrs: Vec<Addr>,
    pub routes: Vec<DefaultRoute>,
    tokens: u64,
}

/// What a successful change asks the world to plan.
#[derive(Debug, Default)]
pub struct Planned {
    pub expire: Option<(u64, T)>,
    pub dad: Option<u64>,
    pub notify: Vec<Input>,
}

pub fn link(index: IfIndex, name: &str, segment: Option<usize>) -> Link {
    Link {
        facts: LinkFacts {
            index,
            name: IfName::new(name).expect("a valid interface name"),
            loopback: false,
            up: true,
            carrier: true,
            mac: None,
            ours: segment.is_none(),
        },
        segment,
    }
}

pub fn plain(index: IfIndex, net: IpNet, ours: bool) -> AddrFacts {
    let link_local = match net.addr() {
        IpAddr::V4(_) => false,
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    };
    AddrFacts {
        index,
        net,
        ours,
        link_local,
        tentative: false,
        dad_failed: false,
        deprecated: false,
        permanent: true,
        no_prefix_route: false,
    }
}

impl Kernel {
    fn token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    pub fn find(&self, index: IfIndex, net: IpNet) -> Option<&Addr> {
        self.addrs.iter().find(|a| a.facts.index == index && a.facts.net == net)
    }

    pub fn by_token(&mut self, token: u64) -> Option<&mut Addr> {
        self.addrs.iter_mut().find(|a| a.token == token)
    }

    /// Marked addresses of this VIP, on any link.
    pub fn marked(&self, vip: Vip) -> impl Iterator<Item = &Addr> {
        self.addrs.iter().filter(move |a| a.facts.ours && a.facts.vip() == vip)
    }

    pub fn usable(&self, index: IfIndex) -> bool {
        self.links.get(&index).is_some_and(|l| l.facts.usable())
    }

    /// Own, permanent addresses: what an administrator configures.
    pub fn add_foreign(&mut self, now: T, index: IfIndex, net: IpNet) -> Option<Input> {
        if self.find(index, net).is_some() || !self.links.contains_key(&index) {
            return None;
        }
        let (facts, token) = (plain(index, net, false), self.token());
        self.addrs.push(Addr { facts: facts.clone(), token, valid_until: None, since: now });
        Some(Input::AddressSet(facts))
    }

    /// Adds or replaces, as the kernel does. `late` is how much past its lifetime
    /// the address will still stand.
    pub fn put(&mut self, now: T, spec: &AddressSpec) -> Result<Planned, String> {
        let Some(link) = self.links.get(&spec.index) else {
            return Err("No such device (os error 19)".into());
        };
        let v6 = matches!(spec.net.addr(), IpAddr::V6(_));
        if v6 && !link.facts.up {
            return Err("Network is down (os error 100)".into());
        }
        let dummy = link.segment.is_none();
        let valid_until = spec.valid.map(|s| now + u64::from(s) * SEC);
        if spec.valid == Some(0) {
            return Err("Invalid argument (os error 22)".into());
        }
        let mut planned = Planned::default();
        if let Some(old) =
            self.addrs.iter_mut().find(|a| a.facts.index == spec.index && a.facts.net == spec.net)
        {
            // An expiry already planned looks at `valid_until` when it comes, which
            // is too late only if the end moves closer.
            if let Some(at) = valid_until
                && old.valid_until.is_none_or(|planned| at < planned)
            {
                planned.expire = Some((old.token, at));
            }
            old.valid_until = valid_until;
            old.facts.permanent = spec.valid.is_none();
            old.facts.deprecated = spec.preferred == Some(0);
            old.facts.no_prefix_route = spec.no_prefix_route;
            planned.notify.push(Input::AddressSet(old.facts.clone()));
            return Ok(planned);
        }
        if v6
            && self.addrs.iter().any(|a| a.facts.index == spec.index && a.facts.net.addr() == spec.net.addr())
        {
            return Err("File exists (os error 17)".into());
        }
        let token = self.token();
        let tentative = v6 && !spec.no_dad && !dummy;
        let facts = AddrFacts {
            tentative,
            deprecated: spec.preferred == Some(0),
            permanent: spec.valid.is_none(),
            no_prefix_route: spec.no_prefix_route,
            ..plain(spec.index, spec.net, true)
        };
        planned.notify.push(Input::AddressSet(facts.clone()));
        planned.expire = valid_until.map(|at| (token, at));
        planned.dad = tentative.then_some(token);
        self.addrs.push(Addr { facts, token, valid_until, since: now });
        Ok(planned)
    }

    pub fn remove(&mut self, index: IfIndex, net: IpNet) -> Result<Input, String> {
        let Some(i) = self.addrs.iter().position(|a| a.facts.index == index && a.facts.net == net) else {
            return Err("Cannot assign requested address (os error 99)".into());
        };
        self.addrs.remove(i);
        Ok(Input::AddressGone { index, net })
    }

    pub fn ensure_dummy(&mut self, name: &IfName) -> Vec<Input> {
        if self.links.values().any(|l| l.facts.name == *name) {
            return Vec::new();
        }
        let new = link(DUMMY, name.as_str(), None);
        let facts = new.facts.clone();
        self.links.insert(DUMMY, new);
        vec![Input::Link(FactsUpdate::Set(facts))]
    }

    /// The addresses on it go with it.
    pub fn remove_link(&mut self, index: IfIndex) -> Vec<Input> {
        if self.links.remove(&index).is_none() {
            return Vec::new();
        }
        let mut notify = self.drop_where(|a| a.facts.index == index);
        notify.push(Input::Link(FactsUpdate::Gone(index)));
        notify
    }

    fn drop_where(&mut self, gone: impl Fn(&Addr) -> bool) -> Vec<Input> {
        let mut notify = Vec::new();
        self.addrs.retain(|a| {
            let gone = gone(a);
            if gone {
                notify.push(Input::AddressGone { index: a.facts.index, net: a.facts.net });
            }
            !gone
        });
        notify
    }

    /// Taking a link down flushes its IPv6 addresses that are not permanent, and
    /// all its routes; coming up brings the routes of its own addresses back.
    pub fn set_link(&mut self, index: IfIndex, up: bool, carrier: bool) -> Vec<Input> {
        let Some(link) = self.links.get_mut(&index) else {
            return Vec::new();
        };
        if link.facts.up == up && link.facts.carrier == carrier {
            return Vec::new();
        }
        link.facts.up = up;
        link.facts.carrier = carrier && up;
        let mut notify = vec![Input::Link(FactsUpdate::Set(link.facts.clone()))];
        if !up {
            notify.extend(self.drop_where(|a| {
                a.facts.index == index && !a.facts.permanent && matches!(a.facts.net.addr(), IpAddr::V6(_))
            }));
        }
        notify
    }

    pub fn dump(&self) -> KernelDump {
        KernelDump {
            links: self.links.values().map(|l| l.facts.clone()).collect(),
            addresses: self.addrs.iter().map(|a| a.facts.clone()).collect(),
            default_routes: self.routes.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> Kernel {
        let mut kernel = Kernel::default();
        kernel.links.insert(ETH0, link(ETH0, "eth0", Some(0)));
        kernel
    }

    fn spec(net: &str) -> AddressSpec {
        AddressSpec {
            index: ETH0,
            net: net.parse().unwrap(),
            until: None,
            valid: Some(6),
            preferred: None,
            no_prefix_route: true,
            no_dad: false,
        }
    }

    #[test]
    fn ipv6_starts_tentative_and_ipv4_does_not() {
        let mut k = kernel();
        assert!(k.put(0, &spec("fd00::1/64")).unwrap().dad.is_some());
        assert!(k.put(0, &spec("10.0.0.1/24")).unwrap().dad.is_none());
        let calm = AddressSpec { no_dad: true, ..spec("fd00::2/64") };
        assert!(k.put(0, &calm).unwrap().dad.is_none());
    }

    #[test]
    fn a_refresh_moves_the_end_and_plans_nothing_anew() {
        let mut k = kernel();
        assert_eq!(k.put(0, &spec("10.0.0.1/24")).unwrap().expire.unwrap().1, 6 * SEC);
        let again = k.put(3 * SEC, &spec("10.0.0.1/24")).unwrap();
        assert!(again.expire.is_none());
        assert_eq!(k.addrs[0].valid_until, Some(9 * SEC));
        assert_eq!(k.addrs.len(), 1);
    }

    #[test]
    fn link_down_takes_ipv6_service_addresses_and_leaves_ipv4() {
        let mut k = kernel();
        k.put(0, &spec("fd00::1/64")).unwrap();
        k.put(0, &spec("10.0.0.1/24")).unwrap();
        let notify = k.set_link(ETH0, false, true);
        assert_eq!(notify.len(), 2);
        assert_eq!(k.addrs.len(), 1);
        assert!(k.put(0, &spec("fd00::1/64")).is_err());
    }
}
