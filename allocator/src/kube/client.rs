//! How the API server is asked: within a time, once, and counted. A client around a
//! client, so that no caller has to think of it.

use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::{Client, Config};
use thiserror::Error;
use tokio::time::timeout;
use tower::service_fn;

use crate::metrics::Metrics;

/// A server that does not take a connection in this time is as good as away.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// No answer is waited for longer, with all of its body; of a watch, until it begins.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// A watch in which nothing came for this long, not even the bookmark a server sends
/// every minute, is dead.
const SILENT_FOR: Duration = Duration::from_secs(150);
const USER_AGENT: &str = concat!("purelb-allocator/", env!("CARGO_PKG_VERSION"));

#[derive(Debug, Error)]
#[error("the API server did not answer within {0:?}")]
struct Unanswered(Duration);

/// A client for the program: what the library would wait for without end has an end, and
/// what it would send again behind our back is sent once.
pub fn client(mut config: Config) -> Result<Client, kube::Error> {
    config.connect_timeout = Some(CONNECT_WITHIN);
    config.write_timeout = Some(ANSWER_WITHIN);
    config.read_timeout = Some(SILENT_FOR);
    config.reset_reader_on_write = true;
    // A write that is sent again later may overtake what was decided in between.
    config.default_retry = false;
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(USER_AGENT)));
    Client::try_from(config)
}

/// The same client; every request has an end, and what fails is counted by kind.
pub(crate) fn counted(client: Client, metrics: Metrics) -> Client {
    answered_within(ANSWER_WITHIN, client, metrics)
}

fn answered_within(limit: Duration, client: Client, metrics: Metrics) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let (client, metrics) = (client.clone(), metrics.clone());
        async move {
            metrics.api_request();
            let answer = match timeout(limit, ask(&client, request)).await {
                Ok(answer) => answer,
                Err(_) => {
                    metrics.api_error("timeout");
                    return Err(kube::Error::Service(Box::new(Unanswered(limit))));
                }
            };
            let kind = match &answer {
                Ok(response) => kind(response.status()),
                Err(_) => Some("unreachable"),
            };
            if let Some(kind) = kind {
                metrics.api_error(kind);
            }
            answer
        }
    });
    Client::new(service, namespace)
}

/// The whole answer; of a watch, its beginning.
async fn ask(client: &Client, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
    let is_watch = request.uri().query().is_some_and(|q| q.split('&').any(|part| part == "watch=true"));
    let response = client.send(request).await?;
    if is_watch {
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Response::from_parts(head, Body::from(body)))
}

/// The daemon's words for the same. What is not there is an answer, not an error.
fn kind(status: StatusCode) -> Option<&'static str> {
    match status.as_u16() {
        401 => Some("unauthorized"),
        403 => Some("forbidden"),
        404 => None,
        408 | 504 => Some("timeout"),
        409 => Some("conflict"),
        429 => Some("throttled"),
        500.. => Some("server"),
        400.. => Some("other"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::API_ERRORS;

    #[test]
    fn every_kind_has_a_series_from_the_start() {
        for code in 100..600 {
            let status = StatusCode::from_u16(code).unwrap();
            assert!(kind(status).is_none_or(|kind| API_ERRORS.contains(&kind)), "{code}");
            assert_eq!(kind(status).is_none(), code < 400 || code == 404, "{code}");
        }
    }

    /// Neither an answer that does not come nor one that does not end is waited for.
    #[tokio::test]
    async fn every_answer_has_an_end_and_a_watch_may_last() {
        let metrics = Metrics::new();
        type Never = futures::stream::Pending<Result<hyper::body::Frame<bytes::Bytes>, std::io::Error>>;
        let server = service_fn(|request: Request<Body>| async move {
            let endless: Never = futures::stream::pending();
            match request.uri().path() {
                "/silent" => std::future::pending().await,
                _ => Ok::<_, std::io::Error>(Response::new(http_body_util::StreamBody::new(endless))),
            }
        });
        let limit = Duration::from_millis(50);
        let client = answered_within(limit, Client::new(server, "default"), metrics.clone());
        let ask = async |path: &str| client.send(Request::get(path).body(Body::empty()).unwrap()).await;
        for path in ["/silent", "/endless", "/silent?watch=true"] {
            let error = ask(path).await.unwrap_err();
            assert!(format!("{error:?}").contains("Unanswered"), "{path}: {error:?}");
        }
        let watch = ask("/endless?allowWatchBookmarks=true&watch=true").await.unwrap();
        let next = timeout(limit * 4, watch.into_body().frame()).await;
        assert!(next.is_err(), "a silent watch goes on");
        assert!(metrics.text().contains("purelb_api_errors_total{kind=\"timeout\"} 3"));
    }

    #[tokio::test]
    async fn answers_pass_and_failures_are_counted() {
        let metrics = Metrics::new();
        let server = service_fn(|request: Request<Body>| async move {
            match request.uri().path() {
                "/gone" => Err(std::io::Error::other("the connection broke")),
                "/busy" => Ok(Response::builder().status(429).body(Body::empty()).unwrap()),
                _ => Ok(Response::new(Body::empty())),
            }
        });
        let client = counted(Client::new(server, "default"), metrics.clone());
        let ask = async |path: &str| client.send(Request::get(path).body(Body::empty()).unwrap()).await;
        assert_eq!(ask("/fine").await.unwrap().status(), 200);
        assert_eq!(ask("/busy").await.unwrap().status(), 429);
        assert!(ask("/gone").await.is_err());
        let text = metrics.text();
        for line in [
            "purelb_api_requests_total 3",
            "purelb_api_errors_total{kind=\"throttled\"} 1",
            "purelb_api_errors_total{kind=\"unreachable\"} 1",
            "purelb_api_errors_total{kind=\"conflict\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
        }
    }
}
