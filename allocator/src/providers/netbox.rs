//! NetBox as the address book, over its REST API.
//!
//! What is ours to give is what carries our tenant and the status `reserved`:
//!
//! ```text
//!   ip-addresses, reserved        PATCH active + description     ── release: PATCH reserved
//!   ip-ranges, prefixes, reserved POST available-ips             ── release: DELETE
//! ```
//! The description `purelb: <namespace>/<name> [<installation>]` says who uses an address,
//! and of which cluster. It is looked for first, so that asking again, also after an
//! answer got lost, gives the same address; NetBox is the memory, not this process.
//! What carries the mark of another installation, or none, is never touched, also if it
//! has our tenant.

use std::fmt::Write as _;
use std::net::IpAddr;

use async_trait::async_trait;
use http::Method;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use purelb_core::allocation::{ProviderListing, ProviderQuestion};
use purelb_core::{Family, ObjectKey, Vip};
use rustls::ClientConfig;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::rest_client::Rest;
use super::{Installation, Provider, ProviderError, ProviderStats};

const PAGE: usize = 200;
/// No NetBox has so many pages; one that goes round in a circle has.
const PAGES: usize = 10_000;
/// In `comments` of addresses that did not exist before: release deletes these.
const CREATED: &str = "created by purelb";

/// Where the token comes from.
#[derive(Clone)]
pub enum Token {
    Given(Option<String>),
    Secret { client: Client, namespace: String, name: String, key: String },
}

pub struct Netbox {
    rest: Rest,
    tenant: String,
    installation: Installation,
    token: Token,
    cached: Mutex<Option<String>>,
}

impl std::fmt::Debug for Netbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Netbox")
            .field("rest", &self.rest)
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}

/// An address as NetBox has it.
struct Entry {
    id: u64,
    ip: Vip,
    status: String,
    description: String,
    created: bool,
}

impl Entry {
    fn read(value: &Value) -> Option<Self> {
        let address = value["address"].as_str()?;
        let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        Some(Self {
            id: value["id"].as_u64()?,
            ip: address.split_once('/').map_or(address, |(ip, _)| ip).parse().ok()?,
            status: text(&value["status"]["value"]),
            description: text(&value["description"]),
            created: value["comments"].as_str().is_some_and(|c| c.contains(CREATED)),
        })
    }
}

const MARK: &str = "purelb: ";

/// Whose description it is, if it is one of ours.
fn marked(description: &str, installation: &Installation) -> Option<ObjectKey> {
    let tail = format!(" [{installation}]");
    ObjectKey::new(description.strip_prefix(MARK)?.strip_suffix(&tail)?).ok()
}

fn mark(service: &ObjectKey, installation: &Installation) -> String {
    // NetBox takes 200 characters; what is cut off is told apart by a number.
    let text = format!("{MARK}{service} [{installation}]");
    if text.len() <= 200 {
        return text;
    }
    let sum = text.bytes().fold(5381_u64, |h, b| h.wrapping_mul(33) ^ u64::from(b));
    format!("{}…{sum:016x}", text.chars().take(180).collect::<String>())
}

/// For a query string: everything but plain letters and digits is escaped.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

impl Netbox {
    pub fn new(url: &str, tenant: &str, installation: Installation, token: Token, tls: ClientConfig) -> Self {
        let (rest, tenant) = (Rest::new(url, tls), tenant.to_owned());
        Self { rest, tenant, installation, token, cached: Mutex::new(None) }
    }

    fn mark(&self, service: &ObjectKey) -> String {
        mark(service, &self.installation)
    }

