//! What should be: who is a member, who is the best candidate for each address, as
//! the API's own state says at this moment. An oracle written apart from the engine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use purelb_core::facts::{PoolType, Rank};
use purelb_core::{NodeName, Vip};
use sha2::{Digest, Sha256};

use crate::queue::T;
use crate::setup::{MOST_NODES, Setup};
use crate::takeover::EarlyTake;
use crate::world::World;

/// A holder of an address, in its kernel, on a real interface, with the mark.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hold {
    pub since: T,
    /// Not tentative and not a duplicate: it answers.
    pub usable: bool,
    /// Its link is up with a carrier: the segment hears it.
    pub reachable: bool,
}

#[derive(Debug)]
pub struct VipTruth {
    pub vip: Vip,
    pub local: bool,
    pub segment: Option<usize>,
    scores: Vec<[u8; 32]>,
    /// A Service has it.
    pub wanted: bool,
    pub winner: Option<usize>,
    /// Who was best since when; kept for as long as a view may be old.
    pub history: VecDeque<(T, Option<usize>)>,
    pub eligible_since: Option<T>,
    /// When an object other than a Lease last changed who may hold it.
    pub objects_at: T,
    pub holds: [Option<Hold>; MOST_NODES],
    /// When this node last had it usable.
    pub last_usable: [Option<T>; MOST_NODES],
    /// Somebody took it away by hand: no rule broken.
    pub excused_until: T,
    /// Taken before its owner's Lease ran out, last time.
    pub early: Option<EarlyTake>,
    /// Who may have it, best first, and when that last changed.
    pub line: Vec<usize>,
    pub line_changed: T,
    /// Wanted, and nobody answers for it.
    pub vacant: Option<Vacant>,
}

/// An address without a holder: since when, and since when each node is able to have it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vacant {
    pub since: T,
    pub able: [Option<T>; MOST_NODES],
}

#[derive(Debug)]
pub struct Truth {
    pub vips: Vec<VipTruth>,
    pub index: BTreeMap<Vip, usize>,
    pub live: [bool; MOST_NODES],
    /// Two holders that the segment hears, and since when.
    pub pairs: BTreeMap<(usize, usize, usize), T>,
    /// Addresses that a machine of nobody answers for.
    pub squatted: BTreeSet<Vip>,
}

pub fn node_name(node: usize) -> NodeName {
    NodeName::new(&format!("node-{}", (b'a' + node as u8) as char)).expect("a valid node name")
}

impl Truth {
    pub fn new(setup: &Setup) -> Self {
        let vips: Vec<VipTruth> = setup
            .addresses
            .iter()
            .map(|a| VipTruth {
                vip: a.vip,
                local: a.local,
                segment: a.segment,
                scores: (0..setup.nodes)
                    .map(|n| Sha256::digest(format!("{}#{}", node_name(n), a.vip)).into())
                    .collect(),
                wanted: false,
                winner: None,
                history: VecDeque::from([(0, None)]),
                eligible_since: None,
                objects_at: 0,
                holds: [None; MOST_NODES],
                last_usable: [None; MOST_NODES],
                excused_until: 0,
                vacant: None,
                early: None,
                line: Vec::new(),
                line_changed: 0,
            })
            .collect();
        Self {
            index: vips.iter().enumerate().map(|(i, v)| (v.vip, i)).collect(),
            vips,
            live: [false; MOST_NODES],
            pairs: BTreeMap::new(),
            squatted: BTreeSet::new(),
        }
    }
}

impl VipTruth {
    pub fn score(&self, node: usize) -> &[u8; 32] {
        &self.scores[node]
    }

    pub fn holders(&self) -> Vec<usize> {
        (0..MOST_NODES).filter(|n| self.holds[*n].is_some()).collect()
    }

    pub fn usable_count(&self) -> usize {
        self.holds.iter().flatten().filter(|h| h.usable).count()
    }

    /// Was this node the best candidate at some time since `from`?
    pub fn was_winner_since(&self, node: usize, from: T) -> bool {
        let mut until = T::MAX;
        for (at, winner) in self.history.iter().rev() {
            if until < from {
                return false;
            }
            if *winner == Some(node) {
                return true;
            }
            until = *at;
        }
        false
    }
}

/// What the Services that share one address ask for.
#[derive(Debug, Default)]
pub(crate) struct Wish {
    pub(crate) wanted: bool,
    /// Nodes that may hold it, if endpoints restrict them.
    pub(crate) only: Option<BTreeSet<NodeName>>,
    prefer: Option<BTreeSet<NodeName>>,
}

impl World {
    fn endpoint_nodes(&self, service: &purelb_core::ObjectKey) -> BTreeSet<NodeName> {
        self.api
            .endpoints
            .values()
            .filter(|e| e.service == *service)
            .flat_map(|e| e.nodes.iter().cloned())
            .collect()
    }

    /// May this node have an address of a remote pool? `None`: nobody asks for it.
    pub fn remote_wanted(&self, node: usize, vip: Vip) -> Option<bool> {
        let wish = self.wish(vip, PoolType::Remote);
        let name = &self.nodes[node].name;
        wish.wanted.then(|| wish.only.is_none_or(|only| only.contains(name)))
    }

    fn kind_of(&self, service: &purelb_core::facts::ServiceFacts) -> Option<PoolType> {
        self.api.groups.get(service.group.as_deref()?).map(|group| group.pool)
    }

