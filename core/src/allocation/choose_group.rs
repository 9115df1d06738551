//! Which group a Service takes its addresses from, and whether it may.

use super::allocations::Allocations;
use super::facts::{GroupSpec, ServiceAsk};
use super::refusal::Refusal;
use crate::pools::{AllocateError, GroupName};

impl Allocations {
    /// explicit addresses -> `service-group` -> the namespace's group -> `default`.
    /// What a Service has stays with its group until the user moves it: by other
    /// explicit addresses, or with `re-evaluate`.
    pub(super) fn target(
        &self,
        ask: &ServiceAsk,
        explicit: &[crate::Vip],
        current: Option<&GroupName>,
    ) -> Result<GroupName, Refusal> {
        let all_held = explicit.iter().all(|ip| ask.held.contains(ip));
        if let Some(current) = current.filter(|_| all_held && !ask.re_evaluate) {
            return Ok(current.clone());
        }
        let target = self.unchecked_target(ask, explicit, current)?;
        let moves_in = current != Some(&target) || !all_held;
        if moves_in {
            self.check_boundary(&target, ask.key.namespace())?;
        }
        Ok(target)
    }

    fn unchecked_target(
        &self,
        ask: &ServiceAsk,
        explicit: &[crate::Vip],
        current: Option<&GroupName>,
    ) -> Result<GroupName, Refusal> {
        let by_rules = self.by_rules(ask)?;
        let Some(first) = explicit.first() else { return Ok(by_rules) };
        if ask.group.is_some() {
            return Ok(by_rules);
        }
        if let Some(group) = self.pools().group_of(*first) {
            return Ok(group.clone());
        }
        // In no range of ours: the group that gave the Service the address before its
        // range was taken out, or a provider may know it.
        match current.filter(|_| ask.held.contains(first)) {
            Some(current) => Ok(current.clone()),
            None if self.is_provided(&by_rules) => Ok(by_rules),
            None => Err(Refusal::AddressNowhere { ip: *first }),
        }
    }

    fn by_rules(&self, ask: &ServiceAsk) -> Result<GroupName, Refusal> {
        if let Some(text) = &ask.group {
            let clipped = || text.chars().take(64).collect();
            return self.group_name(text.trim()).ok_or_else(|| Refusal::BadGroupName { text: clipped() });
        }
        let bound = self.bound_groups(ask.key.namespace());
        match bound.first() {
            Some(group) => Ok(group.name.clone()),
            None => Ok(self.default_group().clone()),
        }
    }

    /// Groups that list the namespace, the one to use first. Where one of them is a
    /// boundary, only such count.
    fn bound_groups(&self, namespace: &str) -> Vec<&GroupSpec> {
        let lists = |group: &&GroupSpec| group.namespaces.contains(namespace);
        let mut bound: Vec<&GroupSpec> = self.groups().values().filter(lists).collect();
        if bound.iter().any(|group| group.enforce_namespaces) {
            bound.retain(|group| group.enforce_namespaces);
        }
        bound.sort_by_key(|group| (!group.namespace_default, group.created, group.name.clone()));
        bound
    }

    fn check_boundary(&self, target: &GroupName, namespace: &str) -> Result<(), Refusal> {
        let Some(group) = self.groups().get(target) else {
            return match self.problems().get(target) {
                Some(problem) => {
                    Err(Refusal::GroupInvalid { group: target.clone(), problem: problem.clone() })
                }
                None => Err(AllocateError::NoSuchGroup { group: target.clone() }.into()),
            };
        };
        let namespace_text = || namespace.to_owned();
        if group.enforce_namespaces && !group.namespaces.contains(namespace) {
            return Err(Refusal::GroupClosed { group: target.clone(), namespace: namespace_text() });
        }
        match self.bound_groups(namespace).first() {
            Some(bound) if bound.enforce_namespaces && !group.enforce_namespaces => {
                Err(Refusal::NamespaceBound {
                    namespace: namespace_text(),
                    group: target.clone(),
                    bound_to: bound.name.clone(),
                })
            }
            _ => Ok(()),
        }
    }
}
