//! Ways to those who are asked: daemons by gRPC, the cluster by its API server.

pub mod cluster;
pub mod daemon_client;
pub mod daemon_connection;