    pub(crate) fn wish(&self, vip: Vip, pool: PoolType) -> Wish {
        let mut wish = Wish::default();
        let mut any = BTreeSet::new();
        let mut sharers: Vec<_> = self
            .api
            .services
            .values()
            .filter(|s| s.vips.contains(&vip) && self.kind_of(s) == Some(pool))
            .collect();
        wish.wanted = !sharers.is_empty();
        // A Service without endpoints does not take the address from its sharers.
        if sharers.len() > 1 {
            let served = |s: &&purelb_core::facts::ServiceFacts| {
                !s.only_local_endpoints || !self.endpoint_nodes(&s.key).is_empty()
            };
            if sharers.iter().any(served) {
                sharers.retain(served);
            }
        }
        for service in sharers {
            if service.only_local_endpoints {
                let nodes = self.endpoint_nodes(&service.key);
                any.extend(nodes.iter().cloned());
                wish.only = Some(match wish.only.take() {
                    None => nodes,
                    Some(earlier) => earlier.intersection(&nodes).cloned().collect(),
                });
            } else if service.prefer_endpoints {
                let nodes = self.endpoint_nodes(&service.key);
                wish.prefer.get_or_insert_default().extend(nodes);
            }
        }
        // Where no node has endpoints of all sharers, one with some will do.
        if wish.only.as_ref().is_some_and(BTreeSet::is_empty) {
            wish.only = Some(any);
        }
        wish
    }

    /// When its Lease runs out, by its owner's word: what others edit into it changes
    /// nothing.
    pub fn lease_ends(&self, node: usize) -> Option<T> {
        self.api.leases.get(&self.nodes[node].name).map(|l| l.applied + l.duration)
    }

    pub fn lease_live(&self, node: usize) -> bool {
        self.lease_ends(node).is_some_and(|end| self.now < end)
    }

    /// A live member that could hold an address, leaving drains aside.
    pub fn covers(&self, node: usize, vip: Vip) -> bool {
        let name = &self.nodes[node].name;
        self.truth.live[node]
            && self.api.nodes.get(name).is_some_and(|n| !n.out_of_service)
            && self
                .api
                .leases
                .get(name)
                .is_some_and(|l| l.facts.subnets.iter().any(|s| s.contains(&vip.ip())))
    }

    fn draining(&self, node: usize) -> bool {
        self.api.leases.get(&self.nodes[node].name).is_some_and(|l| l.facts.draining.is_some())
    }

    pub fn declines(&self, node: usize, vip: Vip) -> bool {
        let lease = self.api.leases.get(&self.nodes[node].name);
        lease.and_then(|l| l.facts.declined.as_ref()).is_some_and(|d| d.contains(&vip))
    }

    /// Ranks count while every live member has one.
    fn ranks_last(&self, node: usize) -> bool {
        let rank = |n: usize| self.api.leases.get(&self.nodes[n].name).and_then(|l| l.facts.rank);
        let known = |n: usize| !self.truth.live[n] || rank(n).is_some();
        rank(node) == Some(Rank::Last) && (0..self.nodes.len()).all(known)
    }

    /// Best first. `wanted` = false: no Service has it.
    pub fn candidates(&self, vip: usize) -> (bool, Vec<usize>) {
        let truth = &self.truth.vips[vip];
        let wish = self.wish(truth.vip, PoolType::Local);
        if !wish.wanted {
            return (false, Vec::new());
        }
        let mut nodes: Vec<usize> = (0..self.nodes.len())
            .filter(|n| self.covers(*n, truth.vip) && !self.draining(*n) && !self.declines(*n, truth.vip))
            .filter(|n| wish.only.as_ref().is_none_or(|only| only.contains(&self.nodes[*n].name)))
            .collect();
        // Who ranks last loses against everybody else, preferred or not.
        if nodes.iter().any(|n| !self.ranks_last(*n)) {
            nodes.retain(|n| !self.ranks_last(*n));
        }
        if let Some(prefer) = &wish.prefer
            && nodes.iter().any(|n| prefer.contains(&self.nodes[*n].name))
        {
            nodes.retain(|n| prefer.contains(&self.nodes[*n].name));
        }
        nodes.sort_by_key(|n| truth.scores[*n]);
        (true, nodes)
    }

    /// A Service, an endpoint or a Node changed; `None`: it concerns every address.
    pub fn objects_changed(&mut self, vips: Option<&BTreeSet<Vip>>) {
        let now = self.now;
        for truth in &mut self.truth.vips {
            if vips.is_none_or(|some| some.contains(&truth.vip)) {
                truth.objects_at = now;
            }
        }
        self.refresh_truth();
    }

    /// After anything that can change who should hold what.
    pub fn refresh_truth(&mut self) {
        for node in 0..self.nodes.len() {
            self.truth.live[node] = self.lease_live(node);
        }
        let keep = self.now.saturating_sub(2 * self.margin());
        for vip in 0..self.truth.vips.len() {
            if !self.truth.vips[vip].local {
                continue;
            }
            let (wanted, nodes) = self.candidates(vip);
            let winner = nodes.first().copied();
            let now = self.now;
            let truth = &mut self.truth.vips[vip];
            truth.wanted = wanted;
            if truth.line != nodes {
                truth.line = nodes;
                truth.line_changed = now;
            }
            if winner.is_none() {
                truth.eligible_since = None;
            } else if truth.eligible_since.is_none() {
                truth.eligible_since = Some(now);
            }
            if truth.winner != winner {
                truth.winner = winner;
                truth.history.push_back((now, winner));
                while truth.history.len() > 2 && truth.history[1].0 < keep {
                    truth.history.pop_front();
                }
                let vip = truth.vip;
                self.log(|w| {
                    let name = winner.map_or("nobody", |n| w.nodes[n].name.as_str());
                    format!("truth: {vip} belongs to {name}")
                });
            }
        }
    }
}
