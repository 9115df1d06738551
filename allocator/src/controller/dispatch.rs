//! From decisions to tasks: writes, questions to providers, addresses given back.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Event;
use purelb_api::service;
use purelb_core::ObjectKey;
use purelb_core::allocation::{Change, Decision, GiveBack, ProviderQuestion};
use purelb_core::facts::PoolType;
use purelb_core::pools::GroupName;
use tokio::time::{Instant, sleep};
use tracing::debug;

use super::results::Done;
use super::{AllocationController, FLUSH_PAUSE};
use crate::leader::Guard;
use crate::providers::Rested;

/// How often giving an address back is tried before the user hears of it. A sweep finds
/// it again later.
const GIVE_BACK_TRIES: u32 = 8;

impl AllocationController {
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

    fn ask(&mut self, key: ObjectKey, question: ProviderQuestion) {
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
