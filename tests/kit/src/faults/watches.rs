//! The watches that are open through a proxy, each of which can be told to hold its
//! tongue, to end, or to go stale.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::json;
use tokio::sync::watch;

use super::counters::Tally;
use super::rules::Matcher;
use crate::embedded::Target;

/// How a watch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As by its timeout.
    Clean,
    /// In the middle of the stream.
    Broken,
    /// With a 410 as last event.
    Stale,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Flow,
    Withhold,
    End(End),
}

#[derive(Debug)]
struct Open {
    target: Target,
    order: watch::Sender<Order>,
}

#[derive(Debug, Default)]
struct Inner {
    open: Vec<Open>,
    withheld: Vec<(u64, Matcher)>,
    next: u64,
}

impl Inner {
    fn order_for(&self, target: &Target) -> Order {
        let withheld = self.withheld.iter().any(|(_, matcher)| matcher.matches(target));
        if withheld { Order::Withhold } else { Order::Flow }
    }
}

/// Every open watch of one proxy.
#[derive(Debug, Default)]
pub(super) struct Watches(Mutex<Inner>);

/// Watches that hold their tongue; they speak again when this is dropped.
#[derive(Debug)]
#[must_use = "the watches flow again when this is dropped"]
pub struct Withheld {
    watches: Arc<Watches>,
    id: u64,
}

impl Withheld {
    /// Lets the watches speak again: what was held back comes first.
    pub fn release(self) {}
}

impl Drop for Withheld {
    fn drop(&mut self) {
        let mut inner = self.watches.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.withheld.retain(|(id, _)| *id != self.id);
        inner.obey();
    }
}

impl Inner {
    /// Brings every open watch to what the matchers in force say.
    fn obey(&mut self) {
        self.open.retain(|open| !open.order.is_closed());
        for open in &self.open {
            let order = self.order_for(&open.target);
            open.order.send_if_modified(|now| {
                let change = !matches!(now, Order::End(_)) && *now != order;
                if change {
                    *now = order;
                }
                change
            });
        }
    }
}

impl Watches {
    pub(super) fn withhold(self: &Arc<Self>, matcher: Matcher) -> Withheld {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.next += 1;
        let id = inner.next;
        inner.withheld.push((id, matcher));
        inner.obey();
        Withheld { watches: self.clone(), id }
    }

    /// Ends what matches and says how many there were.
    pub(super) fn end(&self, matcher: &Matcher, how: End) -> usize {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.open.retain(|open| !open.order.is_closed());
        let mut ended = 0;
        for open in inner.open.iter().filter(|open| matcher.matches(&open.target)) {
            open.order.send_replace(Order::End(how));
            ended += 1;
        }
        ended
    }

    /// How many are open.
    pub(super) fn count(&self) -> usize {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.open.retain(|open| !open.order.is_closed());
        inner.open.len()
    }

    /// The lines of a watch, under orders.
    pub(super) fn tap(
        &self,
        target: &Target,
        body: Body,
        tally: Arc<Tally>,
    ) -> impl Stream<Item = Result<Bytes, Broken>> + Send + use<> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let order = watch::Sender::new(inner.order_for(target));
        let orders = order.subscribe();
        inner.open.push(Open { target: target.clone(), order });
        tally.add(|counters| counters.watches_opened += 1);
        let source = body.into_data_stream().boxed();
        let tap = Tap { source, orders, rest: BytesMut::new(), tally, ended: false };
        stream::unfold(tap, Tap::next)
    }
}

/// The stream is cut off in the middle.
#[derive(Debug, thiserror::Error)]
#[error("the fault proxy broke the connection")]
pub(super) struct Broken;

struct Tap {
    source: stream::BoxStream<'static, Result<Bytes, kube::Error>>,
    orders: watch::Receiver<Order>,
    /// The beginning of a line whose end has not come: an order acts between events.
    rest: BytesMut,
    tally: Arc<Tally>,
    ended: bool,
}

impl Tap {
    async fn next(mut self) -> Option<(Result<Bytes, Broken>, Self)> {
        while !self.ended {
            let order = *self.orders.borrow_and_update();
            match order {
                Order::End(how) => {
                    self.ended = true;
                    self.tally.add(|counters| match how {
                        End::Stale => counters.watches_expired += 1,
                        End::Clean | End::Broken => counters.watches_dropped += 1,
                    });
                    return match how {
                        End::Clean => None,
                        End::Broken => Some((Err(Broken), self)),
                        End::Stale => Some((Ok(stale_line()), self)),
                    };
                }
                Order::Withhold => {
                    // Not reading is what withholds: the server's queue and the sockets
                    // between keep the events, within their bounds.
                    if self.orders.changed().await.is_err() {
                        return None;
                    }
                }
                Order::Flow => tokio::select! {
                    biased;
                    _ = self.orders.changed() => {}
                    chunk = self.source.next() => match chunk {
                        None => return None,
                        Some(Err(_)) => {
                            self.ended = true;
                            return Some((Err(Broken), self));
                        }
                        Some(Ok(chunk)) => {
                            self.rest.extend_from_slice(&chunk);
                            let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { continue };
                            let lines = self.rest.split_to(end + 1).freeze();
                            return Some((Ok(lines), self));
                        }
                    },
                },
            }
        }
        None
    }
}

/// The event a watch gets whose version the server does not remember.
pub(super) fn stale_line() -> Bytes {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version: 1 (2)", "reason": "Expired", "code": 410,
    });
    format!("{}\n", json!({"type": "ERROR", "object": status})).into()
}
