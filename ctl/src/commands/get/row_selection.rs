//! Choosing and ordering rows by their columns.

use std::cmp::Ordering;
use std::net::IpAddr;

use super::GetArgs;
use crate::error::{CommandError, CommandResult, did_you_mean, exit_code};
use crate::output::table::TableRow;

#[derive(Debug)]
pub struct RowSelection {
    names: Vec<String>,
    /// Of the Services that a row belongs to.
    namespace: Option<String>,
    filters: Vec<ColumnFilter>,
    sort: Option<(usize, bool)>,
}

#[derive(Debug)]
struct ColumnFilter {
    column: usize,
    value: String,
    equal: bool,
}

impl RowSelection {
    pub fn new<R: TableRow>(args: &GetArgs, namespace: Option<&str>) -> CommandResult<Self> {
        let filters =
            args.selectors.iter().map(|text| parse_filter::<R>(text)).collect::<CommandResult<_>>()?;
        let sort = args.sort_by.as_deref().map(|text| {
            let (name, down) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
            column_index::<R>(name).map(|i| (i, down))
        });
        let namespace = namespace.map(str::to_owned);
        Ok(Self { names: args.names.clone(), namespace, filters, sort: sort.transpose()? })
    }

    pub fn matches<R: TableRow>(&self, row: &R) -> bool {
        let cells = row.cells();
        let name = row.name();
        let named = self.names.is_empty() || self.names.iter().any(|n| matches_name(n, &name));
        let here = self.namespace.as_ref().is_none_or(|namespace| {
            row.services().iter().any(|s| s.split_once('/').is_some_and(|(of, _)| of == namespace))
        });
        named && here && self.filters.iter().all(|w| cell_has(&cells[w.column].text, &w.value) == w.equal)
    }

    /// Names given that nothing here has.
    pub fn missing<R: TableRow>(&self, rows: &[R]) -> Vec<&str> {
        let there = |name: &&String| rows.iter().any(|row| matches_name(name, &row.name()));
        self.names.iter().filter(|name| !there(name)).map(String::as_str).collect()
    }

    pub fn apply<R: TableRow>(&self, rows: Vec<R>) -> Vec<R> {
        let mut rows: Vec<R> = rows.into_iter().filter(|r| self.matches(r)).collect();
        if let Some((column, down)) = self.sort {
            rows.sort_by_cached_key(|r| SortKey(r.cells()[column].text.clone()));
            if down {
                rows.reverse();
            }
        }
        rows
    }
}

/// Whole, without the part before a slash, or as an address that is written in another way.
fn matches_name(asked: &str, name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    let same_address = || {
        let (a, b) = (asked.parse::<IpAddr>(), last.parse::<IpAddr>());
        matches!((a, b), (Ok(a), Ok(b)) if a == b)
    };
    asked == name || name.ends_with(&format!("/{asked}")) || same_address()
}

fn parse_filter<R: TableRow>(text: &str) -> CommandResult<ColumnFilter> {
    let (name, value, equal) = match (text.split_once("!="), text.split_once('=')) {
        (Some((name, value)), _) => (name, value, false),
        (None, Some((name, value))) => (name, value.trim_start_matches('='), true),
        _ => {
            let what = format!("the selector {text:?} is not COLUMN=VALUE or COLUMN!=VALUE");
            return Err(CommandError::new(what).code(exit_code::CRITICAL));
        }
    };
    Ok(ColumnFilter { column: column_index::<R>(name.trim())?, value: value.trim().to_owned(), equal })
}

fn column_index<R: TableRow>(name: &str) -> CommandResult<usize> {
    let columns = R::columns();
    if let Some(i) = columns.iter().position(|c| c.name.eq_ignore_ascii_case(name)) {
        return Ok(i);
    }
    let names: Vec<&str> = columns.iter().map(|c| c.name).collect();
    let near = did_you_mean(&name.to_uppercase(), names.iter().copied());
    let next =
        near.map_or_else(|| format!("there are {}", names.join(", ")), |n| format!("did you mean {n}?"));
    Err(CommandError::new(format!("there is no column {name:?}")).next(next).code(exit_code::CRITICAL))
}

/// A cell with several values has each of them.
fn cell_has(cell: &str, value: &str) -> bool {
    let cell = cell.trim_end_matches('*');
    cell.eq_ignore_ascii_case(value) || cell.split(',').any(|part| part.eq_ignore_ascii_case(value))
}

/// Numbers and addresses by value, all else as text.
#[derive(PartialEq, Eq)]
struct SortKey(String);

impl SortKey {
    fn number(&self) -> Option<f64> {
        self.0.trim_end_matches('s').parse().ok()
    }
}

impl Ord for SortKey {
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

impl PartialOrd for SortKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
