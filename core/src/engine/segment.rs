//! The engine's side of the detector: what it is told, and what follows from what it finds.

use std::collections::BTreeSet;

use crate::segment::HardwareAddr;

use super::Engine;

impl Engine {
    /// By which the segments know us: of every interface that addresses may be put on.
    pub(super) fn segment_macs(&self) -> BTreeSet<HardwareAddr> {
        let selected = self.agents.current().map(|config| self.kernel.selected(config)).unwrap_or_default();
        selected.into_iter().filter_map(|index| self.kernel.link(index)?.mac).collect()
    }
}
