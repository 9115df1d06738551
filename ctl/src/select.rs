//! Choosing and ordering rows by their columns.

use std::cmp::Ordering;
use std::net::IpAddr;

use crate::cli::GetArgs;
use crate::error::{Failure, Outcome, code, did_you_mean};
use crate::table::Row;

#[derive(Debug)]
pub struct Selection {
    names: Vec<String>,
    /// Of the Services that a row belongs to.
    namespace: Option<String>,
    wants: Vec<Want>,
    sort: Option<(usize, bool)>,
}

#[derive(Debug)]
struct Want {
    column: usize,
    value: String,
    equal: bool,
}

impl Selection {
    pub fn new<R: Row>(args: &GetArgs, namespace: Option<&str>) -> Outcome<Self> {
        let wants = args.selectors.iter().map(|text| want::<R>(text)).collect::<Outcome<_>>()?;
        let sort = args.sort_by.as_deref().map(|text| {
            let (name, down) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
            index::<R>(name).map(|i| (i, down))
        });
        let namespace = namespace.map(str::to_owned);
        Ok(Self { names: args.names.clone(), namespace, wants, sort: sort.transpose()? })
    }

    pub fn matches<R: Row>(&self, row: &R) -> bool {
        let cells = row.cells();
        let name = row.name();
        let named = self.names.is_empty() || self.names.iter().any(|n| is_called(n, &name));
        let here = self.namespace.as_ref().is_none_or(|namespace| {
            row.services().iter().any(|s| s.split_once('/').is_some_and(|(of, _)| of == namespace))
        });
        named && here && self.wants.iter().all(|w| has(&cells[w.column].text, &w.value) == w.equal)
    }

    /// Names given that nothing here has.
    pub fn missing<R: Row>(&self, rows: &[R]) -> Vec<&str> {
        let there = |name: &&String| rows.iter().any(|row| is_called(name, &row.name()));
        self.names.iter().filter(|name| !there(name)).map(String::as_str).collect()
    }

    pub fn apply<R: Row>(&self, rows: Vec<R>) -> Vec<R> {
        let mut rows: Vec<R> = rows.into_iter().filter(|r| self.matches(r)).collect();
        if let Some((column, down)) = self.sort {
            rows.sort_by_cached_key(|r| Key(r.cells()[column].text.clone()));
            if down {
                rows.reverse();
            }
        }
        rows
    }
}

/// Whole, without the part before a slash, or as an address that is written in another way.
fn is_called(asked: &str, name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    let same_address = || {
        let (a, b) = (asked.parse::<IpAddr>(), last.parse::<IpAddr>());
        matches!((a, b), (Ok(a), Ok(b)) if a == b)
    };
    asked == name || name.ends_with(&format!("/{asked}")) || same_address()
}

fn want<R: Row>(text: &str) -> Outcome<Want> {
    let (name, value, equal) = match (text.split_once("!="), text.split_once('=')) {
        (Some((name, value)), _) => (name, value, false),
        (None, Some((name, value))) => (name, value.trim_start_matches('='), true),
        _ => {
            let what = format!("the selector {text:?} is not COLUMN=VALUE or COLUMN!=VALUE");
            return Err(Failure::new(what).code(code::CRITICAL));
        }
    };
    Ok(Want { column: index::<R>(name.trim())?, value: value.trim().to_owned(), equal })
}

fn index<R: Row>(name: &str) -> Outcome<usize> {
    let columns = R::columns();
    if let Some(i) = columns.iter().position(|c| c.name.eq_ignore_ascii_case(name)) {
        return Ok(i);
    }
    let names: Vec<&str> = columns.iter().map(|c| c.name).collect();
    let near = did_you_mean(&name.to_uppercase(), names.iter().copied());
    let next =
        near.map_or_else(|| format!("there are {}", names.join(", ")), |n| format!("did you mean {n}?"));
    Err(Failure::new(format!("there is no column {name:?}")).next(next).code(code::CRITICAL))
}

/// A cell with several values has each of them.
fn has(cell: &str, value: &str) -> bool {
    let cell = cell.trim_end_matches('*');
    cell.eq_ignore_ascii_case(value) || cell.split(',').any(|part| part.eq_ignore_ascii_case(value))
}

/// Numbers and addresses by value, all else as text.
#[derive(PartialEq, Eq)]
struct Key(String);

impl Key {
    fn number(&self) -> Option<f64> {
        self.0.trim_end_matches('s').parse().ok()
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        if let (Some(a), Some(b)) = (self.number(), other.number()) {
            return a.total_cmp(&b);
        }
        if let (Ok(a), Ok(b)) = (self.0.parse::<IpAddr>(), other.0.parse::<IpAddr>()) {
            return a.cmp(&b);
        }
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
