//! What the NetBox of a test knows.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::Filters;

/// One IP address object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub id: u64,
    pub ip: IpAddr,
    pub length: u8,
    pub status: String,
    pub tenant: String,
    pub description: String,
    pub comments: String,
}

#[derive(Clone, Debug)]
struct Parent {
    id: u64,
    kind: &'static str,
    net: IpNet,
    /// For ranges; a prefix gives all of it.
    span: (IpAddr, IpAddr),
    tenant: String,
    status: String,
}

#[derive(Clone, Debug, Default)]
pub struct Store {
    next: u64,
    addresses: Vec<Address>,
    parents: Vec<Parent>,
    /// So many requests are answered 503 first.
    pub failures: u32,
    /// The token may look, and change nothing.
    pub read_only: bool,
    /// How many requests were refused for that.
    pub refused: u32,
}

/// Why no address was made out of a prefix or range.
pub(super) enum Unavailable {
    NotFound,
    Full,
    Invalid(String),
}

impl Store {
    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn with_address(mut self, net: &str, tenant: &str, status: &str) -> Self {
        let net: IpNet = net.parse().expect("a test's address is an address with a length");
        let id = self.id();
        self.addresses.push(Address {
            id,
            ip: net.addr(),
            length: net.prefix_len(),
            status: status.to_owned(),
            tenant: tenant.to_owned(),
            description: String::new(),
            comments: String::new(),
        });
        self
    }

    pub fn with_prefix(mut self, net: &str, tenant: &str, status: &str) -> Self {
        let net: IpNet = net.parse().expect("a test's prefix is a prefix");
        let id = self.id();
        let (tenant, status) = (tenant.to_owned(), status.to_owned());
        let span = (net.network(), net.broadcast());
        self.parents.push(Parent { id, kind: "prefixes", net, span, tenant, status });
        self
    }

    /// From and to with the length of their subnet.
    pub fn with_range(mut self, from: &str, to: &str, tenant: &str, status: &str) -> Self {
        let from: IpNet = from.parse().expect("a test's range begins with an address");
        let to: IpNet = to.parse().expect("a test's range ends with an address");
        let id = self.id();
        let (tenant, status) = (tenant.to_owned(), status.to_owned());
        let span = (from.addr(), to.addr());
        self.parents.push(Parent { id, kind: "ip-ranges", net: from.trunc(), span, tenant, status });
        self
    }

    /// The same, in use by somebody.
    pub fn with_user(mut self, net: &str, tenant: &str, description: &str) -> Self {
        self = self.with_address(net, tenant, "active");
        if let Some(address) = self.addresses.last_mut() {
            description.clone_into(&mut address.description);
        }
        self
    }

    pub fn all(&self) -> &[Address] {
        &self.addresses
    }

    pub(super) fn addresses(&self, filters: &Filters) -> Vec<Value> {
        let get = |name: &str| filters.get(name);
        let fits = |a: &&Address| {
            get("tenant").is_none_or(|t| *t == a.tenant)
                && get("status").is_none_or(|s| *s == a.status)
                && get("description").is_none_or(|d| *d == a.description)
                && get("description__isw").is_none_or(|d| begins_with(&a.description, d))
                && get("family").is_none_or(|f| (f == "4") == a.ip.is_ipv4())
                && get("address").is_none_or(|t| *t == a.ip.to_string())
        };
        self.addresses.iter().filter(fits).map(show).collect()
    }

    pub(super) fn parents(&self, kind: &str, filters: &Filters) -> Option<Vec<Value>> {
        if !["prefixes", "ip-ranges"].contains(&kind) {
            return None;
        }
        let get = |name: &str| filters.get(name);
        let contains = |p: &Parent, text: &String| text.parse::<IpAddr>().is_ok_and(|ip| p.net.contains(&ip));
        let fits = |p: &&Parent| {
            p.kind == kind
                && get("tenant").is_none_or(|t| *t == p.tenant)
                && get("status").is_none_or(|s| *s == p.status)
                && get("family").is_none_or(|f| (f == "4") == p.net.addr().is_ipv4())
                && get("contains").is_none_or(|t| contains(p, t))
        };
        let one = |p: &Parent| {
            json!({"id": p.id, "display": format!("{}-{}", p.span.0, p.span.1), "prefix": p.net.to_string(),
                "status": {"value": p.status}})
        };
        Some(self.parents.iter().filter(fits).map(one).collect())
    }

    pub(super) fn create(&mut self, body: &Value) -> Result<Value, String> {
        let net: IpNet =
            body["address"].as_str().and_then(|t| t.parse().ok()).ok_or("address: enter a valid address")?;
        if self.addresses.iter().any(|a| a.ip == net.addr()) {
            return Err(format!("Duplicate IP address found: {net}"));
        }
        let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        let address = Address {
            id: self.id(),
            ip: net.addr(),
            length: net.prefix_len(),
            status: text(&body["status"]),
            tenant: text(&body["tenant"]["slug"]),
            description: text(&body["description"]),
            comments: text(&body["comments"]),
        };
        self.addresses.push(address.clone());
        Ok(show(&address))
    }

    pub(super) fn change(&mut self, id: u64, body: &Value) -> Option<Value> {
        let address = self.addresses.iter_mut().find(|a| a.id == id)?;
        if let Some(status) = body["status"].as_str() {
            status.clone_into(&mut address.status);
        }
        if let Some(description) = body["description"].as_str() {
            description.clone_into(&mut address.description);
        }
        Some(show(address))
    }

    pub(super) fn delete(&mut self, id: u64) -> bool {
        let before = self.addresses.len();
        self.addresses.retain(|a| a.id != id);
        self.addresses.len() < before
    }

    pub(super) fn take_available(&mut self, kind: &str, id: u64, body: &Value) -> Result<Value, Unavailable> {
        let parent = self.parents.iter().find(|p| p.kind == kind && p.id == id);
        let parent = parent.ok_or(Unavailable::NotFound)?.clone();
        let taken: Vec<IpAddr> = self.addresses.iter().map(|a| a.ip).collect();
        let mut inside = parent.net.hosts().filter(|ip| (parent.span.0..=parent.span.1).contains(ip));
        let free = inside.find(|ip| !taken.contains(ip));
        let ip = free.ok_or(Unavailable::Full)?;
        let mut body = body.clone();
        body["address"] = json!(format!("{ip}/{}", parent.net.prefix_len()));
        self.create(&body).map_err(Unavailable::Invalid)
    }
}

/// NetBox's lookup `isw`: whatever the case.
fn begins_with(text: &str, start: &str) -> bool {
    text.to_lowercase().starts_with(&start.to_lowercase())
}

fn show(a: &Address) -> Value {
    json!({
        "id": a.id,
        "address": format!("{}/{}", a.ip, a.length),
        "family": {"value": if a.ip.is_ipv4() { 4 } else { 6 }},
        "status": {"value": a.status, "label": a.status},
        "tenant": {"slug": a.tenant},
        "description": a.description,
        "comments": a.comments,
    })
}
