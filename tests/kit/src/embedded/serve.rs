//! HTTP in front of the store: one connection, one task; one request, one answer.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::StreamExt;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::Value;

use super::kinds::Kind;
use super::path::{Query, Target, Verb, query};
use super::present::Form;
use super::read::{self, WatchManners};
use super::status::Refusal;
use super::store::Store;
use super::write::{self, Intent, Patch, Written};
use super::{RequestKey, discovery};

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// What every connection shares.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) store: Store,
    pub(crate) manners: WatchManners,
    pub(crate) requests: Mutex<BTreeMap<RequestKey, u64>>,
}

impl Shared {
    fn count(&self, headers: &HeaderMap, target: &Target) {
        let key = RequestKey { client: client_of(headers), verb: target.verb, resource: target.resource() };
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default() += 1;
    }

    pub(crate) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer, Infallible> {
        let (head, body) = request.into_parts();
        let target = Target::of(&head.method, &head.uri);
        self.count(&head.headers, &target);
        // A body cut off in the middle comes with a dead connection: nobody reads the answer.
        let body = match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => {
                return Ok(refused(&Refusal::bad_request(format!("the body did not arrive: {error}"))));
            }
        };
        Ok(self.handle(&head.method, &head.uri, &head.headers, &target, &body))
    }

    fn handle(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        target: &Target,
        body: &Bytes,
    ) -> Answer {
        let found = self.kinds.iter().find(|kind| {
            kind.group == target.group && kind.version == target.version && kind.plural == target.plural
        });
        let Some(kind) = found else {
            return self.elsewhere(method, uri.path());
        };
        let fits = match target.subresource.as_str() {
            "" => true,
            "status" => kind.status && matches!(target.verb, Verb::Get | Verb::Update | Verb::Patch),
            _ => false,
        };
        if !fits || (!kind.namespaced && !target.namespace.is_empty()) {
            return not_a_path();
        }
        // Without a namespace, a namespaced kind can only be listed and watched.
        if kind.namespaced && target.namespace.is_empty() && !matches!(target.verb, Verb::List | Verb::Watch)
        {
            return refused(&Refusal::method_not_allowed());
        }
        let request = Asked { shared: self, kind, target, headers, query: query(uri), body };
        request.answer().unwrap_or_else(|refusal| refused(&refusal))
    }

    fn elsewhere(&self, method: &Method, path: &str) -> Answer {
        if method == Method::GET && ["/readyz", "/livez", "/healthz"].contains(&path) {
            return plain(StatusCode::OK, "ok");
        }
        match discovery::answer(&self.kinds, path) {
            Some(body) if method == Method::GET => json(StatusCode::OK, &body),
            _ => not_a_path(),
        }
    }
}

/// One request about a kind the server has.
struct Asked<'a> {
    shared: &'a Shared,
    kind: &'a Kind,
    target: &'a Target,
    headers: &'a HeaderMap,
    query: Query,
    body: &'a Bytes,
}

