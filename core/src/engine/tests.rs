//! The engine alone, fed by hand: one node, scripted peers, a kernel that does as told.

mod handoffs;
mod lifecycle;
mod local;
mod remote;
mod times;
mod views;
mod world;
