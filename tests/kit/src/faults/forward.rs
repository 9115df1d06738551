//! One request on its way through a proxy.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING,
};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use kube::client::Body;
use serde_json::json;

use super::counters::Tally;
use super::rules::{Action, Decision, Rules};
use super::watches::{Broken, Watches, stale_line};
use crate::embedded::{Target, Verb};

type Answer = Response<UnsyncBoxBody<Bytes, Broken>>;

/// What every connection of a proxy shares.
pub(super) struct Path {
    pub(super) upstream: kube::Client,
    pub(super) rules: Arc<Rules>,
    pub(super) watches: Arc<Watches>,
    pub(super) tally: Arc<Tally>,
}

/// A request without an answer yet. The HTTP server drops it when its client leaves.
struct Waiting {
    tally: Arc<Tally>,
    answered: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.answered {
            self.tally.add(|counters| counters.abandoned += 1);
        }
    }
}

impl Path {
    /// An `Err` makes the HTTP server close the connection without an answer.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer, Broken> {
        let target = Target::of(request.method(), request.uri());
        let (head, body) = request.into_parts();
        // The whole request first: a client that breaks off asked for nothing.
        let body = body.collect().await.map_err(|_| Broken)?.to_bytes();
        let mut waiting = Waiting { tally: self.tally.clone(), answered: false };
        let answer = self.through(&target, Request::from_parts(head, body)).await;
        waiting.answered = true;
        answer
    }

    async fn through(&self, target: &Target, request: Request<Bytes>) -> Result<Answer, Broken> {
        let decisions = self.rules.decide(target);
        for decision in &decisions {
            if let Some(answer) = self.before(decision).await? {
                return Ok(answer);
            }
        }
        let answer = self.forward(target, request).await;
        for decision in &decisions {
            self.after(decision).await?;
        }
        Ok(answer)
    }

    /// What happens before the server hears of the request.
    async fn before(&self, decision: &Decision) -> Result<Option<Answer>, Broken> {
        match decision.action {
            Action::Delay { .. } => {
                self.tally.add(|counters| counters.delayed += 1);
                tokio::time::sleep(decision.delay).await;
            }
            Action::Answer { code, retry_after } => {
                self.tally.add(|counters| *counters.answered.entry(code).or_default() += 1);
                return Ok(Some(injected(code, retry_after)));
            }
            Action::Drop => {
                self.tally.add(|counters| counters.dropped += 1);
                return Err(Broken);
            }
            Action::Stall => {
                self.tally.add(|counters| counters.stalled += 1);
                decision.over.cancelled().await;
            }
            Action::Stale => {
                self.tally.add(|counters| counters.watches_expired += 1);
                let line = stream::iter([Ok(Frame::data(stale_line()))]);
                return Ok(Some(with_type(StatusCode::OK, StreamBody::new(line).boxed_unsync())));
            }
            Action::LoseAnswer | Action::StallAnswer => {}
        }
        Ok(None)
    }

    /// What happens once the server has done it.
    async fn after(&self, decision: &Decision) -> Result<(), Broken> {
        match decision.action {
            Action::LoseAnswer => {
                self.tally.add(|counters| counters.lost_answers += 1);
                Err(Broken)
            }
            Action::StallAnswer => {
                self.tally.add(|counters| counters.stalled += 1);
                decision.over.cancelled().await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn forward(&self, target: &Target, request: Request<Bytes>) -> Answer {
        self.tally.add(|counters| {
            *counters.forwarded.entry((target.verb, target.resource())).or_default() += 1;
        });
        let (mut head, body) = request.into_parts();
        own_hop_only(&mut head.headers);
        head.headers.remove(HOST);
        head.headers.remove(CONTENT_LENGTH);
        let sent = self.upstream.send(Request::from_parts(head, Body::from(body))).await;
        let answer = match sent {
            Ok(answer) => answer,
            Err(error) => {
                self.tally.add(|counters| counters.unreachable += 1);
                let text = format!("the fault proxy cannot reach the server: {error}\n");
                return with_type(StatusCode::BAD_GATEWAY, whole(text.into()));
            }
        };
        let (mut head, body) = answer.into_parts();
        own_hop_only(&mut head.headers);
        let body = if target.verb == Verb::Watch && head.status == StatusCode::OK {
            let lines = self.watches.tap(target, body, self.tally.clone());
            StreamBody::new(lines.map(|lines| lines.map(Frame::data))).boxed_unsync()
        } else {
            body.map_err(|_| Broken).boxed_unsync()
        };
        Response::from_parts(head, body)
    }
}

/// Headers that belong to one connection, not to the request.
fn own_hop_only(headers: &mut HeaderMap) {
    headers.remove(CONNECTION);
    headers.remove(TRANSFER_ENCODING);
}

fn whole(body: Bytes) -> UnsyncBoxBody<Bytes, Broken> {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

fn with_type(code: StatusCode, body: UnsyncBoxBody<Bytes, Broken>) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// The refusal a server would give with this code.
fn injected(code: u16, retry_after: Option<u32>) -> Answer {
    let (reason, message) = match code {
        401 => ("Unauthorized", "Unauthorized"),
        403 => ("Forbidden", "forbidden by the fault proxy"),
        404 => ("NotFound", "not found, says the fault proxy"),
        409 => (
            "Conflict",
            "Operation cannot be fulfilled: the object has been modified; please apply your changes to the \
             latest version and try again",
        ),
        410 => ("Expired", "too old resource version: 1 (2)"),
        429 => ("TooManyRequests", "too many requests, please try again later"),
        500 => ("InternalError", "an error on the server, made by the fault proxy"),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => ("Timeout", "the server did not answer in time"),
        _ => ("Unknown", "made by the fault proxy"),
    };
    let mut body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    if let Some(seconds) = retry_after {
        body["details"] = json!({ "retryAfterSeconds": seconds });
    }
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = with_type(code, whole(body.to_string().into()));
    if let Some(seconds) = retry_after {
        answer.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    answer
}
