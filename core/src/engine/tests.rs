//! The engine alone, fed by hand: one node, scripted peers, a kernel that does as told.

mod able;
mod declines;
mod handoffs;
mod leftovers;
mod lifecycle;
mod lifetimes;
mod local;
mod nobody;
mod remote;
mod silence;
mod standing;
mod times;
mod touches;
mod views;
mod world;
