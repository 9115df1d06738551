//! The calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pb::control_server::Control;
use purelb_core::Vip;
use purelb_proto::control::v1 as pb;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tracing::debug;

use super::peer::{ClientPeer, ClientRole, require};
use super::tls::ControlTls;
use super::{ControlLimits, audit, convert, drain, explain, problems, resync, status};
use crate::app::RunningDaemon;
use crate::control::event_history::EventHistory;
use crate::control::listeners::ControlListeners;
use crate::control::vip_watch::{SentVips, VipFilter, addresses};
use crate::engine::handle::HandleError;
use crate::host::clock;

/// Answers of a stream that its reader has not taken yet. More are not made: the next
/// snapshot says it all.
const ANSWERS_AHEAD: usize = 4;

type AnswerStream<T> = ReceiverStream<Result<T, Status>>;

#[derive(Clone, Debug)]
pub struct ControlService {
    pub running: RunningDaemon,
    limits: Arc<ControlLimits>,
    pub events: Arc<EventHistory>,
    tls: Option<Arc<ControlTls>>,
    trouble: Arc<[String]>,
    streams: Arc<Semaphore>,
    started: Instant,
}

fn handle_status(error: HandleError) -> Status {
    match error {
        HandleError::Ended => Status::unavailable(error.to_string()),
        HandleError::Mark(_) => Status::internal(error.to_string()),
    }
}

impl ControlService {
    pub fn new(running: RunningDaemon, listeners: &ControlListeners, limits: Arc<ControlLimits>) -> Self {
        Self {
            events: Arc::new(EventHistory::new(limits.events)),
            tls: listeners.tls(),
            trouble: listeners.trouble.as_slice().into(),
            streams: Arc::new(Semaphore::new(limits.streams)),
            started: Instant::now(),
            limits,
            running,
        }
    }

    /// A place among the streams; without one the caller is told to come back.
    fn reserve_stream(&self) -> Result<OwnedSemaphorePermit, Status> {
        self.streams.clone().try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "{} streams are open already; close some",
                self.limits.streams
            ))
        })
    }

    /// Is it us that the caller means? What leads to a daemon may be stale or forged: its
    /// endpoint is read from a Lease, and the name in its certificate is asked for there.
    fn check_addressed_node(&self, node: &str, call: &str, peer: &ClientPeer) -> Result<(), Status> {
        let us = &self.running.handle.snapshot().node;
        if node.is_empty() || node == us.as_str() {
            return Ok(());
        }
        let named: String = node.chars().filter(|c| !c.is_control()).take(253).collect();
        let why = format!("{named} is meant, and this is the daemon of {us}: nothing was done");
        audit::log_refusal(call, peer, &why);
        Err(Status::failed_precondition(why))
    }

    async fn elections(&self, vips: &[Vip]) -> Result<Vec<pb::Election>, Status> {
        let mut found = Vec::with_capacity(vips.len());
        for vip in vips {
            let order = self.running.handle.order(*vip).await.map_err(handle_status)?;
            found.push(convert::election(*vip, &order));
        }
        Ok(found)
    }

    async fn dry_run(&self) -> Result<pb::DrainProgress, Status> {
        let snapshot = self.running.handle.snapshot();
        let mut remaining = Vec::new();
        for view in snapshot.vips.iter().filter(|v| drain::is_held(v)) {
            let order = self.running.handle.order(view.vip).await.map_err(handle_status)?;
            let next = order.iter().find(|r| r.node != snapshot.node);
            let remote = view.pool == purelb_core::facts::PoolType::Remote;
            let others = snapshot.members.iter().any(|m| m.node != snapshot.node && m.live && !m.draining);
            let successor = match next {
                _ if remote && others => "every other node".to_owned(),
                _ if remote => String::new(),
                Some(next) => next.node.to_string(),
                None => String::new(),
            };
            remaining.push(drain::vip(view, successor));
        }
        let stay = remaining.iter().filter(|v| v.successor.is_empty()).count();
        Ok(pb::DrainProgress {
            total: u32::try_from(remaining.len()).unwrap_or(u32::MAX),
            message: format!("{} addresses would move, {stay} would stay", remaining.len() - stay),
            remaining,
            result: pb::DrainResult::DryRun.into(),
            dry_run: true,
            since: snapshot.draining.clone().unwrap_or_default(),
            ..Default::default()
        })
    }
}

