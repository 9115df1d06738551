//! A ServiceGroup, checked: what the schema already refused, and what only code can
//! see. The allocator and the daemons work with this, never with the raw object.

use std::collections::BTreeSet;

use kube::ResourceExt;
use purelb_core::facts::{ConfigProblem, FencePolicy, GroupFacts, PoolType, RangeFacts};
use purelb_core::pools::{Aggregation, Group, GroupName, PoolText, Range, RangeError, RangeRules};
use purelb_core::{Family, ObjectKey, Vip};

use super::{AddressPool, ExternalSource, NetboxSource, PoolSet, SecretKey, ServiceGroup};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    pub key: ObjectKey,
    /// Creation time in seconds; only its order counts.
    pub created: i64,
    pub source: Source,
    pub namespaces: BTreeSet<String>,
    pub namespace_default: bool,
    pub enforce_namespaces: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Ranges(Ranges),
    Netbox(Netbox),
    External(External),
}

/// Ranges kept in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    pub announce: PoolType,
    /// The ranges, IPv4 first, in declaration order, with what the allocator does
    /// with them.
    pub group: Group,
    pub skip_ipv6_dad: bool,
    pub fence_policy: Option<FencePolicy>,
    pub multi_pool: bool,
    pub balance_pools: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Netbox {
    pub url: String,
    pub tenant: String,
    pub aggregation: Option<u8>,
    /// Secret name and key; `None` = from the environment.
    pub token: Option<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    pub provider: String,
    pub socket: String,
    pub announce: PoolType,
}

impl GroupConfig {
    pub fn announce(&self) -> PoolType {
        match &self.source {
            Source::Ranges(ranges) => ranges.announce,
            Source::Netbox(_) => PoolType::Remote,
            Source::External(external) => external.announce,
        }
    }

    /// The part of the spec that a node needs.
    pub fn facts(&self) -> GroupFacts {
        let (ranges, skip_ipv6_dad) = match &self.source {
            Source::Ranges(ranges) => {
                (ranges.group.ranges().iter().map(range_facts).collect(), ranges.skip_ipv6_dad)
            }
            Source::Netbox(_) | Source::External(_) => (Vec::new(), false),
        };
        GroupFacts {
            name: self.key.name().to_owned(),
            created: self.created,
            pool: self.announce(),
            ranges,
            provided: !matches!(self.source, Source::Ranges(_)),
            aggregation: match &self.source {
                Source::Netbox(netbox) => netbox.aggregation,
                Source::Ranges(_) | Source::External(_) => None,
            },
            skip_ipv6_dad,
            fence_policy: match &self.source {
                Source::Ranges(ranges) => ranges.fence_policy,
                Source::Netbox(_) | Source::External(_) => None,
            },
            retained: BTreeSet::new(),
        }
    }
}

fn range_facts(range: &Range) -> RangeFacts {
    let aggregation = match range.aggregation() {
        Aggregation::Subnet => None,
        Aggregation::Prefix(length) => Some(length),
    };
    let (first, last) = (range.span().first(), range.span().last());
    RangeFacts { subnet: range.subnet(), first, last, aggregation }
}

/// Says which field is wrong, with the path a user finds in the object.
struct Check<'a> {
    key: &'a ObjectKey,
    created: i64,
    rules: &'a RangeRules,
}

impl Check<'_> {
    fn wrong<T>(&self, field: impl Into<String>, message: impl ToString) -> Result<T, ConfigProblem> {
        Err(ConfigProblem { object: self.key.clone(), field: field.into(), message: message.to_string() })
    }

    fn range<T>(&self, RangeError { field, problem }: RangeError) -> Result<T, ConfigProblem> {
        self.wrong(field, problem)
    }
}

/// Reads a group, or says what is wrong with it. `rules`: which addresses are never
/// given; a range with none left is refused.
pub fn parse(object: &ServiceGroup, rules: &RangeRules) -> Result<GroupConfig, ConfigProblem> {
    let key = object_key(object);
    let created = object.creation_timestamp().map_or(0, |t| t.0.as_second());
    let check = Check { key: &key, created, rules };
    let spec = &object.spec;
    let source = match (&spec.local, &spec.remote, &spec.netbox, &spec.external) {
        (Some(set), None, None, None) => Source::Ranges(ranges(&check, "spec.local", set, PoolType::Local)?),
        (None, Some(set), None, None) => {
            Source::Ranges(ranges(&check, "spec.remote", set, PoolType::Remote)?)
        }
        (None, None, Some(source), None) => Source::Netbox(netbox(&check, source)?),
        (None, None, None, Some(source)) => Source::External(external(&check, source)?),
        _ => return check.wrong("spec", "give exactly one of local, remote, netbox and external"),
    };
    for (set, field) in [
        (spec.namespace_default, "spec.namespaceDefault"),
        (spec.enforce_namespaces, "spec.enforceNamespaces"),
    ] {
        if set && spec.namespaces.is_empty() {
            return check.wrong(field, "needs a non-empty list in spec.namespaces");
        }
    }
    Ok(GroupConfig {
        source,
        namespaces: spec.namespaces.iter().cloned().collect(),
        namespace_default: spec.namespace_default,
        enforce_namespaces: spec.enforce_namespaces,
        created,
        key,
    })
}

