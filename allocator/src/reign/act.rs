//! Decisions out, results back.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use purelb_api::{ServiceGroup, service};
use purelb_core::allocation::{Change, Decision, GiveBack, Listed, Question, Sure, Tally};
use purelb_core::facts::PoolType;
use purelb_core::pools::{GroupName, GroupStats};
use purelb_core::{ObjectKey, Vip};
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::{FLUSH_AFTER, FLUSH_PAUSE, Reign};
use crate::leader::Guard;
use crate::providers::{ProviderError, ProviderStats, Rested};
use crate::writer::{Ended, Fence};

/// How often giving an address back is tried before the user hears of it. A sweep finds
/// it again later.
const GIVE_BACK_TRIES: u32 = 8;

/// Providers are not asked how full they are more often than this: they may have to
/// go through all their addresses for the answer.
const STATS_PAUSE: Duration = Duration::from_secs(5);

/// What a task came back with.
#[derive(Debug)]
pub(super) enum Done {
    Wrote { key: ObjectKey, ended: Ended, tally: Tally },
    Fenced { key: ObjectKey, ended: Fence },
    Answered { key: ObjectKey, question: Question, answer: Result<Vec<Vip>, String> },
    GaveBack { what: GiveBack, answer: Result<(), String> },
    Status { name: GroupName, answer: Result<Box<ServiceGroup>, String> },
    Listed { name: GroupName, answer: Result<Option<Vec<Listed>>, ProviderError> },
    Stats { name: GroupName, answer: Result<ProviderStats, ProviderError> },
}

impl Reign {
    /// Decides, oldest Service first, while there is room for writes.
    pub(super) fn dispatch(&mut self) {
        while self.writing < self.settings.writes {
            let Some(key) = self.book.take_next() else { break };
            match self.book.decide(&key) {
                Decision::Nothing => {}
                Decision::Write(change) => self.write(key, *change),
                Decision::Ask(question) => self.ask(key, question),
            }
        }
        self.give_back();
    }

    fn write(&mut self, key: ObjectKey, change: Change) {
        let Some(service) = self.objects.get(&key).cloned() else { return };
        self.book.busy(&key);
        self.writing += 1;
        self.touch_statuses();
        debug!(service = %key, ?change, "writing");
        let writer = self.writer.clone();
        self.tasks.spawn(async move {
            let ended = writer.carry_out(&key, service, &change).await;
            Done::Wrote { key, ended, tally: change.tally }
        });
    }

    fn ask(&mut self, key: ObjectKey, question: Question) {
        let Some(config) = self.groups.config(&question.group) else { return };
        let Some(provider) = self.providers.of(&question.group, config) else {
            let answer = Err("it cannot be used by this allocator".to_owned());
            self.book.answer(&key, question, answer);
            return;
        };
        self.book.busy(&key);
        let guard = self.writer.guard().clone();
        self.tasks.spawn(async move {
            let answer = provider.allocate(&guard, &question).await.map_err(|e| e.to_string());
            Done::Answered { key, question, answer }
        });
    }

    fn give_back(&mut self) {
        for what in self.book.take_give_backs() {
            let providers = self.books_of(&what.group);
            if providers.is_empty() {
                self.book.gave_back(&what);
                continue;
            }
            let guard = self.writer.guard().clone();
            self.tasks.spawn(async move {
                let mut answer = Ok(());
                for provider in providers {
                    answer = answer.and(release(&provider, &guard, &what).await);
                }
                Done::GaveBack { what, answer }
            });
        }
        self.groups.forget_former(|name| self.book.pools().retained(name).next().is_some());
    }

    /// Who may have given what is held of a group: its provider, and, if it was deleted in
    /// between, the one it had before. To take back what one has not given is no error.
    fn books_of(&mut self, group: &GroupName) -> Vec<Arc<Rested>> {
        let present = self.groups.config(group);
        let former =
            self.groups.former(group).filter(|former| present.is_none_or(|p| p.source != former.source));
        let present = present.and_then(|config| self.providers.of(group, config));
        let former = former.and_then(|config| self.providers.of_former(config));
        present.into_iter().chain(former).collect()
    }

    pub(super) fn done(&mut self, done: Done) {
        match done {
            Done::Wrote { key, ended, tally } => self.wrote(&key, ended, &tally),
            Done::Fenced { key, ended } => self.fenced(key, ended),
            Done::Answered { key, question, answer } => {
                if answer.is_err() && self.objects.contains_key(&key) {
                    self.asks.failed(&key, Instant::now());
                } else {
                    self.asks.succeeded(&key);
                }
                self.book.answer(&key, question, answer);
                self.book.settled(&key, Sure::Yes);
            }
            Done::GaveBack { what, answer: Err(why) } => {
                self.book.gave_back(&what);
                warn!(service = %what.service, group = %what.group, why, "an address could not be given back");
                if let Some(service) = self.objects.get(&what.service).cloned() {
                    let (writer, message) =
                        (self.writer.clone(), format!("ServiceGroup {}: {why}", what.group));
                    tokio::spawn(async move {
                        writer.tell(&service, "ReleaseFailed", true, &message).await;
                    });
                }
            }
            Done::GaveBack { what, answer: Ok(()) } => {
                self.book.gave_back(&what);
                self.book.ask_all_again(&what.group);
            }
            Done::Listed { name, answer } => self.listed(name, answer),
            Done::Stats { name, answer } => match answer {
                Ok(stats) => {
                    if self.groups.set_stats(&name, stats) {
                        self.touch_statuses();
                    }
                }
                Err(why) => debug!(group = %name, %why, "a provider does not say how full it is"),
            },
            Done::Status { name, answer } => {
                self.metrics.status_write(answer.is_ok());
                match answer {
                    Ok(group) => self.groups.written(&name, Some(*group)),
                    Err(why) => {
                        // The watch shows what was overlooked; then it is tried again.
                        debug!(group = %name, why, "a group's status was not written");
                        self.groups.written(&name, None);
                        self.touch_statuses();
                    }
                }
            }
        }
    }

