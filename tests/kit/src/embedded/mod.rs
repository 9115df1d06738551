//! An in-process server that speaks the Kubernetes REST protocol for the kinds we use.
