//! The links as others than the engine need them: by index, with their hardware
//! address. The monitor writes it, everybody reads without waiting.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use purelb_core::ids::IfIndex;

use super::parse::KernelLink;

#[derive(Clone, Debug, Default)]
pub struct LinkTable(Arc<ArcSwap<BTreeMap<IfIndex, KernelLink>>>);

impl LinkTable {
    pub fn get(&self, index: IfIndex) -> Option<KernelLink> {
        self.0.load().get(&index).cloned()
    }

    pub fn all(&self) -> Arc<BTreeMap<IfIndex, KernelLink>> {
        self.0.load_full()
    }

    pub(crate) fn replace(&self, links: BTreeMap<IfIndex, KernelLink>) {
        self.0.store(Arc::new(links));
    }
}
