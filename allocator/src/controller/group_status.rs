//! Statuses of ServiceGroups and the figures in the metrics: collected, and written after a
//! pause.

use std::time::Duration;

use jiff::Timestamp;
use purelb_core::pools::GroupStats;
use tokio::time::Instant;

use super::results::Done;
use super::{AllocationController, FLUSH_AFTER, FLUSH_PAUSE};

/// Providers are not asked how full they are more often than this: they may have to
/// go through all their addresses for the answer.
const STATS_PAUSE: Duration = Duration::from_secs(5);

impl AllocationController {
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
}
