//! Saved objects, put together: who may take an address and why nobody does.
//!
//! No daemon and no cluster are asked, so all Leases count as live and nothing is
//! known of kernels; what the objects themselves say is all there is.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use pb::StepState as S;
use purelb_api::{names, service_group};
use purelb_core::election::Restriction;
use purelb_core::facts::{LeaseFacts, PoolType};
use purelb_core::placement::Demand;
use purelb_core::pools::RangeRules;
use purelb_core::{NodeName, ObjectKey, Vip};
use purelb_proto::control::v1 as pb;

use crate::commands::explain::ExplainArgs;
use crate::error::{CommandError, CommandResult, did_you_mean};
use crate::offline::saved_demands::SavedDemands;
use crate::offline::saved_objects::{self, SavedObjects};
use crate::offline::winner;

/// Explains an address or a Service by the objects in files.
pub fn explain_from_files(args: &ExplainArgs) -> CommandResult<Vec<pb::Explanation>> {
    let mut saved = saved_objects::read_files(&args.files)?;
    let leases = saved.lease_facts();
    let explainer = OfflineExplainer { demands: SavedDemands::new(&saved), leases, saved: &saved };
    if let Ok(vip) = args.target.parse::<Vip>() {
        return Ok(vec![explainer.explain_address(vip)]);
    }
    let Some((namespace, name)) = args.target.split_once('/') else {
        let what = format!("{:?} is neither an address nor a Service", args.target);
        return Err(CommandError::new(what).next("write an IP address, or NAMESPACE/NAME of a Service"));
    };
    explainer.explain_service(namespace, name)
}

struct OfflineExplainer<'a> {
    saved: &'a SavedObjects,
    demands: SavedDemands,
    leases: Vec<LeaseFacts>,
}

/// Collects steps; the first that fails decides the summary and the advice.
#[derive(Default)]
struct ExplanationBuilder {
    steps: Vec<pb::Step>,
    summary: Option<(String, String)>,
}

impl ExplanationBuilder {
    fn step(&mut self, title: &str, state: S, detail: impl Into<String>) {
        self.steps.push(pb::Step { title: title.into(), state: state.into(), detail: detail.into() });
    }

    fn fail(&mut self, title: &str, detail: impl Into<String>, advice: impl Into<String>) {
        let detail = detail.into();
        self.step(title, S::StepFailed, detail.clone());
        self.summary.get_or_insert((detail, advice.into()));
    }
}

