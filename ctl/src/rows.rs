//! What `get` lists, one type per noun: columns for people, fields for programs.

mod more;

use purelb_proto::control::v1 as pb;
use serde::Serialize;

use crate::paint::Tone;
use crate::table::{Cell, Column, Row, column, wide};

pub use more::{Event, On, Setting};

fn list(items: &[String]) -> String {
    if items.is_empty() { "-".into() } else { items.join(",") }
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".into() } else { text.to_owned() }
}

/// Seconds with one digit: what people compare.
fn seconds(value: f64) -> String {
    if value > 0.0 { format!("{value:.1}s") } else { "-".into() }
}

/// `NOT_WINNER` reads `NotWinner`, as in logs and metrics.
pub fn reason_name(code: pb::ReasonCode) -> String {
    let words = code.as_str_name().split('_');
    words.map(|w| w[..1].to_owned() + &w[1..].to_lowercase()).collect()
}

pub fn reason_tone(code: pb::ReasonCode) -> Option<Tone> {
    use pb::ReasonCode as C;
    match code {
        C::Announcing => Some(Tone::Good),
        C::NotWinner => None,
        C::Pending
        | C::HandingOver
        | C::Draining
        | C::Excluded
        | C::Stopping
        | C::NoEndpoints
        | C::Declined
        | C::NoService => Some(Tone::Warn),
        _ => Some(Tone::Bad),
    }
}

fn pool_type(value: pb::PoolType) -> &'static str {
    match value {
        pb::PoolType::Local => "local",
        pb::PoolType::Remote => "remote",
        pb::PoolType::Unspecified => "unknown",
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    pub node: String,
    pub state: &'static str,
    pub this_node: bool,
    pub expires_in_seconds: f64,
    pub addresses: usize,
    pub subnets: Vec<String>,
    pub control_endpoint: String,
    pub knows_handoffs: bool,
    pub announced: Vec<String>,
}

impl From<pb::Member> for Member {
    fn from(m: pb::Member) -> Self {
        let state = match &m {
            m if !m.live => "dead",
            m if m.out_of_service => "out-of-service",
            m if m.draining => "draining",
            m if m.excluded => "excluded",
            m if m.ranks_last => "last",
            _ => "live",
        };
        Self {
            node: m.node,
            state,
            this_node: m.this_node,
            expires_in_seconds: m.expires_in_seconds,
            addresses: m.announced.len(),
            subnets: m.subnets,
            control_endpoint: m.control_endpoint,
            knows_handoffs: m.knows_handoffs,
            announced: m.announced,
        }
    }
}

impl Row for Member {
    fn columns() -> Vec<Column> {
        let shown = ["NODE", "STATE", "ADDRESSES", "SUBNETS"].map(column);
        let more = ["EXPIRES", "ENDPOINT", "HANDOFFS"].map(wide);
        [shown.to_vec(), more.to_vec()].concat()
    }

    fn cells(&self) -> Vec<Cell> {
        let tone = match self.state {
            "live" => Tone::Good,
            "draining" | "excluded" | "last" => Tone::Warn,
            _ => Tone::Bad,
        };
        let node = if self.this_node { format!("{}*", self.node) } else { self.node.clone() };
        let count = if self.knows_handoffs { self.addresses.to_string() } else { "?".into() };
        vec![
            node.into(),
            Cell::toned(tone, self.state),
            count.into(),
            list(&self.subnets).into(),
            seconds(self.expires_in_seconds).into(),
            or_dash(&self.control_endpoint).into(),
            self.knows_handoffs.into(),
        ]
    }

