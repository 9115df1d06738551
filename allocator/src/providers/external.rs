//! A provider of the operator's own: gRPC `purelb.ipam.v1` over a unix socket.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use hyper_util::rt::TokioIo;
use purelb_core::allocation::{ProviderListing, ProviderQuestion};
use purelb_core::{Family, ObjectKey, Vip};
use purelb_proto::ipam::v1::ipam_client::IpamClient;
use purelb_proto::ipam::v1::{
    AllocateRequest, ExplicitAddresses, Families, Family as WireFamily, ListRequest, ReleaseRequest,
    StatsRequest, allocate_request, release_request,
};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Response, Status};

use super::{Installation, Provider, ProviderError, ProviderStats};
use crate::metrics::Metrics;

/// A provider that hangs keeps its Services waiting no longer than this.
const WITHIN: Duration = Duration::from_secs(5);
/// No address book has so many pages; one that goes round in a circle has.
const PAGES: usize = 10_000;

/// One provider, connected when it is first asked and again when it came back.
#[derive(Debug)]
pub struct External {
    socket: String,
    installation: Installation,
    client: IpamClient<Channel>,
    metrics: Metrics,
}

impl External {
    pub fn new(socket: &str, installation: Installation, metrics: Metrics) -> Self {
        let path = PathBuf::from(socket);
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://ipam.local").connect_timeout(WITHIN).timeout(WITHIN);
        let client = IpamClient::new(endpoint.connect_with_connector_lazy(connector));
        Self { socket: socket.to_owned(), installation, client, metrics }
    }

    fn seen<T>(&self, method: &str, answer: Result<Response<T>, Status>) -> Result<T, ProviderError> {
        let code = answer.as_ref().map_or_else(Status::code, |_| Code::Ok);
        self.metrics.rpc(&self.socket, method, &format!("{code:?}"));
        answer.map(Response::into_inner).map_err(|status| self.failure(&status))
    }

    fn failure(&self, status: &Status) -> ProviderError {
        match status.code() {
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
                ProviderError::Unreachable(format!("{}: {}", self.socket, deepest(status)))
            }
            Code::ResourceExhausted => ProviderError::Full(status.message().to_owned()),
            _ => ProviderError::Refused(status.message().to_owned()),
        }
    }

    async fn one(&self, question: &ProviderQuestion, families: &[Family]) -> Result<Vec<Vip>, ProviderError> {
        let want = if question.explicit.is_empty() {
            let wire = |family: &Family| match family {
                Family::V4 => WireFamily::Ipv4.into(),
                Family::V6 => WireFamily::Ipv6.into(),
            };
            allocate_request::Want::Families(Families { families: families.iter().map(wire).collect() })
        } else {
            let ips = question.explicit.iter().map(ToString::to_string).collect();
            allocate_request::Want::Explicit(ExplicitAddresses { ips })
        };
        let request = AllocateRequest {
            pool: question.group.name().to_owned(),
            service: question.service.to_string(),
            sharing_key: question.sharing_key.clone().unwrap_or_default(),
            want: Some(want),
            installation: self.installation.to_string(),
        };
        let answer = self.client.clone().allocate(Request::new(request)).await;
        let given = self.seen("Allocate", answer)?.ips;
        let ips: Vec<Vip> = given.iter().filter_map(|text| text.parse().ok()).collect();
        let as_asked = if question.explicit.is_empty() {
            let of = |family: &Family| ips.iter().filter(|ip| ip.family() == *family).count() == 1;
            ips.len() == families.len() && families.iter().all(of)
        } else {
            ips.len() == question.explicit.len() && question.explicit.iter().all(|ip| ips.contains(ip))
        };
        if ips.len() != given.len() || !as_asked {
            return Err(ProviderError::Refused(format!(
                "it answered {given:?}, which is not what was asked"
            )));
        }
        Ok(ips)
    }
}

#[async_trait]
impl Provider for External {
    async fn allocate(&self, question: &ProviderQuestion) -> Result<Vec<Vip>, ProviderError> {
        if !question.explicit.is_empty() {
            let mut ips = self.one(question, &[]).await?;
            if !question.families.is_empty() {
                let rest = ProviderQuestion { explicit: Vec::new(), ..question.clone() };
                match self.one(&rest, &question.families).await {
                    Ok(more) => ips.extend(more),
                    Err(_) if question.either => {}
                    Err(error) => return Err(error),
                }
            }
            return Ok(ips);
        }
        match self.one(question, &question.families).await {
            // Where two are preferred, each is asked for alone before giving up.
            Err(why @ (ProviderError::Refused(_) | ProviderError::Full(_)))
                if question.either && question.families.len() > 1 =>
            {
                for family in &question.families {
                    if let Ok(ips) = self.one(question, &[*family]).await {
                        return Ok(ips);
                    }
                }
                Err(why)
            }
            answer => answer,
        }
    }

    async fn release(&self, pool: &str, service: &ObjectKey, ip: Option<Vip>) -> Result<(), ProviderError> {
        let what = match ip {
            Some(ip) => release_request::What::Ip(ip.to_string()),
            None => release_request::What::All(true),
        };
        let request = ReleaseRequest {
            pool: pool.to_owned(),
            service: service.to_string(),
            what: Some(what),
            installation: self.installation.to_string(),
        };
        let answer = self.client.clone().release(Request::new(request)).await;
        self.seen("Release", answer).map(drop)
    }

    async fn list(&self, pool: &str) -> Result<Option<Vec<ProviderListing>>, ProviderError> {
        let ours = self.installation.to_string();
        let mut listed = Vec::new();
        let mut page_token = String::new();
        for _ in 0..PAGES {
            let request = ListRequest { pool: pool.to_owned(), installation: ours.clone(), page_token };
            let answer = self.client.clone().list(Request::new(request)).await;
            if answer.as_ref().is_err_and(|status| status.code() == Code::Unimplemented) {
                self.metrics.rpc(&self.socket, "List", "Unimplemented");
                return Ok(None);
            }
            let page = self.seen("List", answer)?;
            // One it does not know the owner of is nobody's to give back.
            let given = page.holdings.iter().filter(|holding| holding.installation == ours);
            listed.extend(given.filter_map(|holding| {
                Some(ProviderListing {
                    service: ObjectKey::new(&holding.service).ok()?,
                    ip: holding.ip.parse().ok()?,
                })
            }));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(Some(listed));
            }
        }
        Err(ProviderError::Refused("its List does not come to an end".to_owned()))
    }

    async fn stats(&self, pool: &str) -> Result<ProviderStats, ProviderError> {
        let answer = self.client.clone().stats(Request::new(StatsRequest { pool: pool.to_owned() })).await;
        let stats = self.seen("Stats", answer)?;
        let left = |size: u64, used: u64| size.saturating_sub(used);
        let available = (left(stats.size_v4, stats.in_use_v4), left(stats.size_v6, stats.in_use_v6));
        Ok(ProviderStats {
            available: stats.has_known_capacity.then_some(available),
            // Shown as they are, so bounded here.
            addresses: stats.display_addresses.into_iter().take(64).collect(),
        })
    }
}

/// What the kernel said, under what gRPC made of it.
fn deepest(status: &Status) -> String {
    let Some(mut error) = std::error::Error::source(status) else {
        return status.message().to_owned();
    };
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
