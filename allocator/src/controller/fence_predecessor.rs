//! Taking over from a leader that fell silent.
//!
//! It may have sent a write just before it was paused, past its last look at the
//! guard: "address X for Service A". Such a write names the version of A it was made
//! for. So before anything is given to anybody, every Service that could be meant,
//! which is every one without all it should have, gets a new version. From then on
//! the old write is refused by the API server, and X may go to somebody else.
//!
//! A Service that cannot be given one (a policy engine refuses, or its webhook is
//! down) must not keep everybody else waiting: after a while the rest goes on, the
//! Service is named, and it is tried further on. Should the old write arrive after all,
//! and give an address that somebody else has by then, both are told (AddressConflict).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use kube::ResourceExt;
use purelb_core::ObjectKey;
use purelb_core::allocation::{Decision, ServiceEventKind, ServiceOwner};
use tokio::time::Instant;
use tracing::{info, warn};

use super::AllocationController;
use super::results::Done;
use super::retry_queue::Retries;
use crate::kube::service_writer::Fence;

/// Those that were refused are tried again for this long before the rest goes on.
const PATIENCE: Duration = Duration::from_secs(5);
/// However many there are and however slow they are, the rest goes on after this.
const LONGEST: Duration = Duration::from_secs(60);

/// Which Services still have the version a former leader knew.
#[derive(Debug, Default)]
pub(super) struct Fencing {
    began: Option<Instant>,
    queue: VecDeque<ObjectKey>,
    under_way: usize,
    /// Why not yet, and the version that would have to be the past.
    open: BTreeMap<ObjectKey, (String, Option<String>)>,
    again: Retries,
}

impl Fencing {
    pub(super) fn next(&self) -> Option<Instant> {
        let limit = self.began.map(|began| match self.queue.is_empty() && self.under_way == 0 {
            true => began + PATIENCE,
            false => began + LONGEST,
        });
        [self.again.next(), limit].into_iter().flatten().min()
    }

    /// Nothing more is waited for.
    fn is_over(&self, now: Instant) -> bool {
        let Some(began) = self.began else { return true };
        let tried = self.queue.is_empty() && self.under_way == 0;
        tried && (self.open.is_empty() || now >= began + PATIENCE) || now >= began + LONGEST
    }

    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.open.remove(key);
        self.again.succeeded(key);
    }
}

impl AllocationController {
    /// Finds out which Services could be meant.
    pub(super) fn begin_fencing(&mut self) {
        let unsettled = self.unsettled();
        if unsettled.is_empty() {
            return;
        }
        info!(services = unsettled.len(), "fencing off the former leader");
        self.fencing.began = Some(Instant::now());
        self.fencing.queue = unsettled.into();
    }

    /// Goes on with it; true once the rest may go on.
    pub(super) fn fence_on(&mut self) -> bool {
        let now = Instant::now();
        let due = self.fencing.again.due(now);
        self.fencing.queue.extend(due);
        while self.writing < self.settings.writes
            && let Some(key) = self.fencing.queue.pop_front()
        {
            self.fence(key);
        }
        if !self.fencing.is_over(now) {
            return false;
        }
        if self.fencing.began.take().is_some() {
            let late = std::mem::take(&mut self.fencing.queue);
            for key in late {
                self.not_fenced(key, "there was no time for it".to_owned());
            }
            self.name_unfenced();
        }
        true
    }

    fn fence(&mut self, key: ObjectKey) {
        let Some(service) = self.objects.get(&key).cloned() else { return self.fencing.forget(&key) };
        // Whoever wrote it since has done the same.
        let still = self.fencing.open.get(&key);
        if still.is_some_and(|(_, version)| *version != service.resource_version()) {
            return self.fencing.forget(&key);
        }
        self.writing += 1;
        self.fencing.under_way += 1;
        let (writer, leader) = (self.writer.clone(), self.identity.clone());
        self.tasks.spawn(async move {
            let ended = writer.fence(&key, service, &leader).await;
            Done::Fenced { key, ended }
        });
    }

    pub(super) fn fenced(&mut self, key: ObjectKey, ended: Fence) {
        self.writing -= 1;
        self.fencing.under_way -= 1;
        match ended {
            Fence::Done(service) => {
                self.know(service);
                self.fencing.forget(&key);
            }
            // The watch says so, too, and then it is forgotten.
            Fence::Gone => self.fencing.forget(&key),
            Fence::Deposed => self.deposed = true,
            Fence::Not(why) => self.not_fenced(key, why),
        }
    }

    fn not_fenced(&mut self, key: ObjectKey, why: String) {
        let version = self.objects.get(&key).and_then(|service| service.resource_version());
        self.fencing.again.failed(&key, Instant::now());
        self.fencing.open.insert(key, (why, version));
    }

    /// Says which Services everybody else no longer waits for.
    fn name_unfenced(&mut self) {
        for (key, (why, _)) in &self.fencing.open {
            warn!(service = %key, why, "cannot fence off the former leader here; going on without it");
            let Some(service) = self.objects.get(key).cloned() else { continue };
            let (writer, message) = (
                self.writer.clone(),
                format!("a new leader took over and cannot write to this Service: {why}"),
            );
            let kind = ServiceEventKind::ConfigurationWarning;
            tokio::spawn(async move {
                writer.tell(&service, kind.as_str(), kind.is_warning(), &message).await;
            });
        }
    }

    fn unsettled(&mut self) -> Vec<ObjectKey> {
        let mut found = Vec::new();
        while let Some(key) = self.book.take_next() {
            let decision = self.book.decide(&key);
            let ask = self.book.service(&key);
            let empty = ask.is_some_and(|ask| ask.whose == ServiceOwner::Ours && ask.held.is_empty());
            if (empty || decision != Decision::Nothing) && self.objects.contains_key(&key) {
                found.push(key);
            }
        }
        // What was decided to find them out was decided too early.
        self.book.start_over();
        found
    }
}
