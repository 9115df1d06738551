//! From decisions to the JSON that is sent: merge patches that name the version they
//! were made for, so that a write over something unseen is refused, and events.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use kube::{Resource, ResourceExt};
use purelb_api::conditions::{self, Finding};
use purelb_api::names::{self, TAKEN_OVER};
use purelb_core::Vip;
use purelb_core::allocation::{Change, ServiceCondition, ServiceMarks};
use purelb_core::facts::PoolType;
use serde_json::{Map, Value, json};

use crate::kube::service_request::ALLOCATED;

const COMPONENT: &str = "purelb-allocator";

/// The annotations' patch; None if none changes. R10: nothing but annotations.
pub fn annotations(service: &Service, change: &Change) -> Option<Value> {
    let mut set = Map::new();
    match &change.marks {
        None => {}
        Some(ServiceMarks::Set { group, pool, skip_ipv6_dad }) => {
            let pool = match pool {
                PoolType::Local => names::POOL_TYPE_LOCAL,
                PoolType::Remote => names::POOL_TYPE_REMOTE,
            };
            set.insert(names::ALLOCATED_BY.into(), json!(names::BRAND));
            set.insert(names::ALLOCATED_FROM.into(), json!(group));
            set.insert(names::POOL_TYPE.into(), json!(pool));
            set.insert(names::SKIP_IPV6_DAD.into(), if *skip_ipv6_dad { json!("true") } else { Value::Null });
            set.insert(TAKEN_OVER.into(), Value::Null);
        }
        Some(ServiceMarks::Clear) => {
            let ours = [
                names::ALLOCATED_BY,
                names::ALLOCATED_FROM,
                names::POOL_TYPE,
                names::SKIP_IPV6_DAD,
                TAKEN_OVER,
            ];
            set.extend(ours.map(|key| (key.to_owned(), Value::Null)));
        }
    }
    if change.evaluated {
        set.insert(names::RE_EVALUATE.into(), Value::Null);
    }
    // A null for what is not there is only noise.
    set.retain(|key, value| !value.is_null() || service.annotations().contains_key(key));
    (!set.is_empty()).then(|| json!({"metadata": {"resourceVersion": version(service), "annotations": set}}))
}

/// The status' patch; None if nothing of it changes. Conditions of others are kept:
/// a merge patch replaces the list, and the version says that it is the one we read.
pub fn status(service: &Service, change: &Change, now: Timestamp) -> Option<Value> {
    let mut status = Map::new();
    if let Some(addresses) = &change.ingress {
        let ingress: Vec<Value> = addresses.iter().map(entry).collect();
        let ingress = if ingress.is_empty() { Value::Null } else { json!(ingress) };
        status.insert("loadBalancer".into(), json!({"ingress": ingress}));
    }
    if let Some(told) = &change.told
        && let Some(conditions) = with_condition(service, told, now)
    {
        status.insert("conditions".into(), json!(conditions));
    }
    (!status.is_empty()).then(|| json!({"metadata": {"resourceVersion": version(service)}, "status": status}))
}

fn entry(ip: &Vip) -> Value {
    json!({"ip": ip.to_string(), "ipMode": "VIP"})
}

fn with_condition(service: &Service, told: &ServiceCondition, now: Timestamp) -> Option<Vec<Condition>> {
    let had = service.status.as_ref().and_then(|s| s.conditions.clone());
    let mut conditions = had.unwrap_or_default();
    let finding = Finding {
        kind: ALLOCATED,
        holds: told.holds,
        reason: &told.reason,
        message: &told.message,
        generation: service.metadata.generation,
    };
    conditions::set(&mut conditions, &finding, now).then_some(conditions)
}

/// A patch that changes nothing but the version.
pub fn fence(service: &Service, leader: &str) -> Value {
    json!({"metadata": {"resourceVersion": version(service), "annotations": {TAKEN_OVER: leader}}})
}

pub fn version(object: &impl ResourceExt) -> String {
    object.resource_version().unwrap_or_default()
}

/// An event about an object.
pub fn event<K>(object: &K, name: String, reason: &str, warning: bool, message: &str, now: Timestamp) -> Event
where
    K: Resource<DynamicType = ()>,
{
    let mut about: ObjectReference = object.object_ref(&());
    about.resource_version = None;
    Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: object.meta().namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: about,
        reason: Some(reason.to_owned()),
        message: Some(message.chars().take(1024).collect()),
        type_: Some(if warning { "Warning" } else { "Normal" }.to_owned()),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(String::new()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests;
