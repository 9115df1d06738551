//! A small real address provider: gRPC `purelb.ipam.v1` on a unix socket, one IPv4
//! range and one IPv6 range, everything in memory. Ends with the value.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use ipnet::IpNet;
use purelb_proto::ipam::v1::ipam_server::{Ipam, IpamServer};
use purelb_proto::ipam::v1::{
    AllocateRequest, AllocateResponse, Family, Holding, ListRequest, ListResponse, ReleaseRequest,
    ReleaseResponse, StatsRequest, StatsResponse, allocate_request, release_request,
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status};

#[derive(Debug, Default)]
struct Book {
    nets: Vec<IpNet>,
    /// Address -> who has it.
    held: BTreeMap<IpAddr, Holder>,
    calls: u64,
    /// An older one, which knows neither List nor installations.
    old: bool,
}

/// A Service of one installation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holder {
    installation: String,
    service: String,
}

/// The provider's memory, which outlives its server.
#[derive(Clone, Debug, Default)]
pub struct Provider(Arc<Mutex<Book>>);

/// A provider that is being served.
#[derive(Debug)]
pub struct Serving {
    socket: PathBuf,
    _stop: DropGuard,
}

impl Serving {
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Provider {
    /// Gives addresses of these prefixes, the network address left out.
    pub fn new(nets: &[IpNet]) -> Self {
        Self(Arc::new(Mutex::new(Book { nets: nets.to_vec(), ..Book::default() })))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that was written before there was List.
    pub fn old(nets: &[IpNet]) -> Self {
        let provider = Self::new(nets);
        provider.book().old = true;
        provider
    }

    /// Address -> the Service that has it.
    pub fn held(&self) -> BTreeMap<IpAddr, String> {
        self.book().held.iter().map(|(ip, holder)| (*ip, holder.service.clone())).collect()
    }

    /// Gives an address to a Service, of another installation or of one it does not know.
    pub fn give(&self, ip: IpAddr, installation: &str, service: &str) {
        let holder = Holder { installation: installation.to_owned(), service: service.to_owned() };
        self.book().held.insert(ip, holder);
    }

    /// Which installation an address was given to.
    pub fn installation_of(&self, ip: IpAddr) -> Option<String> {
        self.book().held.get(&ip).map(|holder| holder.installation.clone())
    }

    pub fn calls(&self) -> u64 {
        self.book().calls
    }

    /// Serves on this socket until the answer is dropped.
    pub fn serve(&self, socket: &Path) -> Result<Serving> {
        if socket.exists() {
            std::fs::remove_file(socket)?;
        }
        let listener =
            UnixListener::bind(socket).with_context(|| format!("listen on {}", socket.display()))?;
        let stop = CancellationToken::new();
        let server = tonic::transport::Server::builder().add_service(IpamServer::new(self.clone()));
        let ended = stop.clone();
        tokio::spawn(async move {
            let stream = UnixListenerStream::new(listener);
            drop(server.serve_with_incoming_shutdown(stream, ended.cancelled_owned()).await);
        });
        Ok(Serving { socket: socket.to_owned(), _stop: stop.drop_guard() })
    }
}

impl Book {
    fn holder(&self, installation: &str, service: &str) -> Holder {
        let installation = if self.old { String::new() } else { installation.to_owned() };
        Holder { installation, service: service.to_owned() }
    }

    fn take(&mut self, ip: IpAddr, holder: &Holder) -> Result<IpAddr, Status> {
        if !self.nets.iter().any(|net| net.contains(&ip)) {
            return Err(Status::out_of_range(format!("{ip} is not in the pool")));
        }
        match self.held.get(&ip) {
            Some(by) if by != holder => {
                Err(Status::already_exists(format!("{ip} is held by {}", by.service)))
            }
            _ => {
                self.held.insert(ip, holder.clone());
                Ok(ip)
            }
        }
    }

    fn lowest(&mut self, family: Family, holder: &Holder) -> Result<IpAddr, Status> {
        let fits = |ip: &IpAddr| ip.is_ipv4() == (family == Family::Ipv4);
        if let Some((ip, _)) = self.held.iter().find(|(ip, by)| fits(ip) && *by == holder) {
            return Ok(*ip);
        }
        let nets = self.nets.clone();
        let free = nets.iter().flat_map(IpNet::hosts).find(|ip| fits(ip) && !self.held.contains_key(ip));
        let ip = free.ok_or_else(|| Status::resource_exhausted(format!("no {family:?} address is left")))?;
        self.take(ip, holder)
    }
}

#[tonic::async_trait]
impl Ipam for Provider {
    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let request = request.into_inner();
        let mut book = self.book();
        book.calls += 1;
        let mut ips = Vec::new();
        let holder = book.holder(&request.installation, &request.service);
        match request.want {
            Some(allocate_request::Want::Explicit(list)) => {
                for text in list.ips {
                    let ip = text.parse().map_err(|_| Status::invalid_argument("not an address"))?;
                    ips.push(book.take(ip, &holder)?);
                }
            }
            Some(allocate_request::Want::Families(list)) => {
                let before = book.held.clone();
                for family in list.families() {
                    match book.lowest(family, &holder) {
                        Ok(ip) => ips.push(ip),
                        Err(status) => {
                            book.held = before;
                            return Err(status);
                        }
                    }
                }
            }
            None => return Err(Status::invalid_argument("nothing is wanted")),
        }
        Ok(Response::new(AllocateResponse { ips: ips.iter().map(ToString::to_string).collect() }))
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> Result<Response<ReleaseResponse>, Status> {
        let request = request.into_inner();
        let one = match request.what {
            Some(release_request::What::Ip(ip)) => Some(ip),
            Some(release_request::What::All(true)) => None,
            _ => return Err(Status::invalid_argument("nothing is given back")),
        };
        let mut book = self.book();
        let holder = book.holder(&request.installation, &request.service);
        book.held.retain(|ip, by| *by != holder || one.as_ref().is_some_and(|one| *one != ip.to_string()));
        Ok(Response::new(ReleaseResponse {}))
    }

    /// Two to a page, of every installation: to leave out others' is not its business.
    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        const PAGE: usize = 2;
        let book = self.book();
        if book.old {
            return Err(Status::unimplemented("List"));
        }
        let token = request.into_inner().page_token;
        let from: usize = if token.is_empty() { 0 } else { token.parse().unwrap_or(usize::MAX) };
        let show = |(ip, holder): (&IpAddr, &Holder)| Holding {
            ip: ip.to_string(),
            service: holder.service.clone(),
            installation: holder.installation.clone(),
        };
        let holdings: Vec<Holding> = book.held.iter().skip(from).take(PAGE).map(show).collect();
        let end = from.saturating_add(holdings.len());
        let next_page_token = if end < book.held.len() { end.to_string() } else { String::new() };
        Ok(Response::new(ListResponse { holdings, next_page_token }))
    }

    async fn stats(&self, _: Request<StatsRequest>) -> Result<Response<StatsResponse>, Status> {
        let book = self.book();
        let size = |v4: bool| {
            let nets = book.nets.iter().filter(|net| net.addr().is_ipv4() == v4);
            nets.map(|net| u64::try_from(net.hosts().take(100_000).count()).unwrap_or(u64::MAX)).sum()
        };
        let used = |v4: bool| {
            u64::try_from(book.held.keys().filter(|ip| ip.is_ipv4() == v4).count()).unwrap_or(u64::MAX)
        };
        Ok(Response::new(StatsResponse {
            in_use_v4: used(true),
            in_use_v6: used(false),
            size_v4: size(true),
            size_v6: size(false),
            has_known_capacity: true,
            display_addresses: book.nets.iter().map(ToString::to_string).collect(),
        }))
    }
}
