//! Commands that work on saved objects alone, with no daemon and no cluster.

pub mod explain;
pub mod saved_demands;
pub mod saved_objects;
pub mod winner;
