//! Puts the calls, health and reflection behind the listeners, with their limits.

use std::io;
use std::sync::Arc;

use purelb_proto::control::v1::control_server::ControlServer;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic::{Request, Status};
use tonic_health::ServingStatus;
use tracing::error;

use super::ControlLimits;
use super::peer::{ClientRole, require};
use crate::app::RunningDaemon;
use crate::control::control_service::ControlService;
use crate::control::listeners::ControlListeners;

/// Serves until told to stop. Without a door that opened there is only that to wait for.
pub async fn serve(
    running: RunningDaemon,
    listeners: ControlListeners,
    limits: Arc<ControlLimits>,
    stopped: oneshot::Receiver<()>,
) {
    let api = ControlService::new(running, &listeners, limits.clone());
    let serving = async {
        if let Err(error) = serve_on(api, listeners, &limits).await {
            error!(%error, "the control API has ended");
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = serving => {}
        _ = stopped => {}
    }
}

async fn serve_on(
    api: ControlService,
    listeners: ControlListeners,
    limits: &Arc<ControlLimits>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // One that is accepted waits here for a moment; the kernel's queue holds the rest.
    let (accepted, conns) = mpsc::channel::<io::Result<crate::control::connection::ControlConnection>>(1);
    listeners.accept(limits, &accepted)?;
    drop(accepted);
    let (health_reporter, health) = tonic_health::server::health_reporter();
    tokio::spawn(follow_snapshots(api.clone(), health_reporter));
    let register = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(purelb_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let control = ControlServer::new(api).max_decoding_message_size(limits.message);
    let router = Server::builder()
        .timeout(limits.request)
        .concurrency_limit_per_connection(limits.streams_per_connection as usize)
        .max_concurrent_streams(limits.streams_per_connection)
        .http2_keepalive_interval(Some(limits.ping))
        .http2_keepalive_timeout(Some(limits.ping / 2))
        .http2_max_header_list_size(8 << 10)
        .max_connection_age(limits.connection_age)
        .add_service(InterceptedService::new(control, require_reader))
        .add_service(InterceptedService::new(health, require_reader))
        .add_service(InterceptedService::new(register().build_v1()?, require_reader))
        .add_service(InterceptedService::new(register().build_v1alpha()?, require_reader));
    router.serve_with_incoming(ReceiverStream::new(conns)).await?;
    Ok(())
}

/// Nobody without a role gets an answer, whatever the service.
fn require_reader(request: Request<()>) -> Result<Request<()>, Status> {
    require(&request, ClientRole::Reader, "a call")?;
    Ok(request)
}

/// Keeps the events and the health up to date, from every snapshot.
async fn follow_snapshots(api: ControlService, health: tonic_health::server::HealthReporter) {
    let mut snapshots = api.running.handle.subscribe();
    let mut before = snapshots.borrow_and_update().clone();
    loop {
        let serving =
            if before.ready && !before.stopping { ServingStatus::Serving } else { ServingStatus::NotServing };
        health.set_service_status("", serving).await;
        health.set_service_status("purelb.control.v1.Control", ServingStatus::Serving).await;
        if snapshots.changed().await.is_err() {
            return;
        }
        let after = snapshots.borrow_and_update().clone();
        api.events.record(&before, &after);
        before = after;
    }
}
