//! The token we show the API server.
//!
//! ```text
//!   given: the administrator's, in the kubeconfig or a file ──┐
//!                                                             ├─▶ the one issued last
//!   own: what we asked for ourselves, in the state directory ─┘
//! ```
//! A token that we asked for is the same account's, bound to the same Node, by the same
//! cluster, or it is passed over: what an earlier life of this machine left behind is of no
//! use. One that the server refuses makes way for the other, if there is another.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::HeaderValue;
use k8s_openapi::ByteString;
use serde::Deserialize;

use crate::kube::client::api_access::AccessError;

/// Where the administrator's token is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum GivenToken {
    /// Replaced while we run. The client library would keep what it read for a minute,
    /// and choke on a trailing newline.
    File(PathBuf),
    Inline(String),
}

/// What a token says of itself. Nobody here has to believe it: the server decides.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct TokenClaims {
    #[serde(rename = "iat")]
    pub(crate) issued: i64,
    #[serde(rename = "exp")]
    pub(crate) expires: i64,
    #[serde(rename = "iss", default)]
    issuer: String,
    #[serde(rename = "kubernetes.io", default)]
    pub(crate) subject: TokenSubject,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct TokenSubject {
    #[serde(default)]
    pub(crate) namespace: String,
    #[serde(default)]
    pub(crate) serviceaccount: NamedObject,
    pub(crate) node: Option<NamedObject>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct NamedObject {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) uid: String,
}

impl TokenClaims {
    /// Of a JSON Web Token; other tokens say nothing.
    pub(crate) fn of(token: &str) -> Option<Self> {
        let mut parts = token.split('.');
        let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
        let mut text = payload.replace('-', "+").replace('_', "/");
        while !text.len().is_multiple_of(4) {
            text.push('=');
        }
        let ByteString(json) = serde_json::from_value(text.into()).ok()?;
        serde_json::from_slice(&json).ok()
    }

    pub(crate) fn lifetime(&self) -> i64 {
        self.expires.saturating_sub(self.issued).max(0)
    }

    fn has_same_subject(&self, other: &Self) -> bool {
        (&self.issuer, &self.subject) == (&other.issuer, &other.subject)
    }
}

pub(crate) struct BearerToken {
    given: GivenToken,
    own: Option<PathBuf>,
    state: Mutex<TokenState>,
}

#[derive(Default)]
struct TokenState {
    /// While the file cannot be read (it is being replaced), the last one is most likely
    /// still good.
    given: String,
    shown: String,
    refused: Option<String>,
}

impl std::fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("own", &self.own).finish_non_exhaustive()
    }
}

impl BearerToken {
    pub(crate) fn open(given: GivenToken, own: Option<PathBuf>) -> Result<Self, AccessError> {
        let token = Self { given, own, state: Mutex::default() };
        let first = token.read_given();
        match (first, &token.given) {
            (Ok(text), _) => token.lock().given = text,
            // What we asked for ourselves is as good.
            (Err(_), _) if token.read_own().is_some() => {}
            (Err(source), GivenToken::File(path)) => {
                return Err(AccessError::TokenFile { path: path.clone(), source });
            }
            (Err(source), GivenToken::Inline(_)) => {
                return Err(AccessError::TokenFile { path: PathBuf::from("(inline)"), source });
            }
        }
        Ok(token)
    }

    pub(crate) fn same_source(&self, other: &Self) -> bool {
        (&self.given, &self.own) == (&other.given, &other.own)
    }

    fn lock(&self) -> MutexGuard<'_, TokenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_given(&self) -> io::Result<String> {
        match &self.given {
            GivenToken::File(path) => read_token(path),
            GivenToken::Inline(text) => header_text(text),
        }
    }

    fn read_own(&self) -> Option<String> {
        self.own.as_deref().and_then(|path| read_token(path).ok())
    }

    /// The token to be shown now.
    pub(crate) fn current(&self) -> String {
        let given = self.read_given();
        let own = self.read_own();
        let mut state = self.lock();
        if let Ok(text) = given {
            state.given = text;
        }
        let shown = newest_token(&state.given, own.as_deref(), state.refused.as_deref()).to_owned();
        state.shown.clone_from(&shown);
        shown
    }

    /// The server did not take what was shown last.
    pub(crate) fn refused(&self) {
        let mut state = self.lock();
        state.refused = Some(state.shown.clone());
    }

    pub(crate) fn header(&self) -> HeaderValue {
        // What was read has been found fit for a header.
        let mut value = HeaderValue::try_from(format!("Bearer {}", self.current()))
            .unwrap_or_else(|_| HeaderValue::from_static("Bearer"));
        value.set_sensitive(true);
        value
    }

    pub(crate) fn claims(&self) -> Option<TokenClaims> {
        TokenClaims::of(&self.current())
    }

    /// Keeps a token that we asked for: whole or not at all, for nobody else to read, and
    /// on the disk when this returns.
    pub(crate) fn store_own(&self, text: &str) -> io::Result<()> {
        let Some(path) = &self.own else { return Err(io::Error::other("there is no place for it")) };
        let fresh = path.with_extension("new");
        let _ = fs::remove_file(&fresh);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    }

    pub(crate) fn renewable(&self) -> bool {
        self.own.is_some()
    }
}

fn newest_token<'a>(given: &'a str, own: Option<&'a str>, refused: Option<&str>) -> &'a str {
    let Some(own) = own.filter(|own| *own != given) else { return given };
    if given.is_empty() {
        return own;
    }
    let ours_is_newer = match (TokenClaims::of(given), TokenClaims::of(own)) {
        (Some(theirs), Some(ours)) => {
            if !theirs.has_same_subject(&ours) {
                return given;
            }
            ours.issued > theirs.issued
        }
        // A text that says nothing of itself: somebody wants just this.
        _ => false,
    };
    let (first, second) = if ours_is_newer { (own, given) } else { (given, own) };
    if refused == Some(first) { second } else { first }
}

fn read_token(path: &Path) -> io::Result<String> {
    header_text(&fs::read_to_string(path)?)
}

fn header_text(text: &str) -> io::Result<String> {
    let wrong = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    let token = text.trim();
    if token.is_empty() {
        return Err(wrong("the file is empty"));
    }
    HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| wrong("the file holds no token"))?;
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests;
