//! Files of ours that are believed only if they are as we wrote them.
//!
//! ```text
//!   FORMAT SHA-256-of-the-rest
//!   {…}
//! ```
//! One that is not as it should be is set aside and said; it never keeps a daemon from
//! starting.

use std::fmt::Write;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tracing::warn;

use super::state_file;

/// Where one is, and how it begins.
#[derive(Clone, Debug)]
pub(crate) struct CheckedFile {
    path: PathBuf,
    /// Name and version of the format; another one is not ours to read.
    format: &'static str,
    /// More is never written, and never read.
    largest: u64,
    /// In words.
    what: &'static str,
}

impl CheckedFile {
    pub(crate) fn new(path: PathBuf, format: &'static str, largest: u64, what: &'static str) -> Self {
        Self { path, format, largest, what }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What it says, if it is there and as it should be. `wrong` looks for what else may be
    /// wrong with it. Blocks for a moment.
    pub(crate) fn read<T: DeserializeOwned>(&self, wrong: impl Fn(&T) -> Option<String>) -> Option<T> {
        let read = self.decode().and_then(|content| match wrong(&content) {
            None => Ok(content),
            Some(why) => Err(io::Error::new(io::ErrorKind::InvalidData, why)),
        });
        match read {
            Ok(content) => Some(content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                self.set_aside(&error);
                None
            }
        }
    }

    /// Beside it, for whoever wants to look: one is enough.
    fn set_aside(&self, error: &io::Error) {
        let aside = self.path.with_extension("damaged");
        let name = aside.file_name().unwrap_or_default().display();
        warn!(file = %self.path.display(), %error, "{} cannot be used; it is set aside as {name}", self.what);
        if let Err(error) = fs::rename(&self.path, &aside) {
            warn!(file = %self.path.display(), %error, "not set aside; it is written anew when there is something to write");
        }
    }

    fn decode<T: DeserializeOwned>(&self) -> io::Result<T> {
        let mut text = Vec::new();
        fs::File::open(&self.path)?.take(self.largest + 1).read_to_end(&mut text)?;
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        if text.len() as u64 > self.largest {
            return Err(wrong("it is larger than any that is written"));
        }
        let end = text.iter().position(|b| *b == b'\n').ok_or_else(|| wrong("it has no first line"))?;
        let (header, body) = (&text[..end], &text[end + 1..]);
        let said = header
            .strip_prefix(self.format.as_bytes())
            .and_then(|rest| rest.strip_prefix(b" "))
            .ok_or_else(|| wrong("of another format, or version"))?;
        if said != digest(body).as_bytes() {
            return Err(wrong("its checksum is wrong: it was damaged, or edited"));
        }
        serde_json::from_slice(body).map_err(|error| wrong(&error.to_string()))
    }

    /// The text to write.
    pub(crate) fn encode<T: Serialize>(&self, content: &T) -> io::Result<Vec<u8>> {
        let body = serde_json::to_vec(content)?;
        let mut text = format!("{} {}\n", self.format, digest(&body)).into_bytes();
        text.extend(body);
        if text.len() as u64 > self.largest {
            return Err(io::Error::other(format!("{} bytes are more than is ever read", text.len())));
        }
        Ok(text)
    }

    /// Whole or not at all, and on the disk when it returns. Blocks.
    pub(crate) fn write(&self, text: &[u8]) -> io::Result<()> {
        state_file::replace(&self.path, text)
    }
}

fn digest(body: &[u8]) -> String {
    Sha256::digest(body).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
