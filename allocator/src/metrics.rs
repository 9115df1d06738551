//! What the allocator counts. Labels are names of ServiceGroups, which only
//! administrators create, and words out of fixed lists; series go with their group.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use purelb_core::Family as IpFamily;
use purelb_core::allocation::AllocationTally;
use purelb_core::pools::GroupStats;

/// Why a request to the API server failed.
pub const API_ERRORS: [&str; 8] =
    ["timeout", "unreachable", "unauthorized", "forbidden", "conflict", "throttled", "server", "other"];
/// Sizes may be larger than any integer.
type Size = Gauge<f64, std::sync::atomic::AtomicU64>;

#[derive(Clone, Debug, Hash, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct Pool {
    pool: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct PoolFamily {
    pool: String,
    family: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Build {
    program: &'static str,
    version: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct Rejection {
    pool: String,
    reason: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    outcome: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct Rpc {
    socket: String,
    method: String,
    code: String,
}

/// Series that have to go when their group goes.
#[derive(Debug, Default)]
struct Seen {
    pools: BTreeSet<String>,
    rejections: BTreeSet<Rejection>,
    rpcs: BTreeSet<Rpc>,
}

#[derive(Debug)]
struct Inner {
    registry: Registry,
    size: Family<Pool, Size>,
    in_use: Family<Pool, Gauge>,
    family_size: Family<PoolFamily, Size>,
    family_in_use: Family<PoolFamily, Gauge>,
    api_requests: Counter,
    api_errors: Family<Kind, Counter>,
    rejected: Family<Rejection, Counter>,
    multi: Family<Pool, Counter>,
    partial: Family<Pool, Counter>,
    balanced: Family<Pool, Counter>,
    status_writes: Family<Outcome, Counter>,
    rpc: Family<Rpc, Counter>,
    out_of_scope: Gauge,
    waiting: Gauge,
    leader: Gauge,
    seen: Mutex<Seen>,
}

#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("purelb");
        let inner = Inner {
            size: Family::default(),
            in_use: Family::default(),
            family_size: Family::default(),
            family_in_use: Family::default(),
            api_requests: Counter::default(),
            api_errors: Family::default(),
            rejected: Family::default(),
            multi: Family::default(),
            partial: Family::default(),
            balanced: Family::default(),
            status_writes: Family::default(),
            rpc: Family::default(),
            out_of_scope: Gauge::default(),
            waiting: Gauge::default(),
            leader: Gauge::default(),
            seen: Mutex::default(),
            registry: Registry::default(),
        };
        let pools = registry.sub_registry_with_prefix("address_pool");
        pools.register("size", "Addresses Services can get", inner.size.clone());
        pools.register("addresses_in_use", "Addresses Services have", inner.in_use.clone());
        pools.register("family_size", "The same of one address family", inner.family_size.clone());
        pools.register("family_in_use", "The same of one address family", inner.family_in_use.clone());
        pools.register("allocation_rejected", "Requests refused, by reason", inner.rejected.clone());
        pools.register("multipool_allocations", "Multi-pool allocations", inner.multi.clone());
        pools.register(
            "multipool_partial",
            "Multi-pool allocations not of every range",
            inner.partial.clone(),
        );
        pools.register("balance_pools_allocations", "Balanced allocations", inner.balanced.clone());
        let own = registry.sub_registry_with_prefix("allocator");
        own.register("sg_status_writes", "Writes of ServiceGroup statuses", inner.status_writes.clone());
        own.register("sidecar_rpc", "Calls of external address providers", inner.rpc.clone());
        own.register("services_waiting", "Services that wait for an address", inner.waiting.clone());
        own.register("leader", "1 on the replica that allocates", inner.leader.clone());
        registry.register("api_requests", "Requests to the API server", inner.api_requests.clone());
        registry.register(
            "api_errors",
            "Requests to the API server that failed, by kind",
            inner.api_errors.clone(),
        );
        // A counter that first appears with a 1 shows no increase.
        for kind in API_ERRORS {
            drop(inner.api_errors.get_or_create(&Kind { kind }));
        }
        let build = Family::<Build, Gauge>::default();
        registry.register("build_info", "Which program this is", build.clone());
        let labels = Build { program: "purelb-allocator", version: env!("CARGO_PKG_VERSION") };
        build.get_or_create(&labels).set(1);
        registry.register(
            "servicegroups_out_of_scope",
            "ServiceGroups outside the namespace they are read from",
            inner.out_of_scope.clone(),
        );
        Self(Arc::new(Inner { registry, ..inner }))
    }

    /// A decision that was carried out.
    pub fn count(&self, tally: &AllocationTally) {
        let inner = &self.0;
        let mut seen = inner.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = tally.refused {
            // A Service can name any group: only one that exists is worth a series.
            let named = tally.group.as_ref().map(|group| group.name().to_owned());
            let pool = named.filter(|pool| seen.pools.contains(pool)).unwrap_or_default();
            let labels = Rejection { pool, reason: reason.to_owned() };
            inner.rejected.get_or_create(&labels).inc();
            seen.rejections.insert(labels);
            return;
        }
        let Some(group) = &tally.group else { return };
        let pool = Pool { pool: group.name().to_owned() };
        for (counts, family) in [
            (tally.multi_pool, &inner.multi),
            (tally.partial, &inner.partial),
            (tally.balanced, &inner.balanced),
        ] {
            if counts {
                family.get_or_create(&pool).inc();
            }
        }
    }

    /// The groups there are, and how full they are.
    pub fn pools(&self, groups: &[(String, GroupStats)]) {
        let inner = &self.0;
        let mut seen = inner.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let present: BTreeSet<String> = groups.iter().map(|(name, _)| name.clone()).collect();
        for (name, stats) in groups {
            let pool = Pool { pool: name.clone() };
            #[expect(clippy::cast_precision_loss, reason = "a gauge of 2^64 addresses need not be exact")]
            inner.size.get_or_create(&pool).set(stats.v4.size.saturating_add(stats.v6.size) as f64);
            let used = stats.v4.in_use + stats.v6.in_use + stats.v4.outside + stats.v6.outside;
            inner.in_use.get_or_create(&pool).set(i64::try_from(used).unwrap_or(i64::MAX));
            for (labels, family) in families(name) {
                let stats = stats.family(family);
                // An IPv6 range would hide that the IPv4 addresses are used up. What has
                // no range here has no size to be used up.
                if stats.size == 0 && stats.in_use == 0 {
                    inner.family_size.remove(&labels);
                    inner.family_in_use.remove(&labels);
                    continue;
                }
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "a gauge of 2^64 addresses need not be exact"
                )]
                inner.family_size.get_or_create(&labels).set(stats.size as f64);
                let used = i64::try_from(stats.in_use).unwrap_or(i64::MAX);
                inner.family_in_use.get_or_create(&labels).set(used);
            }
        }
        for gone in seen.pools.difference(&present) {
            let pool = Pool { pool: gone.clone() };
            inner.size.remove(&pool);
            inner.in_use.remove(&pool);
            inner.multi.remove(&pool);
            inner.partial.remove(&pool);
            inner.balanced.remove(&pool);
            for (labels, _) in families(gone) {
                inner.family_size.remove(&labels);
                inner.family_in_use.remove(&labels);
            }
        }
        seen.rejections.retain(|labels| {
            let stays = labels.pool.is_empty() || present.contains(&labels.pool);
            if !stays {
                inner.rejected.remove(labels);
            }
            stays
        });
        seen.pools = present;
    }

    pub fn api_request(&self) {
        self.0.api_requests.inc();
    }

    /// One of [`API_ERRORS`].
    pub fn api_error(&self, kind: &'static str) {
        self.0.api_errors.get_or_create(&Kind { kind }).inc();
    }

    pub fn status_write(&self, ok: bool) {
        let outcome = if ok { "success" } else { "failure" }.to_owned();
        self.0.status_writes.get_or_create(&Outcome { outcome }).inc();
    }

    pub fn rpc(&self, socket: &str, method: &str, code: &str) {
        let labels = Rpc { socket: socket.to_owned(), method: method.to_owned(), code: code.to_owned() };
        self.0.rpc.get_or_create(&labels).inc();
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner).rpcs.insert(labels);
    }

    /// Series of sockets no group names any more go.
    pub fn retain_sockets(&self, sockets: &BTreeSet<String>) {
        let mut seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.rpcs.retain(|labels| {
            let stays = sockets.contains(&labels.socket);
            if !stays {
                self.0.rpc.remove(labels);
            }
            stays
        });
    }

    pub fn out_of_scope(&self, count: usize) {
        self.0.out_of_scope.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub fn waiting(&self, count: usize) {
        self.0.waiting.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Who does not lead does not know how full the pools are, and says nothing of them.
    pub fn leader(&self, leads: bool) {
        self.0.leader.set(i64::from(leads));
        if !leads {
            self.pools(&[]);
            self.waiting(0);
        }
    }

    /// In the text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.0.registry).expect("writing to a String does not fail");
        text
    }
}

