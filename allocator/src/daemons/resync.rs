//! Asks whoever should announce an address that nobody announces to look again.

use purelb_core::{NodeName, Vip};
use tracing::{info, warn};

use super::DaemonManager;

/// So many daemons are asked who should have an address before it is given up.
const DAEMONS: usize = 5;

impl DaemonManager {
    /// An address nobody announces: whoever should is asked to look again.
    pub(super) async fn look_again(&mut self, ip: Vip) {
        let Some(winner) = self.ask_winner(ip).await else { return };
        let Some(winner) = winner else {
            return warn!(%ip, "nobody announces an address: no node can take it");
        };
        let Some(endpoint) = self.endpoints.get(&winner) else { return };
        match self.daemons.resync(&winner, endpoint).await {
            Ok(changed) => info!(%ip, node = %winner, added = ?changed.added, "asked for a resync"),
            Err(why) => warn!(%ip, node = %winner, %why, "could not ask for a resync"),
        }
    }

    /// Any daemon knows who wins; None: none of those that were asked answers.
    async fn ask_winner(&mut self, ip: Vip) -> Option<Option<NodeName>> {
        self.silent.retain(|node| self.endpoints.contains_key(node));
        let mut whom: Vec<(NodeName, String)> =
            self.endpoints.iter().map(|(node, endpoint)| (node.clone(), endpoint.clone())).collect();
        whom.sort_by_key(|(node, _)| self.silent.contains(node));
        for (node, endpoint) in whom.into_iter().take(DAEMONS) {
            match self.daemons.winner(&endpoint, ip).await {
                Ok(winner) => {
                    self.silent.remove(&node);
                    return Some(winner);
                }
                Err(why) => {
                    warn!(%ip, %node, %why, "nobody announces an address, and this daemon does not say who should");
                    self.silent.insert(node);
                }
            }
        }
        // Next time from the beginning.
        self.silent.clear();
        None
    }
}
