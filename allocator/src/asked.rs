//! Counts what the API server answers: a client around a client, so that no caller has
//! to think of it.

use http::StatusCode;
use kube::Client;
use tower::service_fn;

use crate::metrics::Metrics;

/// The same client; what fails is counted by kind.
pub fn counted(client: Client, metrics: Metrics) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request| {
        let (client, metrics) = (client.clone(), metrics.clone());
        async move {
            metrics.api_request();
            let answer = client.send(request).await;
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
    use http::{Request, Response};
    use kube::client::Body;

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