/// Gives an answer to a reader, unless it takes none for too long.
async fn deliver<T>(to: &mpsc::Sender<Result<T, Status>>, limits: &ControlLimits, answer: T) -> bool {
    match tokio::time::timeout(limits.stalled, to.send(Ok(answer))).await {
        Ok(sent) => sent.is_ok(),
        Err(_) => {
            debug!("a stream's reader takes nothing; ended");
            false
        }
    }
}

#[tonic::async_trait]
impl Control for ControlService {
    async fn get_status(
        &self,
        _: Request<pb::GetStatusRequest>,
    ) -> Result<Response<pb::GetStatusResponse>, Status> {
        let snapshot = self.running.handle.snapshot();
        let wall = jiff::Timestamp::now().as_second();
        let tls = self.tls.as_ref();
        let about = problems::ControlTrouble {
            certificate_expires: tls.map(|tls| tls.expires()),
            trouble: self
                .trouble
                .iter()
                .cloned()
                .chain(tls.and_then(|t| t.trouble()).map(|t| t.to_string()))
                .collect(),
            credentials: self.running.kube.credentials.get(),
            credentials_trouble: self.running.kube.credentials.trouble().map(|why| why.to_string()),
        };
        let uptime = self.started.elapsed().as_secs();
        Ok(Response::new(status::status_response(&snapshot, clock::now(), wall, &about, uptime)))
    }

    async fn list_members(
        &self,
        _: Request<pb::ListMembersRequest>,
    ) -> Result<Response<pb::ListMembersResponse>, Status> {
        let snapshot = self.running.handle.snapshot();
        let now = clock::now();
        let members = snapshot.members.iter().map(|m| convert::member(m, &snapshot, now)).collect();
        Ok(Response::new(pb::ListMembersResponse { members }))
    }

    async fn list_vips(
        &self,
        request: Request<pb::ListVipsRequest>,
    ) -> Result<Response<pb::ListVipsResponse>, Status> {
        let filter = VipFilter::new(request.into_inner(), self.limits.addresses)?;
        let vips = filter.list(&self.running.handle.snapshot(), clock::now());
        Ok(Response::new(pb::ListVipsResponse { vips }))
    }

    async fn list_subnets(
        &self,
        _: Request<pb::ListSubnetsRequest>,
    ) -> Result<Response<pb::ListSubnetsResponse>, Status> {
        let subnets = convert::subnets(&self.running.handle.snapshot());
        Ok(Response::new(pb::ListSubnetsResponse { subnets }))
    }

    async fn list_pools(
        &self,
        _: Request<pb::ListPoolsRequest>,
    ) -> Result<Response<pb::ListPoolsResponse>, Status> {
        let pools = convert::pools(&self.running.handle.snapshot());
        Ok(Response::new(pb::ListPoolsResponse { pools }))
    }

    async fn list_events(
        &self,
        request: Request<pb::ListEventsRequest>,
    ) -> Result<Response<pb::ListEventsResponse>, Status> {
        let most = match request.into_inner().limit {
            0 => usize::MAX,
            n => n as usize,
        };
        Ok(Response::new(pb::ListEventsResponse { events: self.events.newest(most) }))
    }

