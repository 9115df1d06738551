//! A failure is logged once, not once per try.
//!
//! An API server that is away refuses every connection of every task, several a second.
//! The first refusal is worth a warning, and so is another reason; the rest is for whoever
//! looks closely. Counters count them all.

#[derive(Debug, Default)]
pub(crate) struct FailureLog {
    last: Option<String>,
    times: u64,
}

impl FailureLog {
    /// Whether this is news.
    pub(crate) fn is_new(&mut self, words: &str) -> bool {
        self.times += 1;
        let news = self.last.as_deref() != Some(words);
        if news {
            self.last = Some(words.to_owned());
        }
        news
    }

    /// It works: how often it did not, if it did not.
    pub(crate) fn recovered(&mut self) -> Option<u64> {
        self.last.take()?;
        Some(std::mem::take(&mut self.times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_is_news() {
        let mut failures = FailureLog::default();
        assert_eq!(failures.recovered(), None, "nothing was wrong");
        let said: Vec<bool> = ["refused", "refused", "timed out", "timed out", "refused"]
            .into_iter()
            .map(|words| failures.is_new(words))
            .collect();
        assert_eq!(said, [true, false, true, false, true]);
        assert_eq!(failures.recovered(), Some(5));
        assert_eq!(failures.recovered(), None);
        assert!(failures.is_new("refused"), "once more, after it was over");
    }
}
