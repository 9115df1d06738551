//! Finding the words: files, environment, flags.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ::config::{ConfigError, File, FileFormat, Map, Value, ValueKind};
use serde_json::Value as Json;
use thiserror::Error;

use super::{Config, InvalidConfig};

const DEFAULT_FILE: &str = "/etc/purelb/purelbd.toml";
const PREFIX: &str = "PURELB_";
/// Names that manifests of the existing product use.
const KNOWN_ELSEWHERE: [(&str, &str); 2] =
    [("PURELB_RENEW_DEADLINE", "lease.renew_deadline"), ("PURELB_RETRY_PERIOD", "lease.retry_period")];
/// Says who announces Services without a class.
const DEFAULT_ANNOUNCER: &str = "DEFAULT_ANNOUNCER";

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// This file, which must exist; without it the usual place, which need not.
    pub file: Option<PathBuf>,
    pub environment: Vec<(String, String)>,
    /// `section.key` and its value, as flags said it.
    pub flags: Vec<(String, String)>,
}

impl Sources {
    /// Of this process.
    pub fn of_process(file: Option<PathBuf>, flags: Vec<(String, String)>) -> Self {
        let text = |word: OsString| word.into_string().ok();
        let environment = std::env::vars_os().filter_map(|(k, v)| Some((text(k)?, text(v)?))).collect();
        Self { file, environment, flags }
    }
}

/// What was found, and what is worth a word.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub config: Config,
    pub files: Vec<PathBuf>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Error)]
pub enum SourceError {
    #[error("{}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{}: {error}", path.display())]
    Syntax { path: PathBuf, error: Box<ConfigError> },
    #[error("{place}: there is no setting {key}{}", hint(key))]
    UnknownKey { place: String, key: String },
    #[error("{0}")]
    Value(Box<ConfigError>),
    #[error("{0}")]
    Invalid(#[from] InvalidConfig),
}

fn hint(key: &str) -> String {
    let all = keys();
    let last = |key: &str| key.rsplit('.').next().unwrap_or(key).to_owned();
    match all.iter().find(|known| last(known) == last(key) || known.starts_with(&format!("{key}."))) {
        Some(known) => format!("; did you mean {known}?"),
        None => "; the sample file lists them all".to_owned(),
    }
}

/// Every key that can be set, as `section.key`.
pub fn keys() -> Vec<String> {
    let Ok(Json::Object(sections)) = serde_json::to_value(Config::default()) else {
        return Vec::new();
    };
    let mut keys = Vec::new();
    for (section, content) in sections {
        if let Json::Object(content) = content {
            keys.extend(content.keys().map(|key| format!("{section}.{key}")));
        }
    }
    keys
}

pub fn load(sources: &Sources) -> Result<Loaded, SourceError> {
    let known = keys();
    let files = files(sources.file.as_deref())?;
    let mut builder = ::config::Config::builder();
    let mut origins = BTreeMap::new();
    for path in &files {
        let (source, set) = read(path, &known)?;
        builder = builder.add_source(source);
        origins.extend(set.into_iter().map(|key| (key, path.display().to_string())));
    }
    let mut warnings = Vec::new();
    for (key, value, place) in environment(&sources.environment, &known, &mut warnings) {
        builder = builder.set_override(&key, worded(&value, &place, &key)).map_err(value_error)?;
        origins.insert(key, place);
    }
    for (key, value) in &sources.flags {
        if !known.contains(key) {
            return Err(SourceError::UnknownKey { place: "the command line".to_owned(), key: key.clone() });
        }
        builder = builder.set_override(key, worded(value, "the command line", key)).map_err(value_error)?;
        origins.insert(key.clone(), "the command line".to_owned());
    }
    let mut config: Config =
        builder.build().and_then(::config::Config::try_deserialize).map_err(value_error)?;
    config.check()?;
    config.origins = origins;
    Ok(Loaded { config, files, warnings })
}

fn value_error(error: ConfigError) -> SourceError {
    SourceError::Value(Box::new(error))
}

/// A word from outside a file. Lists are written with commas.
fn worded(value: &str, place: &str, key: &str) -> Value {
    const LISTS: [&str; 2] = ["kubernetes.servers", "network.shadow_interfaces"];
    let origin = place.to_owned();
    if LISTS.contains(&key) {
        let parts = value.split(',').map(str::trim).filter(|part| !part.is_empty());
        let list: Vec<Value> = parts.map(|part| Value::new(Some(&origin), ValueKind::from(part))).collect();
        return Value::new(Some(&origin), ValueKind::Array(list));
    }
    Value::new(Some(&origin), ValueKind::from(value))
}

/// The main file, then the drop-ins beside it (`purelbd.toml` has `purelbd.d`).
fn files(named: Option<&Path>) -> Result<Vec<PathBuf>, SourceError> {
    let main = named.unwrap_or(Path::new(DEFAULT_FILE));
    let mut files = Vec::new();
    match fs::metadata(main) {
        Ok(_) => files.push(main.to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => {}
        Err(error) => return Err(SourceError::Read { path: main.to_owned(), error }),
    }
    let directory = main.with_extension("d");
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
        Err(error) => return Err(SourceError::Read { path: directory, error }),
    };
    let mut dropped = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| SourceError::Read { path: directory.clone(), error })?;
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if path.extension().is_some_and(|e| e == "toml") && !hidden {
            dropped.push(path);
        }
    }
    dropped.sort();
    files.extend(dropped);
    Ok(files)
}