    async fn explain(
        &self,
        request: Request<pb::ExplainRequest>,
    ) -> Result<Response<pb::ExplainResponse>, Status> {
        use pb::explain_request::Target;
        let snapshot = self.running.handle.snapshot();
        let vips = match request.into_inner().target {
            Some(Target::Ip(ip)) => addresses(&[ip], 1)?,
            Some(Target::Service(key)) => {
                let of = snapshot.vips.iter().filter(|v| v.services.iter().any(|s| s.as_str() == key));
                let vips: Vec<Vip> = of.map(|v| v.vip).take(self.limits.addresses).collect();
                if vips.is_empty() {
                    return Err(Status::not_found(format!(
                        "no Service {key} of ours has an address: is it of type LoadBalancer and of our class? \
                         See `kubectl describe service` for AllocationFailed events"
                    )));
                }
                vips
            }
            None => return Err(Status::invalid_argument("give an ip or a service")),
        };
        let mut explanations = Vec::with_capacity(vips.len());
        for vip in vips {
            let order = self.running.handle.order(vip).await.map_err(handle_status)?;
            explanations.push(explain::explain_address(&snapshot, vip, &order));
        }
        Ok(Response::new(pb::ExplainResponse { explanations }))
    }

    async fn winner(
        &self,
        request: Request<pb::WinnerRequest>,
    ) -> Result<Response<pb::WinnerResponse>, Status> {
        let vips = addresses(&request.into_inner().ips, self.limits.addresses)?;
        let results = self.elections(&vips).await?;
        Ok(Response::new(pb::WinnerResponse { results }))
    }

    async fn get_config(
        &self,
        _: Request<pb::GetConfigRequest>,
    ) -> Result<Response<pb::GetConfigResponse>, Status> {
        let config = self.running.config.borrow().clone();
        let settings = super::convert::settings(&config);
        Ok(Response::new(pb::GetConfigResponse { settings }))
    }

    async fn resync(
        &self,
        request: Request<pb::ResyncRequest>,
    ) -> Result<Response<pb::ResyncResponse>, Status> {
        let peer = require(&request, ClientRole::Operator, "Resync")?;
        self.check_addressed_node(&request.get_ref().node, "Resync", &peer)?;
        let done = resync::resync_and_compare(&self.running.handle).await;
        log_result("Resync", &peer, "", done.as_ref().map(|_| "done"));
        done.map(Response::new).map_err(handle_status)
    }

    async fn undrain(
        &self,
        request: Request<pb::UndrainRequest>,
    ) -> Result<Response<pb::UndrainResponse>, Status> {
        let peer = require(&request, ClientRole::Operator, "Undrain")?;
        self.check_addressed_node(&request.get_ref().node, "Undrain", &peer)?;
        let was_draining = self.running.handle.snapshot().draining.is_some();
        let done = self.running.handle.undrain().await;
        log_result(
            "Undrain",
            &peer,
            "",
            done.as_ref().map(|_| if was_draining { "undrained" } else { "was not draining" }),
        );
        done.map_err(handle_status)?;
        Ok(Response::new(pb::UndrainResponse { was_draining }))
    }

    type DrainStream = AnswerStream<pb::DrainProgress>;