/// Held by Services though no range has them any more: the allocator's word, in the
/// status, which nobody else may write.
pub fn retained(object: &ServiceGroup) -> BTreeSet<Vip> {
    let listed = object.status.iter().flat_map(|status| &status.retained);
    listed.filter_map(|ip| ip.parse().ok()).collect()
}

/// Objects from the API server have both names; one made by hand may not.
pub(crate) fn object_key<K: ResourceExt>(object: &K) -> ObjectKey {
    let namespace = object.namespace().unwrap_or_default();
    ObjectKey::of(&namespace, &object.name_any())
        .unwrap_or_else(|_| ObjectKey::new("invalid/name").expect("a valid key"))
}

fn ranges(check: &Check<'_>, at: &str, set: &PoolSet, announce: PoolType) -> Result<Ranges, ConfigProblem> {
    let mut ranges = family_ranges(check, at, Family::V4, set.v4pool.as_ref(), &set.v4pools)?;
    ranges.extend(family_ranges(check, at, Family::V6, set.v6pool.as_ref(), &set.v6pools)?);
    if ranges.is_empty() {
        return check.wrong(at, "give at least one of v4pool, v4pools, v6pool and v6pools");
    }
    if set.multi_pool && set.balance_pools {
        return check.wrong(format!("{at}.multiPool"), "multiPool and balancePools exclude each other");
    }
    let fence_policy = match (set.fence_policy.as_deref(), announce) {
        (None, _) => None,
        (Some(_), PoolType::Remote) => {
            return check
                .wrong(format!("{at}.fencePolicy"), "is for local pools: a remote address is not fenced");
        }
        (Some("Ride"), PoolType::Local) => Some(FencePolicy::Ride),
        (Some("Strict"), PoolType::Local) => Some(FencePolicy::Strict),
        (Some(_), PoolType::Local) => {
            return check.wrong(format!("{at}.fencePolicy"), "must be Ride or Strict");
        }
    };
    let name = GroupName::from(check.key.clone());
    let group = Group::new(name, check.created, ranges).or_else(|e| check.range(e))?;
    Ok(Ranges {
        announce,
        group,
        skip_ipv6_dad: set.skip_ipv6_dad,
        fence_policy,
        multi_pool: set.multi_pool,
        balance_pools: set.balance_pools,
    })
}

fn family_ranges(
    check: &Check<'_>,
    at: &str,
    family: Family,
    one: Option<&AddressPool>,
    many: &[AddressPool],
) -> Result<Vec<Range>, ConfigProblem> {
    let (single, plural) = match family {
        Family::V4 => ("v4pool", "v4pools"),
        Family::V6 => ("v6pool", "v6pools"),
    };
    let read = |field: String, raw: &AddressPool| {
        let text = PoolText { pool: &raw.pool, subnet: &raw.subnet, aggregation: &raw.aggregation };
        Range::parse(&field, text, family, check.rules).or_else(|e| check.range(e))
    };
    match one {
        Some(_) if !many.is_empty() => {
            check.wrong(format!("{at}.{single}"), format!("{single} and {plural} exclude each other"))
        }
        Some(one) => Ok(vec![read(format!("{at}.{single}"), one)?]),
        None => many.iter().enumerate().map(|(i, raw)| read(format!("{at}.{plural}[{i}]"), raw)).collect(),
    }
}

fn aggregation(check: &Check<'_>, at: &str, text: &str, bits: u8) -> Result<Option<u8>, ConfigProblem> {
    if text == "default" {
        return Ok(None);
    }
    match text.strip_prefix('/').and_then(|n| n.parse::<u8>().ok()) {
        Some(n) if (8..=bits).contains(&n) => Ok(Some(n)),
        _ => {
            let message = format!("must be `default` or a prefix length from /8 to /{bits}");
            check.wrong(format!("{at}.aggregation"), message)
        }
    }
}

fn netbox(check: &Check<'_>, raw: &NetboxSource) -> Result<Netbox, ConfigProblem> {
    let rest = raw.url.strip_prefix("https://").or_else(|| raw.url.strip_prefix("http://"));
    if rest.is_none_or(|r| r.is_empty() || r.starts_with('/')) {
        return check.wrong("spec.netbox.url", "must be an http or https address");
    }
    if raw.tenant.is_empty() {
        return check.wrong("spec.netbox.tenant", "may not be empty");
    }
    let aggregation = aggregation(check, "spec.netbox", &raw.aggregation, 128)?;
    let token = raw.token_secret.as_ref().map(|SecretKey { name, key }| (name.clone(), key.clone()));
    Ok(Netbox { url: raw.url.clone(), tenant: raw.tenant.clone(), aggregation, token })
}

fn external(check: &Check<'_>, raw: &ExternalSource) -> Result<External, ConfigProblem> {
    if raw.provider.is_empty() {
        return check.wrong("spec.external.provider", "may not be empty");
    }
    if !raw.socket.starts_with('/') {
        return check.wrong("spec.external.socket", "must be an absolute path");
    }
    let announce = match raw.announce.as_str() {
        "local" => PoolType::Local,
        "remote" => PoolType::Remote,
        _ => return check.wrong("spec.external.announce", "must be `local` or `remote`"),
    };
    Ok(External { provider: raw.provider.clone(), socket: raw.socket.clone(), announce })
}

#[cfg(test)]
mod tests;
