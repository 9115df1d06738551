//! What a check works with: a Namespace of its own, requests as they go over the wire.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::future::BoxFuture;
use futures::io::Lines;
use futures::{AsyncBufRead, AsyncBufReadExt, StreamExt};
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use std::pin::Pin;

pub(crate) const GROUP: &str = "conformance.purelb.io";

/// How long the next event of a watch may take.
const SOON: Duration = Duration::from_secs(10);

#[derive(Clone, Copy)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) run: fn(Ctx) -> BoxFuture<'static, Result<()>>,
}

/// The table of checks of a module: `checks![one, two]`.
macro_rules! checks {
    ($($check:ident),* $(,)?) => {
        pub(crate) const CHECKS: &[$crate::kit::Check] = &[$($crate::kit::Check {
            name: stringify!($check),
            run: |ctx| Box::pin($check(ctx)),
        }),*];
    };
}
pub(crate) use checks;

pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const JSON: &str = "application/json-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

pub(crate) struct Ctx {
    pub(crate) client: kube::Client,
    pub(crate) namespace: String,
}

/// What came back.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
}

impl Answer {
    /// The body of an answer that had to be this one.
    #[track_caller]
    pub(crate) fn is(self, code: u16) -> Result<Value> {
        let at = std::panic::Location::caller();
        ensure!(self.code == code, "line {}: expected {code}, got {}: {}", at.line(), self.code, self.body);
        Ok(self.body)
    }

    /// A refusal, with the body every refusal has.
    #[track_caller]
    pub(crate) fn refused(self, code: u16, reason: &str) -> Result<Value> {
        let at = std::panic::Location::caller();
        let body = self.is(code).with_context(|| format!("line {}", at.line()))?;
        let (kind, said) = (&body["kind"], &body["reason"]);
        let well_formed = kind == "Status" && body["status"] == "Failure" && body["code"] == code;
        ensure!(well_formed && said == reason, "line {}: expected {reason}: {body}", at.line());
        ensure!(!body["message"].as_str().unwrap_or_default().is_empty(), "no message: {body}");
        Ok(body)
    }
}

/// The version an object or a list says it has.
pub(crate) fn version(object: &Value) -> Result<u64> {
    let text = object["metadata"]["resourceVersion"].as_str().context("no resourceVersion")?;
    Ok(text.parse()?)
}

pub(crate) fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().into_iter().flatten();
    items.map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_string()).collect()
}

/// Percent-encodes what a selector needs.
pub(crate) fn encode(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

impl Ctx {
    pub(crate) async fn new(client: kube::Client, check: &str) -> Result<Ctx> {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let mut name = check.replace('_', "-");
        name.truncate(40);
        let ctx = Ctx { client, namespace: format!("{name}-{}", &id[..8]) };
        let namespace = json!({"metadata": {"name": ctx.namespace}});
        ctx.post("/api/v1/namespaces", namespace).await?.is(201)?;
        Ok(ctx)
    }

    pub(crate) fn leases(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    pub(crate) fn services(&self) -> String {
        format!("/api/v1/namespaces/{}/services", self.namespace)
    }

    pub(crate) fn secrets(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets", self.namespace)
    }

    pub(crate) fn samples(&self) -> String {
        format!("/apis/{GROUP}/v1/namespaces/{}/samples", self.namespace)
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        media: &str,
        body: Vec<u8>,
    ) -> Result<Answer> {
        self.send_accepting(method, path, media, "application/json", body).await
    }

    pub(crate) async fn send_accepting(
        &self,
        method: Method,
        path: &str,
        media: &str,
        accept: &str,
        body: Vec<u8>,
    ) -> Result<Answer> {
        let mut request = Request::builder().method(method).uri(path).header("accept", accept);
        if !media.is_empty() {
            request = request.header("content-type", media);
        }
        let answer = self.client.send(request.body(Body::from(body))?).await?;
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect().await?.to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Ok(Answer { code, body })
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Answer> {
        self.send(Method::GET, path, "", Vec::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Result<Answer> {
        self.send(Method::POST, path, "application/json", body.to_string().into()).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Result<Answer> {
        self.send(Method::PUT, path, "application/json", body.to_string().into()).await
    }

    pub(crate) async fn patch(&self, path: &str, media: &str, body: Value) -> Result<Answer> {
        self.send(Method::PATCH, path, media, body.to_string().into()).await
    }

    pub(crate) async fn delete(&self, path: &str, options: Value) -> Result<Answer> {
        self.send(Method::DELETE, path, "application/json", options.to_string().into()).await
    }

    pub(crate) async fn create_lease(&self, name: &str) -> Result<Value> {
        self.post(&self.leases(), mk_lease(name)).await?.is(201)
    }

    pub(crate) async fn create_sample(&self, name: &str) -> Result<Value> {
        self.post(&self.samples(), mk_sample(name)).await?.is(201)
    }

    pub(crate) async fn create_service(&self, name: &str) -> Result<Value> {
        self.post(&self.services(), mk_service(name)).await?.is(201)
    }

    /// Opens a watch; `query` continues the URL after `watch=true`.
    pub(crate) async fn watch(&self, path: &str, query: &str) -> Result<Watch> {
        let request = Request::get(format!("{path}?watch=true{query}")).body(Vec::new())?;
        let lines = self.client.request_stream(request).await?;
        let lines: Pin<Box<dyn AsyncBufRead + Send>> = Box::pin(lines);
        Ok(Watch { lines: lines.lines() })
    }
}

pub(crate) struct Watch {
    lines: Lines<Pin<Box<dyn AsyncBufRead + Send>>>,
}

impl Watch {
    /// The next event, or `None` at a clean end.
    pub(crate) async fn next(&mut self) -> Result<Option<(String, Value)>> {
        let line = tokio::time::timeout(SOON, self.lines.next()).await.context("the watch stays silent")?;
        let Some(line) = line else { return Ok(None) };
        let mut event: Value = serde_json::from_str(&line?)?;
        let kind = event["type"].as_str().context("an event without type")?.to_string();
        Ok(Some((kind, event["object"].take())))
    }

    /// The next event, which has to be of this type.
    #[track_caller]
    pub(crate) fn expect<'a>(&'a mut self, kind: &'a str) -> impl Future<Output = Result<Value>> + 'a {
        let at = std::panic::Location::caller();
        async move {
            match self.next().await.with_context(|| format!("line {}: {kind} expected", at.line()))? {
                Some((got, object)) if got == kind => Ok(object),
                other => bail!("line {}: {kind} expected, got {other:?}", at.line()),
            }
        }
    }
}

pub(crate) fn mk_lease(name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"holderIdentity": "one", "leaseDurationSeconds": 10},
    })
}

pub(crate) fn mk_sample(name: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "Sample", "metadata": {"name": name},
        "spec": {"size": 1},
    })
}

pub(crate) fn mk_service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "web"},
                 "loadBalancerClass": "purelb.io/purelbv2", "allocateLoadBalancerNodePorts": false},
    })
}