    async fn drain(&self, request: Request<pb::DrainRequest>) -> Result<Response<Self::DrainStream>, Status> {
        let dry = request.get_ref().dry_run;
        let peer = require(&request, if dry { ClientRole::Reader } else { ClientRole::Operator }, "Drain")?;
        self.check_addressed_node(&request.get_ref().node, "Drain", &peer)?;
        let place = self.reserve_stream()?;
        let request = request.into_inner();
        let (to, stream) = mpsc::channel(ANSWERS_AHEAD);
        if dry {
            let answer = self.dry_run().await?;
            tokio::spawn(async move { drop(to.send(Ok(answer)).await) });
            return Ok(Response::new(ReceiverStream::new(stream)));
        }
        let mut progress = drain::DrainTracker::new(&self.running.handle.snapshot(), request.force);
        let begun = self.running.handle.drain(request.force).await;
        let arguments = if request.force { " (force)" } else { "" };
        log_result("Drain", &peer, arguments, begun.as_ref().map(|_| "begun"));
        let first = begun.map_err(handle_status)?;
        let (handle, limits) = (self.running.handle.clone(), self.limits.clone());
        let seconds = if request.timeout_seconds == 0 { 60 } else { request.timeout_seconds };
        let end = tokio::time::Instant::now() + Duration::from_secs(seconds.into());
        tokio::spawn(async move {
            let _place = place;
            let mut snapshots = handle.subscribe();
            let mut snapshot = first;
            loop {
                if let Some(answer) = progress.next_message(&snapshot) {
                    let result = answer.result();
                    let words = answer.message.clone();
                    let over = result != pb::DrainResult::Unspecified;
                    if over {
                        log_result("Drain", &peer, arguments, Ok::<_, &String>(&words));
                    }
                    if !deliver(&to, &limits, answer).await || over {
                        return;
                    }
                }
                tokio::select! {
                    changed = snapshots.changed() => match changed {
                        Ok(()) => snapshot = snapshots.borrow_and_update().clone(),
                        Err(_) => return drop(to.send(Err(handle_status(HandleError::Ended))).await),
                    },
                    () = tokio::time::sleep_until(end) => {
                        let answer = progress.timed_out(&snapshot);
                        log_result("Drain", &peer, arguments, Ok::<_, &String>(&answer.message));
                        deliver(&to, &limits, answer).await;
                        return;
                    }
                    () = to.closed() => return,
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    type WatchVipsStream = AnswerStream<pb::WatchVipsResponse>;

    async fn watch_vips(
        &self,
        request: Request<pb::WatchVipsRequest>,
    ) -> Result<Response<Self::WatchVipsStream>, Status> {
        let filter = VipFilter::new(request.into_inner().filter.unwrap_or_default(), self.limits.addresses)?;
        let place = self.reserve_stream()?;
        let (to, stream) = mpsc::channel(ANSWERS_AHEAD);
        let (mut snapshots, limits) = (self.running.handle.subscribe(), self.limits.clone());
        tokio::spawn(async move {
            let _place = place;
            let mut told = SentVips::default();
            loop {
                let snapshot = snapshots.borrow_and_update().clone();
                if let Some(answer) = told.changes_since_last(&filter, &snapshot, clock::now())
                    && !deliver(&to, &limits, answer).await
                {
                    return;
                }
                tokio::time::sleep(limits.pace).await;
                tokio::select! {
                    changed = snapshots.changed() => if changed.is_err() { return },
                    () = to.closed() => return,
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    type WatchEventsStream = AnswerStream<pb::Event>;

    async fn watch_events(
        &self,
        request: Request<pb::WatchEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        let request = request.into_inner();
        let place = self.reserve_stream()?;
        let (to, stream) = mpsc::channel(ANSWERS_AHEAD);
        let after = if request.replay { request.after } else { u64::MAX };
        let (kept, mut news) = self.events.follow(after);
        let limits = self.limits.clone();
        tokio::spawn(async move {
            use tokio::sync::broadcast::error::RecvError;
            let _place = place;
            for event in kept {
                if !deliver(&to, &limits, event).await {
                    return;
                }
            }
            loop {
                let next = tokio::select! {
                    next = news.recv() => next,
                    () = to.closed() => return,
                };
                let event = match next {
                    Ok(event) => event,
                    Err(RecvError::Lagged(missed)) => {
                        pb::Event { kind: pb::EventKind::Gap.into(), missed, ..Default::default() }
                    }
                    Err(RecvError::Closed) => return,
                };
                if !deliver(&to, &limits, event).await {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

fn log_result<T: std::fmt::Display, E: std::fmt::Display>(
    call: &str,
    peer: &ClientPeer,
    arguments: &str,
    result: Result<T, E>,
) {
    match &result {
        Ok(done) => audit::log_call(call, peer, &arguments, Ok(done)),
        Err(error) => audit::log_call(call, peer, &arguments, Err(error)),
    }
}
