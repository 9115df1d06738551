//! The allocation rules, each as a small cluster that is brought to rest.

mod live_subnets;
mod moves;
mod order;
mod providers;
mod rules;
mod world;
