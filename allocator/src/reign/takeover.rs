//! Taking over from a leader that fell silent.
//!
//! It may have sent a write just before it was paused, past its last look at the
//! guard: "address X for Service A". Such a write names the version of A it was made
//! for. So before anything is given to anybody, every Service that could be meant,
//! which is every one without all it should have, gets a new version. From then on
//! the old write is refused by the API server, and X may go to somebody else.

use std::sync::Arc;

use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Service;
use purelb_core::ObjectKey;
use purelb_core::allocation::{Decision, Whose};
use tracing::info;

use super::Reign;
use crate::leader::Deposed;
use crate::writer::Ended;

impl Reign {
    pub(super) async fn fence_off(&mut self) -> Result<(), Deposed> {
        let unsettled = self.unsettled();
        if unsettled.is_empty() {
            return Ok(());
        }
        info!(services = unsettled.len(), "fencing off the former leader");
        let (writer, identity) = (self.writer.clone(), self.identity.clone());
        let fenced: Vec<(ObjectKey, Ended)> = stream::iter(unsettled)
            .map(|(key, service)| {
                let (writer, identity) = (writer.clone(), identity.clone());
                async move {
                    let ended = writer.fence(&key, service, &identity).await;
                    (key, ended)
                }
            })
            .buffer_unordered(self.settings.writes)
            .collect()
            .await;
        for (key, ended) in fenced {
            match ended {
                Ended::Written(service) => {
                    self.know(service);
                }
                Ended::Gone => {
                    self.objects.remove(&key);
                    self.book.forget(&key);
                }
                Ended::Deposed | Ended::Refused { .. } => return Err(Deposed),
            }
        }
        // What was decided to find them out was decided too early.
        self.book.start_over();
        Ok(())
    }

    fn unsettled(&mut self) -> Vec<(ObjectKey, Arc<Service>)> {
        let mut found = Vec::new();
        while let Some(key) = self.book.take_next() {
            let decision = self.book.decide(&key);
            let ask = self.book.service(&key);
            let empty = ask.is_some_and(|ask| ask.whose == Whose::Ours && ask.held.is_empty());
            if (empty || decision != Decision::Nothing)
                && let Some(service) = self.objects.get(&key)
            {
                found.push((key, service.clone()));
            }
        }
        found
    }
}
