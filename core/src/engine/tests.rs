//! The engine alone, fed by hand: one node, scripted peers, a kernel that does as told.

mod affected;
mod declines;
mod handoffs;
mod leftovers;
mod lifecycle;
mod lifetimes;
mod local;
mod nobody;
mod node_condition;
mod offered_subnets;
mod remote;
mod ride;
mod ride_claims;
mod ride_ends;
mod segment;
mod segment_claims;
mod silent_peers;
mod stale_view;
mod times;
mod world;
