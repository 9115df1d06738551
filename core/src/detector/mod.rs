//! The segment as witness: who answers there, and who claims what.

mod config;
mod view;

use std::collections::BTreeMap;

use crate::ids::{IfIndex, NodeName, Vip};
use crate::segment::{HardwareAddr, SightingKind};
use crate::time::Mono;

pub use config::{DetectorConfig, DetectorConfigError};
pub use view::{DetectorTrouble, SegmentView, WatchState, WatchView};

/// Somebody else showed that it has an address that is in use here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimSighting {
    pub vip: Vip,
    pub index: IfIndex,
    pub mac: HardwareAddr,
    /// The member with that hardware address; `None`: no member's.
    pub by: Option<NodeName>,
    pub kind: SightingKind,
    pub at: Mono,
}

/// Pure: what to ask are values that somebody sends, and answers are handed in.
#[derive(Clone, Debug)]
pub struct SegmentDetector {
    config: DetectorConfig,
    /// The LBNodeAgent lets us.
    allowed: bool,
    listening: BTreeMap<IfIndex, Result<(), String>>,
    claims: BTreeMap<Vip, ClaimSighting>,
}

impl SegmentDetector {
    pub fn new(config: DetectorConfig) -> Self {
        Self { config, allowed: true, listening: BTreeMap::new(), claims: BTreeMap::new() }
    }

    pub fn allow(&mut self, allowed: bool) {
        self.allowed = allowed;
    }

    /// A socket was opened, or could not be, or broke.
    pub fn listening(&mut self, index: IfIndex, result: Result<(), String>) {
        self.listening.insert(index, result);
    }

    /// Is that segment asked and heard?
    pub fn works_on(&self, index: IfIndex) -> Result<(), DetectorTrouble> {
        if !self.config.enabled {
            return Err(DetectorTrouble::Disabled);
        }
        if !self.allowed {
            return Err(DetectorTrouble::DisabledForNode);
        }
        match self.listening.get(&index) {
            None => Err(DetectorTrouble::NotListening),
            Some(Err(error)) => Err(DetectorTrouble::Failed(error.clone())),
            Some(Ok(())) => Ok(()),
        }
    }

    /// Nobody answers on that interface any more, and others can be expected to have taken
    /// over what is here.
    pub fn is_cut_off(&self, _index: IfIndex) -> bool {
        false
    }

    /// The last claim of somebody else to an address that we hold.
    pub fn claimed_by_other(&self, vip: Vip) -> Option<&ClaimSighting> {
        self.claims.get(&vip)
    }

    /// R12 (a) to (d) hold: its owner fell silent before a witness, and nobody answers for it.
    pub fn silent(&self, _vip: Vip) -> bool {
        false
    }
}
