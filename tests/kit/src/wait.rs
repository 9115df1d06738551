//! Waiting for a condition, with a deadline, and with words when it does not come.

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How often a condition that cannot wake us is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What one look at a condition found: the value waited for, or the state that
/// is printed if it never comes.
pub type Look<T, S> = std::result::Result<T, S>;

/// Looks until `look` returns `Ok`, or fails with `what` and the last state seen.
pub async fn eventually<T, S, F, Fut>(what: &str, within: Duration, mut look: F) -> Result<T>
where
    S: Debug,
    F: FnMut() -> Fut,
    Fut: Future<Output = Look<T, S>>,
{
    let started = Instant::now();
    loop {
        match look().await {
            Ok(value) => return Ok(value),
            Err(state) if started.elapsed() >= within => {
                bail!("{what}: not within {within:?}; last seen: {state:#?}")
            }
            Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn says_what_it_last_saw() {
        let failed = eventually("the answer", Duration::from_millis(20), || async { Err::<(), _>(41) }).await;
        let text = failed.unwrap_err().to_string();
        assert!(text.contains("the answer") && text.contains("41"), "{text}");
    }

    #[tokio::test]
    async fn returns_as_soon_as_the_condition_holds() {
        let mut looks = 0;
        let got = eventually("three looks", Duration::from_secs(5), || {
            looks += 1;
            let seen = looks;
            async move { if seen == 3 { Ok(seen) } else { Err(seen) } }
        })
        .await
        .unwrap();
        assert_eq!(got, 3);
    }
}
