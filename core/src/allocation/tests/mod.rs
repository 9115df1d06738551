//! The allocation rules, each as a small cluster that is brought to rest.

mod live;
mod moves;
mod order;
mod providers;
mod rules;
mod world;