    async fn token(&self) -> Result<String, ProviderError> {
        let missing = || {
            ProviderError::Refused(
                "no token for NetBox: set NETBOX_USER_TOKEN, or name a Secret in spec.netbox.tokenSecret"
                    .into(),
            )
        };
        match &self.token {
            Token::Given(token) => token.clone().ok_or_else(missing),
            Token::Secret { client, namespace, name, key } => {
                let mut cached = self.cached.lock().await;
                if let Some(token) = &*cached {
                    return Ok(token.clone());
                }
                let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
                let problem =
                    |why: String| ProviderError::Refused(format!("Secret {namespace}/{name}: {why}"));
                let secret = secrets.get(name).await.map_err(|e| match e {
                    kube::Error::Api(status) => problem(status.message),
                    other => problem(other.to_string()),
                })?;
                let data = secret.data.unwrap_or_default();
                let bytes = data.get(key).ok_or_else(|| problem(format!("it has no key {key:?}")))?;
                let token = String::from_utf8_lossy(&bytes.0).trim().to_owned();
                *cached = Some(token.clone());
                Ok(token)
            }
        }
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, ProviderError> {
        let token = self.token().await?;
        let (code, answer) = self.rest.call(method.clone(), path, &token, body).await?;
        if code.is_success() {
            return Ok(answer);
        }
        if matches!(code.as_u16(), 401 | 403) {
            // The Secret may have been changed since.
            *self.cached.lock().await = None;
        }
        let detail = answer["detail"].as_str().map_or_else(|| answer.to_string(), str::to_owned);
        let words: String = detail.chars().take(200).collect();
        let words = format!("NetBox refuses {method} {path}: {code} {words}");
        Err(match code.as_u16() {
            // What it says when a range or prefix has nothing left, and only then.
            409 => ProviderError::Full(words),
            408 | 429 => ProviderError::Unreachable(words),
            _ => ProviderError::Refused(words),
        })
    }

    /// Everything a query finds.
    async fn all(&self, what: &str, query: &str) -> Result<Vec<Value>, ProviderError> {
        let mut found = Vec::new();
        for _ in 0..PAGES {
            let (tenant, offset) = (escape(&self.tenant), found.len());
            let path = format!("/api/ipam/{what}/?tenant={tenant}&limit={PAGE}&offset={offset}{query}");
            let answer = self.call(Method::GET, &path, None).await?;
            let page = answer["results"].as_array().cloned().unwrap_or_default();
            let last = page.is_empty() || answer["next"].is_null();
            found.extend(page);
            if last {
                return Ok(found);
            }
        }
        Err(ProviderError::Refused(format!("NetBox's list of {what} does not come to an end")))
    }

    async fn addresses(&self, query: &str) -> Result<Vec<Entry>, ProviderError> {
        Ok(self.all("ip-addresses", query).await?.iter().filter_map(Entry::read).collect())
    }

    /// What the Service has already.
    async fn own(&self, service: &ObjectKey) -> Result<Vec<Entry>, ProviderError> {
        let mark = self.mark(service);
        let mut found = self.addresses(&format!("&description={}", escape(&mark))).await?;
        found.retain(|entry| entry.description == mark && entry.status == "active");
        Ok(found)
    }

    async fn take(&self, entry: &Entry, service: &ObjectKey) -> Result<Vip, ProviderError> {
        let body = json!({"status": "active", "description": self.mark(service)});
        self.call(Method::PATCH, &format!("/api/ipam/ip-addresses/{}/", entry.id), Some(&body)).await?;
        Ok(entry.ip)
    }

    /// The lowest reserved address, else one out of a reserved range or prefix.
    async fn any(&self, family: Family, service: &ObjectKey) -> Result<Vip, ProviderError> {
        let number = match family {
            Family::V4 => 4,
            Family::V6 => 6,
        };
        let mut reserved = self.addresses(&format!("&status=reserved&family={number}")).await?;
        reserved.retain(|entry| entry.status == "reserved" && entry.ip.family() == family);
        if let Some(lowest) = reserved.iter().min_by_key(|entry| entry.ip) {
            return self.take(lowest, service).await;
        }
        for what in ["ip-ranges", "prefixes"] {
            for parent in self.all(what, &format!("&status=reserved&family={number}")).await? {
                let Some(id) = parent["id"].as_u64() else { continue };
                let body = self.fresh(service);
                let path = format!("/api/ipam/{what}/{id}/available-ips/");
                match self.call(Method::POST, &path, Some(&body)).await {
                    // How older releases say that there is none left.
                    Ok(Value::Null) => {}
                    Ok(made) => {
                        // One object, or a list of one, by release.
                        let made = made.as_array().and_then(|list| list.first()).unwrap_or(&made).clone();
                        return Entry::read(&made).map(|entry| entry.ip).ok_or_else(|| {
                            ProviderError::Refused("NetBox made an address it does not show".into())
                        });
                    }
                    // The next one. Any other refusal is about us, not about room.
                    Err(ProviderError::Full(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Err(ProviderError::Full(format!(
            "NetBox has no {family} address reserved for tenant {}",
            self.tenant
        )))
    }

    fn fresh(&self, service: &ObjectKey) -> Value {
        json!({"status": "active", "description": self.mark(service), "comments": CREATED,
            "tenant": {"slug": self.tenant}})
    }

    async fn explicit(&self, ip: Vip, service: &ObjectKey) -> Result<Vip, ProviderError> {
        let mut found = self.addresses(&format!("&address={}", escape(&ip.to_string()))).await?;
        found.retain(|entry| entry.ip == ip);
        if let Some(entry) = found.first() {
            return match entry.status.as_str() {
                "reserved" => self.take(entry, service).await,
                _ if entry.description == self.mark(service) => Ok(ip),
                status => Err(ProviderError::Refused(format!(
                    "NetBox has {ip} as {status} ({})",
                    entry.description
                ))),
            };
        }
        let query = format!("&status=reserved&contains={}", escape(&ip.to_string()));
        let parents = self.all("prefixes", &query).await?;
        let length = parents.iter().find_map(|p| p["prefix"].as_str()?.parse::<ipnet::IpNet>().ok());
        let Some(prefix) = length.filter(|net| net.contains(&IpAddr::from(ip))) else {
            return Err(ProviderError::Refused(format!(
                "NetBox has not reserved {ip} for tenant {}",
                self.tenant
            )));
        };
        let mut body = self.fresh(service);
        body["address"] = json!(format!("{ip}/{}", prefix.prefix_len()));
        self.call(Method::POST, "/api/ipam/ip-addresses/", Some(&body)).await?;
        Ok(ip)
    }
}

#[async_trait]
impl Provider for Netbox {
    async fn allocate(&self, question: &ProviderQuestion) -> Result<Vec<Vip>, ProviderError> {
        let mut given = Vec::new();
        for ip in &question.explicit {
            given.push(self.explicit(*ip, &question.service).await?);
        }
        let own = if question.families.is_empty() { Vec::new() } else { self.own(&question.service).await? };
        let mut refused = None;
        for family in &question.families {
            let has = own.iter().map(|entry| entry.ip).find(|ip| ip.family() == *family);
            match has {
                Some(ip) => given.push(ip),
                None => match self.any(*family, &question.service).await {
                    Ok(ip) => given.push(ip),
                    Err(why @ ProviderError::Full(_)) if question.either => refused = Some(why),
                    Err(why) => return Err(why),
                },
            }
        }
        match (given.is_empty(), refused) {
            (true, Some(why)) => Err(why),
            _ => Ok(given),
        }
    }

    async fn release(&self, _pool: &str, service: &ObjectKey, ip: Option<Vip>) -> Result<(), ProviderError> {
        for entry in self.own(service).await? {
            if ip.is_some_and(|ip| ip != entry.ip) {
                continue;
            }
            let path = format!("/api/ipam/ip-addresses/{}/", entry.id);
            if entry.created {
                self.call(Method::DELETE, &path, None).await?;
            } else {
                let body = json!({"status": "reserved", "description": ""});
                self.call(Method::PATCH, &path, Some(&body)).await?;
            }
        }
        Ok(())
    }

    async fn list(&self, _pool: &str) -> Result<Option<Vec<ProviderListing>>, ProviderError> {
        let query = format!("&status=active&description__isw={}", escape(MARK));
        let entries = self.addresses(&query).await?;
        let ours = entries.into_iter().filter(|entry| entry.status == "active").filter_map(|entry| {
            Some(ProviderListing { service: marked(&entry.description, &self.installation)?, ip: entry.ip })
        });
        Ok(Some(ours.collect()))
    }

    async fn stats(&self, _pool: &str) -> Result<ProviderStats, ProviderError> {
        let mut addresses = Vec::new();
        for (what, field) in [("prefixes", "prefix"), ("ip-ranges", "display")] {
            let parents = self.all(what, "&status=reserved").await?;
            addresses.extend(parents.iter().filter_map(|p| p[field].as_str()).take(64).map(str::to_owned));
        }
        let reserved = self.addresses("&status=reserved").await?;
        let of =
            |family| u64::try_from(reserved.iter().filter(|e| e.ip.family() == family).count()).unwrap_or(0);
        let known = addresses.is_empty().then(|| (of(Family::V4), of(Family::V6)));
        Ok(ProviderStats { available: known, addresses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_fit_and_differ() {
        let (here, there) =
            (Installation::of("u1", "purelb-system"), Installation::of("u2", "purelb-system"));
        let key = |n: usize| ObjectKey::of(&"n".repeat(63), &format!("{}{n}", "s".repeat(250))).unwrap();
        let a = ObjectKey::new("ns/a").unwrap();
        assert_eq!(mark(&a, &here), format!("purelb: ns/a [{here}]"));
        assert!(mark(&key(1), &here).chars().count() <= 200);
        assert_ne!(mark(&key(1), &here), mark(&key(2), &here));
        assert_eq!(escape("purelb: ns/a"), "purelb%3A%20ns%2Fa");
        // The longest names there are in a cluster are read back whole.
        let long = ObjectKey::of(&"n".repeat(63), &"s".repeat(63)).unwrap();
        assert_eq!(marked(&mark(&long, &here), &here), Some(long));
        assert_eq!(marked(&mark(&a, &there), &here), None, "another cluster's");
        for other in ["", "purelb: ns/a", "purelb: ns/a []", "ns/a", &mark(&key(1), &here)] {
            assert_eq!(marked(other, &here), None, "{other}");
        }
    }
}
