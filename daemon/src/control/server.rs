//! Puts the calls, health and reflection behind the doors, with their limits.

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

use super::Limits;
use super::api::Api;
use super::listen::Doors;
use super::peer::{Role, require};
use crate::app::Running;

/// Serves until told to stop. Without a door that opened there is only that to wait for.
pub async fn serve(running: Running, doors: Doors, limits: Arc<Limits>, stopped: oneshot::Receiver<()>) {
    let api = Api::new(running, &doors, limits.clone());
    let serving = async {
        if let Err(error) = serve_on(api, doors, &limits).await {
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
    api: Api,
    doors: Doors,
    limits: &Arc<Limits>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // One that is accepted waits here for a moment; the kernel's queue holds the rest.
    let (accepted, conns) = mpsc::channel::<io::Result<super::conn::Conn>>(1);
    doors.accept(limits, &accepted)?;
    drop(accepted);
    let (health_reporter, health) = tonic_health::server::health_reporter();
    tokio::spawn(follow(api.clone(), health_reporter));
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
        .add_service(InterceptedService::new(control, known))
        .add_service(InterceptedService::new(health, known))
        .add_service(InterceptedService::new(register().build_v1()?, known))
        .add_service(InterceptedService::new(register().build_v1alpha()?, known));
    router.serve_with_incoming(ReceiverStream::new(conns)).await?;
    Ok(())
}

/// Nobody without a role gets an answer, whatever the service.
fn known(request: Request<()>) -> Result<Request<()>, Status> {
    require(&request, Role::Reader, "a call")?;
    Ok(request)
}

/// Keeps the events and the health up to date, from every picture.
async fn follow(api: Api, health: tonic_health::server::HealthReporter) {
    let mut pictures = api.running.handle.subscribe();
    let mut before = pictures.borrow_and_update().clone();
    loop {
        let serving =
            if before.ready && !before.stopping { ServingStatus::Serving } else { ServingStatus::NotServing };
        health.set_service_status("", serving).await;
        health.set_service_status("purelb.control.v1.Control", ServingStatus::Serving).await;
        if pictures.changed().await.is_err() {
            return;
        }
        let after = pictures.borrow_and_update().clone();
        api.events.record(&before, &after);
        before = after;
    }
}
