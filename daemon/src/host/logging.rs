//! Logs: to the journal with fields, or as text on a terminal.

use std::fs;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;

use thiserror::Error;
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

use crate::config::{Log, LogTarget};

#[derive(Debug, Error)]
pub enum LogError {
    #[error("log.level: {0}")]
    Level(String),
    #[error("log.target: the journal cannot be reached: {0}")]
    Journal(std::io::Error),
    #[error("a logger is already set up: {0}")]
    Twice(String),
}

/// Changes the level of what runs.
#[derive(Clone, Debug)]
pub struct LogHandle(reload::Handle<EnvFilter, Registry>);

impl LogHandle {
    pub fn set_level(&self, level: &str) -> Result<(), LogError> {
        let filter = filter(level).map_err(LogError::Level)?;
        self.0.reload(filter).map_err(|error| LogError::Level(error.to_string()))
    }
}

/// A level or a filter, or what is wrong with it.
pub fn filter(level: &str) -> Result<EnvFilter, String> {
    if level.trim().is_empty() {
        return Err("is empty; give error, warn, info, debug or trace".to_owned());
    }
    // The library would take a misspelt level for the name of a module, and log all of it.
    let mut bare = level.split(',').map(str::trim).filter(|part| !part.contains(['=', '[']));
    if let Some(word) = bare.find(|part| part.parse::<LevelFilter>().is_err()) {
        return Err(format!("{word:?} is no level; give error, warn, info, debug or trace"));
    }
    EnvFilter::builder().parse(level).map_err(|error| error.to_string())
}

/// Once per process.
pub fn start(settings: &Log) -> Result<LogHandle, LogError> {
    let (filter, handle) = reload::Layer::new(filter(&settings.level).map_err(LogError::Level)?);
    let journal = match settings.target {
        LogTarget::Journal => true,
        LogTarget::Text => false,
        LogTarget::Auto => connected_to_journal(),
    };
    let layer: Box<dyn Layer<_> + Send + Sync> = if journal {
        // Fields under their own names: VIP=, SERVICE=, REASON=.
        let journald = tracing_journald::layer().map_err(LogError::Journal)?;
        journald.with_field_prefix(None).with_syslog_identifier("purelbd".to_owned()).boxed()
    } else {
        let colours = std::io::stderr().is_terminal();
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours).boxed()
    };
    let subscriber = tracing_subscriber::registry().with(filter).with(layer);
    subscriber.try_init().map_err(|error| LogError::Twice(error.to_string()))?;
    Ok(LogHandle(handle))
}

/// The service manager says which stream is the journal's; a redirected stderr is not.
fn connected_to_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let Ok(stderr) = fs::metadata("/proc/self/fd/2") else {
        return false;
    };
    stream == format!("{}:{}", stderr.dev(), stderr.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_filters() {
        for good in ["info", "debug", "warn,purelbd::netlink=trace"] {
            filter(good).unwrap();
        }
        for bad in ["", "loud", "purelbd=loud"] {
            assert!(filter(bad).is_err(), "{bad:?}");
        }
    }
}