impl OfflineExplainer<'_> {
    fn explain_service(&self, namespace: &str, name: &str) -> CommandResult<Vec<pb::Explanation>> {
        let all = &self.saved.services;
        let key = |s: &k8s_openapi::api::core::v1::Service| {
            format!("{}/{}", s.namespace().unwrap_or_default(), s.name_any())
        };
        let wanted = format!("{namespace}/{name}");
        let Some(found) = all.iter().find(|s| key(s) == wanted) else {
            let keys: Vec<String> = all.iter().map(key).collect();
            let near = did_you_mean(&wanted, keys.iter().map(String::as_str));
            let next = match near {
                Some(near) => format!("did you mean {near}?"),
                None => {
                    "save it too: `kubectl get services -A -o yaml >services.yaml`, and give both with -f"
                        .into()
                }
            };
            return Err(CommandError::new(format!("there is no Service {wanted} in the files")).next(next));
        };
        let vips: Vec<Vip> = purelb_api::service::addresses(found).collect();
        if !vips.is_empty() {
            return Ok(vips.into_iter().map(|vip| self.explain_address(vip)).collect());
        }
        let mut builder = ExplanationBuilder::default();
        let kind = found.spec.as_ref().and_then(|s| s.type_.as_deref()).unwrap_or("ClusterIP");
        if kind == "LoadBalancer" {
            let class = found.spec.as_ref().and_then(|s| s.load_balancer_class.as_deref());
            builder.step(
                "Service",
                S::StepOk,
                format!("{wanted}, type LoadBalancer, class {}", class.unwrap_or("(none)")),
            );
            let group =
                found.annotations().get(names::SERVICE_GROUP).map_or(names::DEFAULT_GROUP, String::as_str);
            let advice = format!(
                "see `kubectl describe service -n {namespace} {name}`: an AllocationFailed event says why; check that ServiceGroup {group} exists and has free addresses"
            );
            builder.fail("Address", format!("{wanted} has no address yet"), advice);
        } else {
            let advice = "set spec.type: LoadBalancer";
            builder.fail("Service", format!("{wanted} is of type {kind}, which gets no address"), advice);
        }
        Ok(vec![finish(builder, String::new(), false, None)])
    }

    fn explain_address(&self, vip: Vip) -> pb::Explanation {
        let mut builder = ExplanationBuilder::default();
        let demand = self.demands.demand(vip);
        self.add_service_step(&mut builder, vip, demand.as_ref());
        let pool = self.add_pool_step(&mut builder, vip, demand.as_ref());
        if pool == PoolType::Remote {
            builder.step(
                "Announcement",
                S::StepNote,
                "remote: every node has it on its dummy interface; no election",
            );
            let good = builder.summary.is_none();
            return finish(builder, vip.to_string(), good, None);
        }
        let restriction = self.demands.restriction(vip);
        self.add_candidates_step(&mut builder, vip, &restriction);
        let election = winner::rank_candidates(&winner::election_among(&self.leases), vip, &restriction);
        let mut holder = None;
        if let Some(winner) = &election.winner {
            let of = match election.order.len() {
                1 => "the only candidate".to_owned(),
                n => format!("of {n} candidates"),
            };
            builder.step("Winner", S::StepOk, format!("{winner}, {of}"));
            holder = self.add_holder_step(&mut builder, vip, winner);
        }
        let announced = holder.is_some() && builder.summary.is_none();
        if let (Some(holder), Some(winner)) = (&holder, &election.winner) {
            let moves = if holder == winner { String::new() } else { format!("; {winner} takes over") };
            builder.summary.get_or_insert((format!("announced by {holder}{moves}"), String::new()));
        }
        finish(builder, vip.to_string(), announced, Some(election.into()))
    }

    fn add_service_step(&self, builder: &mut ExplanationBuilder, vip: Vip, demand: Option<&Demand>) {
        match demand {
            Some(demand) => {
                let names: Vec<String> = demand.services.iter().map(ToString::to_string).collect();
                builder.step("Service", S::StepOk, names.join(", "));
            }
            None if self.saved.services.is_empty() => {
                builder.step(
                    "Service",
                    S::StepNote,
                    "no Services in the files; looking at the election only",
                );
            }
            None => {
                let foreign =
                    self.saved.services.iter().find(|s| purelb_api::service::addresses(s).any(|v| v == vip));
                match foreign {
                    Some(s) => builder.fail(
                        "Service",
                        format!(
                            "{}/{} has the address, and purelb did not give it",
                            s.namespace().unwrap_or_default(),
                            s.name_any()
                        ),
                        format!(
                            "its annotation {} must be {:?}: let purelb's allocator give the address",
                            names::ALLOCATED_BY,
                            names::BRAND
                        ),
                    ),
                    None => builder.fail(
                        "Service",
                        format!("no Service has {vip}"),
                        format!(
                            "ask for it with the annotation {}: \"{vip}\" on a Service",
                            names::ADDRESSES
                        ),
                    ),
                }
            }
        }
    }

    fn add_pool_step(&self, builder: &mut ExplanationBuilder, vip: Vip, demand: Option<&Demand>) -> PoolType {
        let service = demand.and_then(|d| d.services.first()).and_then(|k| self.demands.service(k));
        let named = service.and_then(|s| s.group.as_deref());
        let groups = self
            .saved
            .groups
            .iter()
            .filter_map(|g| service_group::parse(&g.object, &RangeRules::default()).ok());
        let holds = |g: &service_group::GroupConfig| match &g.source {
            service_group::Source::Ranges(ranges) => {
                ranges.group.ranges().iter().any(|r| r.span().contains(vip))
            }
            _ => false,
        };
        let found = groups.into_iter().find(|g| named.map_or_else(|| holds(g), |n| g.key.name() == n));
        let kind = |p: PoolType| if p == PoolType::Local { "local" } else { "remote" };
        match (&found, named) {
            (Some(g), _) if holds(g) => {
                builder.step("Pool", S::StepOk, format!("ServiceGroup {}, {}", g.key, kind(g.announce())));
            }
            (Some(g), _) => {
                let detail =
                    format!("{vip} is in no range of ServiceGroup {} any more; the Service keeps it", g.key);
                builder.step("Pool", S::StepNote, detail);
            }
            (None, Some(name)) => {
                builder.step("Pool", S::StepNote, format!("ServiceGroup {name}, not in the files"));
            }
            (None, None) => builder.step("Pool", S::StepNote, "no ServiceGroup in the files has it"),
        }
        let known = demand.filter(|d| d.group.is_some()).map(|d| d.pool);
        known.or_else(|| found.map(|g| g.announce())).unwrap_or_else(|| self.pool_type_by_annotation(demand))
    }

    /// Without the group, the Service's own annotation is the only source left.
    fn pool_type_by_annotation(&self, demand: Option<&Demand>) -> PoolType {
        let keys: Vec<&ObjectKey> = demand.iter().flat_map(|d| &d.services).collect();
        let has = |s: &Service| {
            keys.iter().any(|k| Some(k.namespace()) == s.namespace().as_deref() && k.name() == s.name_any())
        };
        let services = self.saved.services.iter().filter(|s| has(s));
        let mut marks = services.filter_map(|s| s.annotations().get(names::POOL_TYPE));
        if marks.any(|mark| mark == names::POOL_TYPE_REMOTE) { PoolType::Remote } else { PoolType::Local }
    }

    fn add_candidates_step(&self, builder: &mut ExplanationBuilder, vip: Vip, restriction: &Restriction) {
        if self.leases.is_empty() {
            let advice = "save them: `kubectl get leases -n purelb-system -o yaml >leases.yaml`, and give the file with -f";
            return builder.fail("Candidates", "there are no node Leases in the files", advice);
        }
        let with_subnet: Vec<&LeaseFacts> =
            self.leases.iter().filter(|l| l.subnets.iter().any(|net| net.contains(&vip.ip()))).collect();
        if with_subnet.is_empty() {
            let mut nets: Vec<String> =
                self.leases.iter().flat_map(|l| &l.subnets).map(ToString::to_string).collect();
            nets.sort();
            nets.dedup();
            let have = if nets.is_empty() { "none".to_owned() } else { nets.join(", ") };
            return builder.fail(
                "Candidates",
                format!("no node advertises a subnet that contains {vip}"),
                format!("subnets advertised: {have}; give a node an address in the pool's subnet, let its LBNodeAgent name the interface, or make the pool remote"),
            );
        }
        let (draining, free): (Vec<&LeaseFacts>, Vec<&LeaseFacts>) =
            with_subnet.into_iter().partition(|l| l.draining.is_some());
        if !draining.is_empty() {
            let names: Vec<&str> = draining.iter().map(|l| l.node.as_str()).collect();
            builder.step(
                "Draining",
                S::StepNote,
                format!("{} have the subnet and are draining", names.join(", ")),
            );
        }
        if free.is_empty() {
            return builder.fail(
                "Candidates",
                "every node with the subnet is draining",
                "run `purelbctl undrain` on one of them",
            );
        }
        let only = match restriction {
            Restriction::Nodes(only) | Restriction::Both { only, .. } => Some(only),
            Restriction::None | Restriction::Prefer(_) => None,
        };
        let allowed: Vec<&NodeName> =
            free.iter().map(|l| &l.node).filter(|n| only.is_none_or(|o| o.contains(*n))).collect();
        if allowed.is_empty() {
            return builder.fail(
                "Candidates",
                "nodes have the subnet, and none of them has an endpoint that takes traffic (externalTrafficPolicy: Local)",
                "run a ready pod of the Service on one of them, or set externalTrafficPolicy: Cluster",
            );
        }
        let names: Vec<&str> = allowed.iter().map(|n| n.as_str()).collect();
        builder.step("Candidates", S::StepOk, names.join(", "));
    }

    /// Who says it holds the address.
    fn add_holder_step(&self, builder: &mut ExplanationBuilder, vip: Vip, winner: &str) -> Option<String> {
        let holders: Vec<&LeaseFacts> =
            self.leases.iter().filter(|l| l.announced.as_ref().is_some_and(|a| a.contains(&vip))).collect();
        let slot = self.demands.demand(vip).and_then(|d| {
            let keys: Vec<ObjectKey> = d.services.into_iter().collect();
            keys.iter().find_map(|k| self.demands.service(k)?.slots.get(&vip).cloned())
        });
        let on = slot
            .as_ref()
            .map(|s| format!("; the Service says {} on {}", s.node, s.interface))
            .unwrap_or_default();
        match holders.as_slice() {
            [] => {
                let older = self.leases.iter().any(|l| l.node.as_str() == winner && l.announced.is_none());
                if older {
                    builder.step(
                        "Announcement",
                        S::StepNote,
                        format!("{winner} does not say in its Lease what it holds{on}"),
                    );
                    return slot.filter(|s| s.node.as_str() == winner).map(|s| s.node.to_string());
                }
                if self.demands.demand(vip).is_none() {
                    builder.step(
                        "Announcement",
                        S::StepNote,
                        "nobody says it holds it; nobody has to without a Service",
                    );
                    return None;
                }
                builder.fail(
                    "Announcement",
                    format!("{winner} should hold it, and its Lease does not say so{on}"),
                    format!("ask that node: `purelbctl --node {winner} explain {vip}`"),
                );
                None
            }
            [one] if one.node.as_str() == winner => {
                builder.step(
                    "Announcement",
                    S::StepOk,
                    format!("{winner} says in its Lease that it announces it{on}"),
                );
                Some(winner.to_owned())
            }
            many => {
                let names: Vec<&str> = many.iter().map(|l| l.node.as_str()).collect();
                builder.step(
                    "Announcement",
                    S::StepWaiting,
                    format!("held by {}; it moves to {winner}{on}", names.join(", ")),
                );
                Some(names.join(", "))
            }
        }
    }
}

fn finish(
    builder: ExplanationBuilder,
    ip: String,
    announced: bool,
    election: Option<pb::Election>,
) -> pb::Explanation {
    let good = match election.as_ref().map(|e| e.winner.as_str()) {
        Some(winner) => format!("{winner} is the winner"),
        None => "announced by every node".to_owned(),
    };
    let (summary, advice) = builder.summary.unwrap_or((good, String::new()));
    pb::Explanation { ip, steps: builder.steps, summary, advice, announced, election }
}
