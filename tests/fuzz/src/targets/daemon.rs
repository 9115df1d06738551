use std::io::Write;

use purelbd::config::{Sources, load};

/// A file that is accepted passes the checks again, and gives timers and names.
pub fn daemon_config(data: &[u8]) {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().expect("a temporary file");
    file.write_all(data).expect("room for a short file");
    let sources = Sources { file: Some(file.path().to_owned()), ..Sources::default() };
    let Ok(loaded) = load(&sources) else { return };
    assert!(loaded.config.check().is_ok());
    assert!(loaded.config.origins.keys().all(|key| purelbd::config::keys().contains(key)));
    let _ = (loaded.config.timers(), loaded.config.control_endpoint());
}
