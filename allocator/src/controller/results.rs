//! What the controller's tasks came back with, and what becomes of it.

use purelb_api::ServiceGroup;
use purelb_core::allocation::{AllocationTally, GiveBack, ProviderListing, ProviderQuestion, WriteCertainty};
use purelb_core::pools::GroupName;
use purelb_core::{ObjectKey, Vip};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::AllocationController;
use crate::kube::service_writer::{Ended, Fence};
use crate::providers::{ProviderError, ProviderStats};

/// What a task came back with.
#[derive(Debug)]
pub(super) enum Done {
    Wrote { key: ObjectKey, ended: Ended, tally: AllocationTally },
    Fenced { key: ObjectKey, ended: Fence },
    Answered { key: ObjectKey, question: ProviderQuestion, answer: Result<Vec<Vip>, String> },
    GaveBack { what: GiveBack, answer: Result<(), String> },
    Status { name: GroupName, answer: Result<Box<ServiceGroup>, String> },
    Listed { name: GroupName, answer: Result<Option<Vec<ProviderListing>>, ProviderError> },
    Stats { name: GroupName, answer: Result<ProviderStats, ProviderError> },
}

impl AllocationController {
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
                self.book.settled(&key, WriteCertainty::Known);
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

    fn wrote(&mut self, key: &ObjectKey, ended: Ended, tally: &AllocationTally) {
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
                self.book.settled(key, WriteCertainty::Known);
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
            Ended::Gone => self.book.settled(key, WriteCertainty::Known),
            Ended::Deposed => self.deposed = true,
        }
    }
}