    fn wrote(&mut self, key: &ObjectKey, ended: Ended, tally: &Tally) {
        self.writing -= 1;
        self.touch_statuses();
        match ended {
            Ended::Written(service) => {
                self.know(service);
                self.metrics.count(tally);
                self.unseen.set(key, Instant::now() + self.settings.announce_patience);
                if let Some(ask) = self.book.service(key) {
                    let ips: Vec<String> = ask.held.iter().map(ToString::to_string).collect();
                    info!(service = %key, ips = ips.join(","), refused = tally.refused, "written");
                }
                self.retries.succeeded(key);
                self.book.settled(key, Sure::Yes);
            }
            Ended::Refused { now, sure, why } => {
                debug!(service = %key, why, "not written; deciding again");
                if let Some(now) = now {
                    self.know(now);
                }
                self.book.settled(key, sure);
                // One that is gone is not waited for, nor remembered.
                if self.objects.contains_key(key) {
                    self.retries.failed(key, Instant::now());
                }
            }
            // The watch says so, too, and then it is forgotten.
            Ended::Gone => self.book.settled(key, Sure::Yes),
            Ended::Deposed => self.deposed = true,
        }
    }

    /// Addresses of local pools that nobody announces though they were given long ago:
    /// the node may have missed it.
    pub(super) fn check_announced(&mut self) {
        for key in self.unseen.due(Instant::now()) {
            let Some(facts) = self.objects.get(&key).and_then(|s| service::facts(s, &self.classes)) else {
                continue;
            };
            let from = facts.group.as_deref().and_then(|name| self.book.group_name(name));
            let announce = from.and_then(|name| self.book.groups().get(&name)).map(|group| group.announce);
            if announce == Some(PoolType::Remote) {
                continue;
            }
            for ip in facts.vips.iter().filter(|ip| !facts.slots.contains_key(ip)) {
                if self.unannounced.try_send(*ip).is_err() {
                    debug!(%ip, "nobody announces it, and too many wait to be asked about");
                }
            }
        }
    }

    /// Statuses of groups are compared and written after a pause.
    pub(super) fn touch_statuses(&mut self) {
        if self.flush_at.is_none() {
            let soon = Instant::now() + FLUSH_AFTER;
            self.flush_at = Some(self.flushed.map_or(soon, |at| soon.max(at + FLUSH_PAUSE)));
        }
    }

    pub(super) fn flush(&mut self) {
        self.flush_at = None;
        self.flushed = Some(Instant::now());
        let stale = self.groups.stale(&self.book, &self.admission, &self.namespaces, Timestamp::now());
        for write in stale {
            let (client, writer) = (self.client.clone(), self.writer.clone());
            self.tasks.spawn(async move {
                let answer = write.send(&client, writer.guard()).await;
                if answer.is_ok()
                    && let Some(event) = write.event()
                {
                    writer.send_event(event).await;
                }
                Done::Status { name: write.name.clone(), answer: answer.map(Box::new) }
            });
        }
        self.want_stats();
        let figures: Vec<(String, GroupStats)> =
            self.groups.names().map(|name| (name.name().to_owned(), self.book.stats(name))).collect();
        self.metrics.pools(&figures);
        self.metrics.waiting(self.book.waiting());
        self.metrics.out_of_scope(self.groups.out_of_scope());
    }

    /// Asks the providers how full they are, once the pause is over.
    fn want_stats(&mut self) {
        if self.stats_at.is_none() && self.groups.provided().next().is_some() {
            let now = Instant::now();
            self.stats_at = Some(self.stats_asked.map_or(now, |asked| now.max(asked + STATS_PAUSE)));
        }
    }

    pub(super) fn ask_stats(&mut self) {
        self.stats_at = None;
        self.stats_asked = Some(Instant::now());
        let provided: Vec<_> = self.groups.provided().map(|(n, c)| (n.clone(), c.clone())).collect();
        for (name, config) in provided {
            let Some(provider) = self.providers.of(&name, &config) else { continue };
            self.tasks.spawn(async move {
                let answer = provider.stats(name.name()).await;
                Done::Stats { name, answer }
            });
        }
    }

    pub(super) fn apply_groups(&mut self) {
        let (specs, problems) = self.groups.specs();
        self.admission = self.book.set_groups(specs, problems);
        self.providers.retain(&self.groups.names().cloned().collect());
        self.groups_changed = false;
        self.sweeps.by(Instant::now());
        self.touch_statuses();
    }

    pub(super) fn send_event(&self, event: Event) {
        let writer = self.writer.clone();
        tokio::spawn(async move { writer.send_event(&event).await });
    }
}

/// Tries for a while.
async fn release(provider: &Rested, guard: &Guard, what: &GiveBack) -> Result<(), String> {
    let mut answer = Ok(());
    for attempt in 0..GIVE_BACK_TRIES {
        if guard.check().is_err() {
            break;
        }
        let released = provider.release(guard, what.group.name(), &what.service, what.ip).await;
        answer = released.map_err(|e| e.to_string());
        if answer.is_ok() {
            break;
        }
        sleep(FLUSH_PAUSE * (1 << attempt.min(3))).await;
    }
    answer
}