    fn name(&self) -> String {
        self.node.clone()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Vip {
    pub ip: String,
    pub services: Vec<String>,
    pub pool: String,
    pub pool_type: &'static str,
    pub reason: String,
    pub message: String,
    pub winner: String,
    pub interface: String,
    pub retry_in_seconds: f64,
    #[serde(skip)]
    pub tone: Option<Tone>,
}

impl From<pb::Vip> for Vip {
    fn from(v: pb::Vip) -> Self {
        let reason = v.reason.clone().unwrap_or_default();
        Self {
            pool_type: pool_type(v.pool_type()),
            ip: v.ip,
            services: v.services,
            pool: v.pool,
            tone: reason_tone(reason.code()),
            reason: reason_name(reason.code()),
            message: reason.text,
            winner: v.winner,
            interface: v.interface,
            retry_in_seconds: reason.retry_in_seconds,
        }
    }
}

impl Row for Vip {
    fn columns() -> Vec<Column> {
        let shown = ["IP", "REASON", "WINNER", "INTERFACE", "SERVICE"].map(column);
        let more = ["POOL", "TYPE", "MESSAGE"].map(wide);
        [shown.to_vec(), more.to_vec()].concat()
    }

    fn cells(&self) -> Vec<Cell> {
        let reason = Cell { tone: self.tone, ..Cell::from(&self.reason) };
        vec![
            (&self.ip).into(),
            reason,
            or_dash(&self.winner).into(),
            or_dash(&self.interface).into(),
            list(&self.services).into(),
            or_dash(&self.pool).into(),
            self.pool_type.into(),
            (&self.message).into(),
        ]
    }

    fn name(&self) -> String {
        self.ip.clone()
    }

    fn services(&self) -> &[String] {
        &self.services
    }
}

/// A Service, put together from its addresses.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    pub service: String,
    pub pool: String,
    pub pool_type: &'static str,
    pub addresses: Vec<ServiceAddress>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAddress {
    pub ip: String,
    pub reason: String,
    pub winner: String,
}

pub fn services(vips: &[Vip]) -> Vec<Service> {
    let mut all: std::collections::BTreeMap<&str, Service> = std::collections::BTreeMap::new();
    for vip in vips {
        for name in &vip.services {
            let service = all.entry(name).or_insert_with(|| Service {
                service: name.clone(),
                pool: vip.pool.clone(),
                pool_type: vip.pool_type,
                addresses: Vec::new(),
            });
            let (ip, reason, winner) = (vip.ip.clone(), vip.reason.clone(), vip.winner.clone());
            service.addresses.push(ServiceAddress { ip, reason, winner });
        }
    }
    all.into_values().collect()
}

impl Row for Service {
    fn columns() -> Vec<Column> {
        vec![
            column("SERVICE"),
            column("POOL"),
            column("TYPE"),
            column("ADDRESSES"),
            column("NODE"),
            wide("REASON"),
        ]
    }

    fn cells(&self) -> Vec<Cell> {
        let join = |f: fn(&ServiceAddress) -> &String| {
            self.addresses.iter().map(|a| or_dash(f(a))).collect::<Vec<_>>()
        };
        let node = if self.pool_type == "remote" { "(all)".to_owned() } else { list(&join(|a| &a.winner)) };
        vec![
            (&self.service).into(),
            or_dash(&self.pool).into(),
            self.pool_type.into(),
            list(&join(|a| &a.ip)).into(),
            node.into(),
            list(&join(|a| &a.reason)).into(),
        ]
    }

    fn name(&self) -> String {
        self.service.clone()
    }

    fn services(&self) -> &[String] {
        std::slice::from_ref(&self.service)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    pub name: String,
    pub pool_type: &'static str,
    pub in_use: u32,
    pub subnets: Vec<String>,
    pub unserved_subnets: Vec<String>,
}

impl From<pb::Pool> for Pool {
    fn from(p: pb::Pool) -> Self {
        Self {
            pool_type: pool_type(p.pool_type()),
            name: p.name,
            in_use: p.in_use,
            subnets: p.subnets,
            unserved_subnets: p.unserved_subnets,
        }
    }
}

impl Row for Pool {
    fn columns() -> Vec<Column> {
        ["NAME", "TYPE", "IN-USE", "SUBNETS", "UNSERVED"].map(column).to_vec()
    }

    fn cells(&self) -> Vec<Cell> {
        let unserved = if self.unserved_subnets.is_empty() {
            "-".into()
        } else {
            Cell::toned(Tone::Bad, list(&self.unserved_subnets))
        };
        vec![
            (&self.name).into(),
            self.pool_type.into(),
            self.in_use.into(),
            list(&self.subnets).into(),
            unserved,
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Subnet {
    pub cidr: String,
    pub candidates: u32,
    pub nodes: Vec<String>,
    pub local_interfaces: Vec<String>,
    pub advertised: bool,
}

impl From<pb::Subnet> for Subnet {
    fn from(s: pb::Subnet) -> Self {
        Self {
            cidr: s.cidr,
            candidates: s.candidates,
            nodes: s.nodes,
            local_interfaces: s.local_interfaces,
            advertised: s.advertised,
        }
    }
}

impl Row for Subnet {
    fn columns() -> Vec<Column> {
        vec![column("SUBNET"), column("CANDIDATES"), column("NODES"), column("HERE"), wide("ADVERTISED")]
    }

    fn cells(&self) -> Vec<Cell> {
        let tone = if self.candidates == 0 { Tone::Bad } else { Tone::Good };
        vec![
            (&self.cidr).into(),
            Cell::toned(tone, self.candidates),
            list(&self.nodes).into(),
            list(&self.local_interfaces).into(),
            self.advertised.into(),
        ]
    }

    fn name(&self) -> String {
        self.cidr.clone()
    }
}
