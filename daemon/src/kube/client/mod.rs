//! Requests to the API server: where it is, who we are to it, and what becomes of a request
//! that fails.

pub(crate) mod api_access;
pub(crate) mod api_client;
pub(crate) mod backoff;
pub(crate) mod bearer_token;
pub(crate) mod failure_log;
pub(crate) mod request_error;
pub(crate) mod token_renewal;
