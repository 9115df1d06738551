//! Faults between one client and an API server: a reverse proxy that a test steers.
