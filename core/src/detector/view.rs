//! What the detector says of itself, for status and metrics.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{IfIndex, NodeName, Vip};

/// Why a segment is not asked. There the Leases alone decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DetectorTrouble {
    /// The daemon's own configuration says so.
    Disabled,
    /// The LBNodeAgent that selects the node says so.
    DisabledForNode,
    /// No socket is open there yet, or the interface is not served.
    NotListening,
    /// The socket could not be opened, or broke.
    Failed(String),
}

impl fmt::Display for DetectorTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("the daemon's configuration turns the detector off"),
            Self::DisabledForNode => f.write_str("the LBNodeAgent turns the detector off"),
            Self::NotListening => f.write_str("no socket listens there yet"),
            Self::Failed(error) => write!(f, "cannot listen: {error}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchState {
    /// It has not answered here yet: its silence would mean nothing.
    Unknown,
    Answering,
    /// So many questions in a row went unanswered.
    Missing(u32),
    /// Enough of them did. `witnessed`: somebody else answered meanwhile.
    Silent {
        witnessed: bool,
    },
}

/// One owner that is watched on an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchView {
    pub owner: NodeName,
    /// The address that is asked for, in place of all of that owner.
    pub asked: Option<Vip>,
    pub state: WatchState,
    /// Addresses of which this node is next in line after that owner.
    pub addresses: usize,
}

/// One interface, as the detector has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentView {
    pub index: IfIndex,
    /// `None`: the segment is asked and heard.
    pub trouble: Option<DetectorTrouble>,
    /// Nobody answers there any more: counted as if the carrier were lost.
    pub cut_off: bool,
    /// That member does not hear us: its claim stands, until it answers us.
    pub unheard_by: Option<NodeName>,
    /// Between two questions to the same owner: longer than configured where there would be too
    /// many.
    pub interval: Duration,
    pub watched: Vec<WatchView>,
    /// Hosts other than the watched owners that have answered: gateways, other nodes.
    pub witnesses: usize,
}