fn families(pool: &str) -> [(PoolFamily, IpFamily); 2] {
    let of = |family, word| (PoolFamily { pool: pool.to_owned(), family: word }, family);
    [of(IpFamily::V4, "ipv4"), of(IpFamily::V6, "ipv6")]
}

#[cfg(test)]
mod tests {
    use purelb_core::pools::GroupName;

    use super::*;

    #[test]
    fn names_as_dashboards_know_them_and_series_go_with_their_group() {
        let metrics = Metrics::new();
        let mut stats = GroupStats::default();
        (stats.v4.size, stats.v4.in_use) = (50, 3);
        stats.v6.size = 1 << 64;
        metrics.pools(&[("default".into(), stats)]);
        let group = Some(GroupName::of("purelb-system", "default").unwrap());
        metrics.count(&AllocationTally {
            group: group.clone(),
            refused: Some("exhausted"),
            ..AllocationTally::default()
        });
        metrics.count(&AllocationTally {
            group,
            multi_pool: true,
            partial: true,
            ..AllocationTally::default()
        });
        let nobody = Some(GroupName::of("purelb-system", "made-up").unwrap());
        metrics.count(&AllocationTally {
            group: nobody,
            refused: Some("no_such_group"),
            ..AllocationTally::default()
        });
        metrics.status_write(true);
        metrics.rpc("/s", "Allocate", "OK");
        let text = metrics.text();
        for line in [
            "purelb_address_pool_size{pool=\"default\"} 1",
            "purelb_address_pool_family_size{pool=\"default\",family=\"ipv4\"} 50.0",
            "purelb_address_pool_family_in_use{pool=\"default\",family=\"ipv4\"} 3",
            "purelb_address_pool_family_in_use{pool=\"default\",family=\"ipv6\"} 0",
            "purelb_build_info{program=\"purelb-allocator\",version=",
            "purelb_address_pool_addresses_in_use{pool=\"default\"} 3",
            "purelb_address_pool_allocation_rejected_total{pool=\"default\",reason=\"exhausted\"} 1",
            "purelb_address_pool_allocation_rejected_total{pool=\"\",reason=\"no_such_group\"} 1",
            "purelb_address_pool_multipool_allocations_total{pool=\"default\"} 1",
            "purelb_address_pool_multipool_partial_total{pool=\"default\"} 1",
            "purelb_allocator_sg_status_writes_total{outcome=\"success\"} 1",
            "purelb_allocator_sidecar_rpc_total{socket=\"/s\",method=\"Allocate\",code=\"OK\"} 1",
            "purelb_servicegroups_out_of_scope 0",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        metrics.leader(false);
        metrics.retain_sockets(&BTreeSet::new());
        let text = metrics.text();
        assert!(!text.contains("\"default\"") && !text.contains("\"/s\""), "{text}");
    }
}