/// One file and the keys it sets, held against the known ones on its own so that the file
/// can be named.
fn read(
    path: &Path,
    known: &[String],
) -> Result<(File<::config::FileSourceString, FileFormat>, Vec<String>), SourceError> {
    let text =
        fs::read_to_string(path).map_err(|error| SourceError::Read { path: path.to_owned(), error })?;
    let syntax = |error| SourceError::Syntax { path: path.to_owned(), error: Box::new(error) };
    let alone = ::config::Config::builder()
        .add_source(File::from_str(&text, FileFormat::Toml))
        .build()
        .map_err(syntax)?;
    let table: Map<String, Value> = alone.try_deserialize().map_err(syntax)?;
    let mut set = Vec::new();
    let unknown = |key: String| SourceError::UnknownKey { place: path.display().to_string(), key };
    for (section, content) in table {
        let prefix = format!("{section}.");
        if !known.iter().any(|key| key.starts_with(&prefix)) {
            return Err(unknown(section));
        }
        match content.kind {
            ValueKind::Table(content) => {
                if let Some(key) = content.keys().find(|key| !known.contains(&format!("{prefix}{key}"))) {
                    return Err(unknown(format!("{prefix}{key}")));
                }
                set.extend(content.keys().map(|key| format!("{prefix}{key}")));
            }
            _ => return Err(unknown(section)),
        }
    }
    // A wrong value is reported by the library: it shall name the file, too.
    let checked = ::config::Config::builder().add_source(File::from_str(&text, FileFormat::Toml)).build();
    checked.and_then(::config::Config::try_deserialize::<Config>).map_err(syntax)?;
    Ok((File::from_str(&text, FileFormat::Toml), set))
}

/// `PURELB_SECTION_KEY`, and the names known elsewhere.
fn environment(
    variables: &[(String, String)],
    known: &[String],
    warnings: &mut Vec<String>,
) -> Vec<(String, String, String)> {
    let mut names: BTreeMap<String, &str> = BTreeMap::new();
    for key in known {
        names.insert(format!("{PREFIX}{}", key.replace('.', "_").to_uppercase()), key);
    }
    names.extend(KNOWN_ELSEWHERE.map(|(name, key)| (name.to_owned(), key)));
    let mut found = Vec::new();
    for (name, value) in variables {
        let place = format!("environment variable {name}");
        if let Some(key) = names.get(name) {
            found.push(((*key).to_owned(), value.clone(), place));
        } else if name == DEFAULT_ANNOUNCER {
            let ours = purelb_api::service::names_us(value);
            found.push(("services.default_announcer".to_owned(), ours.to_string(), place));
        } else if name.starts_with(PREFIX) {
            warnings.push(format!("{place}: there is no such setting; it is ignored"));
        }
    }
    found
}
