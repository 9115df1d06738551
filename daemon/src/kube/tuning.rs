//! Times and sizes of the Kubernetes side. The defaults are for clusters; tests of
//! faults take shorter ones.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeTuning {
    /// Objects per page of a listing: bounds the memory one takes.
    pub page: u32,
    /// For one page. Short: the engine waits at most until its renew deadline for a
    /// listing of Leases, and a second endpoint must get its chance before.
    pub list_timeout: Duration,
    /// Until the server begins to answer a watch.
    pub open_timeout: Duration,
    /// A watch is ended and opened anew after this long, less up to a half so that
    /// nodes drift apart. Long, since each opening is a request.
    pub watch_lasts: Duration,
    /// A watch in which nothing came for this long, not even the bookmark a server
    /// sends every minute, is dead.
    pub idle: Duration,
    pub backoff_least: Duration,
    pub backoff_most: Duration,
    /// How long a Service that newly depends on endpoints waits for them.
    pub endpoints_wait: Duration,
    /// Conditions are the same from every node: each waits up to this long for another
    /// to write them.
    pub condition_delay: Duration,
    /// A trouble that is told within this time after the first listing may have stood since
    /// before the daemon started: what an earlier process said of it is enough.
    pub trouble_stands: Duration,
    /// The next token is asked for when so much of this one's time is over, in percent.
    pub token_share: u8,
    /// How often it is looked at. An administrator's new one is used at once all the same.
    pub token_look: Duration,
}

impl Default for KubeTuning {
    fn default() -> Self {
        Self {
            page: 500,
            list_timeout: Duration::from_secs(2),
            open_timeout: Duration::from_secs(2),
            watch_lasts: Duration::from_secs(3600),
            idle: Duration::from_secs(150),
            backoff_least: Duration::from_millis(100),
            backoff_most: Duration::from_secs(5),
            endpoints_wait: Duration::from_secs(3),
            condition_delay: Duration::from_secs(5),
            trouble_stands: Duration::from_secs(60),
            token_share: 80,
            token_look: Duration::from_secs(60),
        }
    }
}
