//! Saved objects, put together: who may take an address and why nobody does.
//!
//! No daemon and no cluster are asked, so all Leases count as live and nothing is
//! known of kernels; what the objects themselves say is all there is.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use pb::StepState as S;
use purelb_api::service::Classes;
use purelb_api::{endpoints, group, names};
use purelb_core::election::Restriction;
use purelb_core::facts::{GroupFacts, LeaseFacts, PoolType, ServiceFacts};
use purelb_core::io::Update;
use purelb_core::placement::Demand;
use purelb_core::pools::Rules;
use purelb_core::{NodeName, ObjectKey, Vip};
use purelb_proto::control::v1 as pb;

use crate::cli::ExplainArgs;
use crate::error::{Failure, Outcome, did_you_mean};
use crate::saved::{self, Saved};
use crate::winner;

/// What the saved Services ask for.
#[derive(Debug)]
pub struct Demands {
    demands: purelb_core::placement::Demands,
    /// Without slices nothing is known of endpoints, so they restrict nothing.
    endpoints_known: bool,
}

impl Demands {
    pub fn new(saved: &Saved) -> Self {
        let mut demands = purelb_core::placement::Demands::default();
        demands.update_services(Update::All(saved.services.iter().filter_map(service).collect()));
        let groups = saved.groups.iter().filter_map(|g| {
            let config = group::parse(&g.object, &Rules::default()).ok()?;
            Some(GroupFacts { retained: group::retained(&g.object), ..config.facts() })
        });
        demands.update_groups(Update::All(groups.collect()));
        demands.update_endpoints(Update::All(saved.slices.iter().filter_map(endpoints::facts).collect()));
        Self { demands, endpoints_known: !saved.slices.is_empty() }
    }

    fn of(&self, vip: Vip) -> Option<Demand> {
        self.demands.of(vip)
    }

    pub fn restriction(&self, vip: Vip) -> Restriction {
        match self.of(vip) {
            Some(demand) if self.endpoints_known => demand.restriction,
            _ => Restriction::None,
        }
    }
}

/// Whatever its class is: who saved it wants to know about it.
fn service(service: &Service) -> Option<ServiceFacts> {
    let class = service.spec.as_ref()?.load_balancer_class.clone();
    let classes = Classes { class: class.unwrap_or_default(), default_announcer: true };
    purelb_api::service::facts(service, &classes)
}

pub fn explain(args: &ExplainArgs) -> Outcome<Vec<pb::Explanation>> {
    let mut saved = saved::read(&args.files)?;
    let leases = saved.lease_facts();
    let case = Case { demands: Demands::new(&saved), leases, saved: &saved };
    if let Ok(vip) = args.target.parse::<Vip>() {
        return Ok(vec![case.address(vip)]);
    }
    let Some((namespace, name)) = args.target.split_once('/') else {
        let what = format!("{:?} is neither an address nor a Service", args.target);
        return Err(Failure::new(what).next("write an IP address, or NAMESPACE/NAME of a Service"));
    };
    case.service(namespace, name)
}

struct Case<'a> {
    saved: &'a Saved,
    demands: Demands,
    leases: Vec<LeaseFacts>,
}

/// Collects steps; the first that fails decides the summary and the advice.
#[derive(Default)]
struct Story {
    steps: Vec<pb::Step>,
    summary: Option<(String, String)>,
}

impl Story {
    fn step(&mut self, title: &str, state: S, detail: impl Into<String>) {
        self.steps.push(pb::Step { title: title.into(), state: state.into(), detail: detail.into() });
    }

    fn fail(&mut self, title: &str, detail: impl Into<String>, advice: impl Into<String>) {
        let detail = detail.into();
        self.step(title, S::StepFailed, detail.clone());
        self.summary.get_or_insert((detail, advice.into()));
    }
}