impl Asked<'_> {
    fn answer(&self) -> Result<Answer, Refusal> {
        let (store, kind, target) = (&self.shared.store, self.kind, self.target);
        let form = Form::asked(header(self.headers, ACCEPT));
        let object = |code, value| json(code, &form.object(kind, value));
        match target.verb {
            Verb::Get => {
                let found = read::get(store, kind, &(target.namespace.clone(), target.name.clone()))?;
                Ok(object(StatusCode::OK, found))
            }
            Verb::List => {
                let list = read::list(store, kind, &target.namespace, &self.query)?;
                Ok(json(StatusCode::OK, &form.list(kind, list)))
            }
            Verb::Watch => {
                let manners = self.shared.manners;
                let lines = read::watch(store, kind, &target.namespace, &self.query, form, manners)?;
                Ok(streamed(lines.map(|line| Ok(Frame::data(line)))))
            }
            Verb::Create => {
                let intent = self.intent()?;
                let sent = self.json_body()?;
                let created = write::create(&mut store.lock(), &intent, sent)?;
                Ok(object(StatusCode::CREATED, created))
            }
            Verb::Update => {
                let intent = self.intent()?;
                let sent = self.json_body()?;
                let written = write::update(&mut store.lock(), &intent, sent)?;
                Ok(self.written(form, written))
            }
            Verb::Patch => {
                let intent = self.intent()?;
                let patch = self.patch()?;
                let written = write::patch(&mut store.lock(), &intent, patch)?;
                Ok(self.written(form, written))
            }
            Verb::Delete => {
                let options = self.options()?;
                let intent = self.deletion(&options)?;
                let answer = write::delete(&mut store.lock(), &intent, &options)?;
                Ok(json(StatusCode::OK, &answer))
            }
            Verb::DeleteCollection => self.delete_collection(form),
            Verb::Other => Err(Refusal::method_not_allowed()),
        }
    }

    fn written(&self, form: Form, written: Written) -> Answer {
        let (code, object) = match written {
            Written::Created(object) => (StatusCode::CREATED, object),
            Written::Updated(object) => (StatusCode::OK, object),
        };
        json(code, &form.object(self.kind, object))
    }

    fn delete_collection(&self, form: Form) -> Result<Answer, Refusal> {
        let options = self.options()?;
        let listed = read::list(&self.shared.store, self.kind, &self.target.namespace, &self.query)?;
        let mut state = self.shared.store.lock();
        for item in listed["items"].as_array().into_iter().flatten() {
            let name = item["metadata"]["name"].as_str().unwrap_or_default();
            let intent = Intent { name, ..self.deletion(&options)? };
            // One that is gone by now is what was asked for.
            let _ = write::delete(&mut state, &intent, &options);
        }
        Ok(json(StatusCode::OK, &form.list(self.kind, listed)))
    }

    /// A body counts for more than the query, also where it says nothing.
    fn deletion(&self, options: &Value) -> Result<Intent<'_>, Refusal> {
        let intent = self.intent()?;
        let dry_run = match options {
            Value::Null => intent.dry_run,
            options => options["dryRun"].as_array().is_some_and(|runs| runs.iter().any(|run| run == "All")),
        };
        Ok(Intent { dry_run, ..intent })
    }

    fn intent(&self) -> Result<Intent<'_>, Refusal> {
        let asked = |name: &str| self.query.get(name).map_or("", String::as_str);
        let dry_run = match asked("dryRun") {
            "" => false,
            "All" => true,
            other => {
                let why = format!("Unsupported value: {other:?}: supported values: \"All\"");
                return Err(Refusal::invalid_options("PatchOptions", "dryRun", &why));
            }
        };
        let applies = header(self.headers, CONTENT_TYPE).starts_with("application/apply-patch");
        let manager = match asked("fieldManager") {
            "" if applies => {
                let why = "Required value: is required for apply patch";
                return Err(Refusal::invalid_options("PatchOptions", "fieldManager", why));
            }
            "" => header(self.headers, USER_AGENT).split('/').next().unwrap_or_default(),
            named => named,
        };
        let force = ["true", "1"].contains(&asked("force"));
        if force && !applies {
            let why = "Forbidden: may not be specified for non-apply patch";
            return Err(Refusal::invalid_options("PatchOptions", "force", why));
        }
        Ok(Intent {
            kind: self.kind,
            namespace: &self.target.namespace,
            name: &self.target.name,
            subresource: &self.target.subresource,
            manager: if manager.is_empty() { "unknown".to_string() } else { manager.to_string() },
            dry_run,
            force,
        })
    }

    fn json_body(&self) -> Result<Value, Refusal> {
        let sent = header(self.headers, CONTENT_TYPE).split(';').next().unwrap_or_default();
        if !["", "application/json"].contains(&sent.trim()) {
            return Err(Refusal::unsupported_media_type(sent));
        }
        let readable = |error| {
            let message =
                format!("the object provided is unrecognized (must be of type {}): {error}", self.kind.kind);
            Refusal::bad_request(message)
        };
        serde_json::from_slice(self.body).map_err(readable)
    }

    fn options(&self) -> Result<Value, Refusal> {
        if self.body.is_empty() { Ok(Value::Null) } else { self.json_body() }
    }

    fn patch(&self) -> Result<Patch, Refusal> {
        let sent = header(self.headers, CONTENT_TYPE);
        let unreadable = |error| Refusal::bad_request(format!("error decoding patch: {error}"));
        match sent.split(';').next().unwrap_or_default().trim() {
            "application/merge-patch+json" => {
                Ok(Patch::Merge(serde_json::from_slice(self.body).map_err(unreadable)?))
            }
            "application/json-patch+json" => {
                Ok(Patch::Json(serde_json::from_slice(self.body).map_err(unreadable)?))
            }
            // JSON is YAML; clients send it.
            "application/apply-patch+yaml" => {
                Ok(Patch::Apply(serde_json::from_slice(self.body).map_err(unreadable)?))
            }
            other => Err(Refusal::unsupported_media_type(other)),
        }
    }
}

fn header(headers: &HeaderMap, name: HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Who asks: the bearer token if there is one, or the first word of the User-Agent.
fn client_of(headers: &HeaderMap) -> String {
    let token = header(headers, AUTHORIZATION).strip_prefix("Bearer ").unwrap_or_default();
    let agent = header(headers, USER_AGENT).split('/').next().unwrap_or_default();
    if token.is_empty() { agent.to_string() } else { token.to_string() }
}

fn whole(code: StatusCode, media: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body).boxed_unsync());
    *answer.status_mut() = code;
    answer.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(media));
    answer
}

fn json(code: StatusCode, body: &Value) -> Answer {
    whole(code, "application/json", body.to_string().into())
}

fn plain(code: StatusCode, body: &'static str) -> Answer {
    whole(code, "text/plain; charset=utf-8", Bytes::from_static(body.as_bytes()))
}

fn refused(refusal: &Refusal) -> Answer {
    json(refusal.code, &refusal.body())
}

/// What the real server says of a path nobody serves.
fn not_a_path() -> Answer {
    plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

fn streamed<S>(frames: S) -> Answer
where
    S: futures::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + 'static,
{
    let mut answer = Response::new(StreamBody::new(frames).boxed_unsync());
    answer.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    answer
}