impl Case<'_> {
    fn service(&self, namespace: &str, name: &str) -> Outcome<Vec<pb::Explanation>> {
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
            return Err(Failure::new(format!("there is no Service {wanted} in the files")).next(next));
        };
        let vips: Vec<Vip> = purelb_api::service::addresses(found).collect();
        if !vips.is_empty() {
            return Ok(vips.into_iter().map(|vip| self.address(vip)).collect());
        }
        let mut story = Story::default();
        let kind = found.spec.as_ref().and_then(|s| s.type_.as_deref()).unwrap_or("ClusterIP");
        if kind == "LoadBalancer" {
            let class = found.spec.as_ref().and_then(|s| s.load_balancer_class.as_deref());
            story.step(
                "Service",
                S::StepOk,
                format!("{wanted}, type LoadBalancer, class {}", class.unwrap_or("(none)")),
            );
            let group =
                found.annotations().get(names::SERVICE_GROUP).map_or(names::DEFAULT_GROUP, String::as_str);
            let advice = format!(
                "see `kubectl describe service -n {namespace} {name}`: an AllocationFailed event says why; check that ServiceGroup {group} exists and has free addresses"
            );
            story.fail("Address", format!("{wanted} has no address yet"), advice);
        } else {
            let advice = "set spec.type: LoadBalancer";
            story.fail("Service", format!("{wanted} is of type {kind}, which gets no address"), advice);
        }
        Ok(vec![finish(story, String::new(), false, None)])
    }

    fn address(&self, vip: Vip) -> pb::Explanation {
        let mut story = Story::default();
        let demand = self.demands.of(vip);
        self.tell_service(&mut story, vip, demand.as_ref());
        let pool = self.tell_pool(&mut story, vip, demand.as_ref());
        if pool == PoolType::Remote {
            story.step(
                "Announcement",
                S::StepNote,
                "remote: every node has it on its dummy interface; no election",
            );
            let good = story.summary.is_none();
            return finish(story, vip.to_string(), good, None);
        }
        let restriction = self.demands.restriction(vip);
        self.tell_candidates(&mut story, vip, &restriction);
        let election = winner::answer(&winner::election(&self.leases), vip, &restriction);
        let mut holder = None;
        if let Some(winner) = &election.winner {
            let of = match election.order.len() {
                1 => "the only candidate".to_owned(),
                n => format!("of {n} candidates"),
            };
            story.step("Winner", S::StepOk, format!("{winner}, {of}"));
            holder = self.tell_holder(&mut story, vip, winner);
        }
        let announced = holder.is_some() && story.summary.is_none();
        if let (Some(holder), Some(winner)) = (&holder, &election.winner) {
            let moves = if holder == winner { String::new() } else { format!("; {winner} takes over") };
            story.summary.get_or_insert((format!("announced by {holder}{moves}"), String::new()));
        }
        finish(story, vip.to_string(), announced, Some(election.into()))
    }

    fn tell_service(&self, story: &mut Story, vip: Vip, demand: Option<&Demand>) {
        match demand {
            Some(demand) => {
                let names: Vec<String> = demand.services.iter().map(ToString::to_string).collect();
                story.step("Service", S::StepOk, names.join(", "));
            }
            None if self.saved.services.is_empty() => {
                story.step("Service", S::StepNote, "no Services in the files; looking at the election only");
            }
            None => {
                let foreign =
                    self.saved.services.iter().find(|s| purelb_api::service::addresses(s).any(|v| v == vip));
                match foreign {
                    Some(s) => story.fail(
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
                    None => story.fail(
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

    fn tell_pool(&self, story: &mut Story, vip: Vip, demand: Option<&Demand>) -> PoolType {
        let service = demand.and_then(|d| d.services.first()).and_then(|k| self.demands.demands.service(k));
        let named = service.and_then(|s| s.group.as_deref());
        let groups = self.saved.groups.iter().filter_map(|g| group::parse(&g.object, &Rules::default()).ok());
        let holds = |g: &group::GroupConfig| match &g.source {
            group::Source::Ranges(ranges) => ranges.group.ranges().iter().any(|r| r.span().contains(vip)),
            _ => false,
        };
        let found = groups.into_iter().find(|g| named.map_or_else(|| holds(g), |n| g.key.name() == n));
        let kind = |p: PoolType| if p == PoolType::Local { "local" } else { "remote" };
        match (&found, named) {
            (Some(g), _) if holds(g) => {
                story.step("Pool", S::StepOk, format!("ServiceGroup {}, {}", g.key, kind(g.announce())));
            }
            (Some(g), _) => {
                let detail =
                    format!("{vip} is in no range of ServiceGroup {} any more; the Service keeps it", g.key);
                story.step("Pool", S::StepNote, detail);
            }
            (None, Some(name)) => {
                story.step("Pool", S::StepNote, format!("ServiceGroup {name}, not in the files"));
            }
            (None, None) => story.step("Pool", S::StepNote, "no ServiceGroup in the files has it"),
        }
        let known = demand.filter(|d| d.group.is_some()).map(|d| d.pool);
        known.or_else(|| found.map(|g| g.announce())).unwrap_or_else(|| self.kind_by_mark(demand))
    }

    /// Without the group all that is left is what the Service says of it.
    fn kind_by_mark(&self, demand: Option<&Demand>) -> PoolType {
        let keys: Vec<&ObjectKey> = demand.iter().flat_map(|d| &d.services).collect();
        let has = |s: &Service| {
            keys.iter().any(|k| Some(k.namespace()) == s.namespace().as_deref() && k.name() == s.name_any())
        };
        let services = self.saved.services.iter().filter(|s| has(s));
        let mut marks = services.filter_map(|s| s.annotations().get(names::POOL_TYPE));
        if marks.any(|mark| mark == names::POOL_TYPE_REMOTE) { PoolType::Remote } else { PoolType::Local }
    }

    fn tell_candidates(&self, story: &mut Story, vip: Vip, restriction: &Restriction) {
        if self.leases.is_empty() {
            let advice = "save them: `kubectl get leases -n purelb-system -o yaml >leases.yaml`, and give the file with -f";
            return story.fail("Candidates", "there are no node Leases in the files", advice);
        }
        let with_subnet: Vec<&LeaseFacts> =
            self.leases.iter().filter(|l| l.subnets.iter().any(|net| net.contains(&vip.ip()))).collect();
        if with_subnet.is_empty() {
            let mut nets: Vec<String> =
                self.leases.iter().flat_map(|l| &l.subnets).map(ToString::to_string).collect();
            nets.sort();
            nets.dedup();
            let have = if nets.is_empty() { "none".to_owned() } else { nets.join(", ") };
            return story.fail(
                "Candidates",
                format!("no node advertises a subnet that contains {vip}"),
                format!("subnets advertised: {have}; give a node an address in the pool's subnet, let its LBNodeAgent name the interface, or make the pool remote"),
            );
        }
        let (draining, free): (Vec<&LeaseFacts>, Vec<&LeaseFacts>) =
            with_subnet.into_iter().partition(|l| l.draining.is_some());
        if !draining.is_empty() {
            let names: Vec<&str> = draining.iter().map(|l| l.node.as_str()).collect();
            story.step(
                "Draining",
                S::StepNote,
                format!("{} have the subnet and are draining", names.join(", ")),
            );
        }
        if free.is_empty() {
            return story.fail(
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
            return story.fail(
                "Candidates",
                "nodes have the subnet, and none of them has an endpoint that takes traffic (externalTrafficPolicy: Local)",
                "run a ready pod of the Service on one of them, or set externalTrafficPolicy: Cluster",
            );
        }
        let names: Vec<&str> = allowed.iter().map(|n| n.as_str()).collect();
        story.step("Candidates", S::StepOk, names.join(", "));
    }

    /// Who says it holds the address.
    fn tell_holder(&self, story: &mut Story, vip: Vip, winner: &str) -> Option<String> {
        let holders: Vec<&LeaseFacts> =
            self.leases.iter().filter(|l| l.announced.as_ref().is_some_and(|a| a.contains(&vip))).collect();
        let slot = self.demands.of(vip).and_then(|d| {
            let keys: Vec<ObjectKey> = d.services.into_iter().collect();
            keys.iter().find_map(|k| self.demands.demands.service(k)?.slots.get(&vip).cloned())
        });
        let on = slot
            .as_ref()
            .map(|s| format!("; the Service says {} on {}", s.node, s.interface))
            .unwrap_or_default();
        match holders.as_slice() {
            [] => {
                let older = self.leases.iter().any(|l| l.node.as_str() == winner && l.announced.is_none());
                if older {
                    story.step(
                        "Announcement",
                        S::StepNote,
                        format!("{winner} does not say in its Lease what it holds{on}"),
                    );
                    return slot.filter(|s| s.node.as_str() == winner).map(|s| s.node.to_string());
                }
                if self.demands.of(vip).is_none() {
                    story.step(
                        "Announcement",
                        S::StepNote,
                        "nobody says it holds it; nobody has to without a Service",
                    );
                    return None;
                }
                story.fail(
                    "Announcement",
                    format!("{winner} should hold it, and its Lease does not say so{on}"),
                    format!("ask that node: `purelbctl --node {winner} explain {vip}`"),
                );
                None
            }
            [one] if one.node.as_str() == winner => {
                story.step(
                    "Announcement",
                    S::StepOk,
                    format!("{winner} says in its Lease that it announces it{on}"),
                );
                Some(winner.to_owned())
            }
            many => {
                let names: Vec<&str> = many.iter().map(|l| l.node.as_str()).collect();
                story.step(
                    "Announcement",
                    S::StepWaiting,
                    format!("held by {}; it moves to {winner}{on}", names.join(", ")),
                );
                Some(names.join(", "))
            }
        }
    }
}

fn finish(story: Story, ip: String, announced: bool, election: Option<pb::Election>) -> pb::Explanation {
    let good = match election.as_ref().map(|e| e.winner.as_str()) {
        Some(winner) => format!("{winner} is the winner"),
        None => "announced by every node".to_owned(),
    };
    let (summary, advice) = story.summary.unwrap_or((good, String::new()));
    pb::Explanation { ip, steps: story.steps, summary, advice, announced, election }
}
