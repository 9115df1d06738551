//! A sorted table whose copies share what they have in common.
//!
//! A picture of ten thousand addresses is drawn many times a second, and two in a row
//! differ in a few. Copying one costs nothing; a change copies the part it is in (about a
//! hundred pointers); two are compared by looking only at the parts they do not share.

use std::fmt;
use std::sync::Arc;

/// Rows of a part; more, and it becomes two.
const FULL: usize = 128;

/// Something with a name of its own.
pub trait TableRow {
    type Key: Ord;

    fn key(&self) -> &Self::Key;
}

type TablePart<R> = Vec<Arc<R>>;

/// By key. No part is ever empty.
pub struct SharedTable<R> {
    parts: Arc<Vec<Arc<TablePart<R>>>>,
}

impl<R> Clone for SharedTable<R> {
    fn clone(&self) -> Self {
        Self { parts: self.parts.clone() }
    }
}

impl<R> Default for SharedTable<R> {
    fn default() -> Self {
        Self { parts: Arc::default() }
    }
}

impl<R: fmt::Debug> fmt::Debug for SharedTable<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl<R: TableRow + Eq> PartialEq for SharedTable<R> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.parts, &other.parts) || self.changes_since(other).next().is_none()
    }
}

impl<R: TableRow + Eq> Eq for SharedTable<R> {}

impl<R> SharedTable<R> {
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub fn iter(&self) -> TableRows<'_, R> {
        TableRows { parts: &self.parts, row: 0 }
    }
}

impl<R: TableRow> SharedTable<R> {
    /// The part where a key is, or belongs.
    fn part_of(&self, key: &R::Key) -> usize {
        let before = |part: &Arc<TablePart<R>>| part.last().is_some_and(|last| last.key() < key);
        self.parts.partition_point(before).min(self.parts.len().saturating_sub(1))
    }

    pub fn get(&self, key: &R::Key) -> Option<&R> {
        let part = self.parts.get(self.part_of(key))?;
        let at = part.binary_search_by(|row| row.key().cmp(key)).ok()?;
        part.get(at).map(|row| &**row)
    }

    /// What was there before.
    pub fn set(&mut self, row: R) -> Option<Arc<R>> {
        let row = Arc::new(row);
        let at = self.part_of(row.key());
        let parts = Arc::make_mut(&mut self.parts);
        let Some(part) = parts.get_mut(at) else {
            parts.push(Arc::new(vec![row]));
            return None;
        };
        let part = Arc::make_mut(part);
        match part.binary_search_by(|known| known.key().cmp(row.key())) {
            Ok(found) => Some(std::mem::replace(&mut part[found], row)),
            Err(place) => {
                part.insert(place, row);
                if part.len() > FULL {
                    let rest = part.split_off(FULL / 2);
                    parts.insert(at + 1, Arc::new(rest));
                }
                None
            }
        }
    }

    pub fn remove(&mut self, key: &R::Key) -> Option<Arc<R>> {
        self.get(key)?;
        let at = self.part_of(key);
        let parts = Arc::make_mut(&mut self.parts);
        let part = Arc::make_mut(parts.get_mut(at)?);
        let found = part.binary_search_by(|row| row.key().cmp(key)).ok()?;
        let row = part.remove(found);
        if part.is_empty() {
            parts.remove(at);
        }
        Some(row)
    }

    /// Rows that differ, as they were and as they are, by key.
    pub fn changes_since<'a>(&'a self, before: &'a Self) -> TableChanges<'a, R> {
        TableChanges { before: before.iter(), after: self.iter() }
    }
}

impl<R: TableRow> FromIterator<R> for SharedTable<R> {
    fn from_iter<I: IntoIterator<Item = R>>(rows: I) -> Self {
        let mut table = Self::default();
        for row in rows {
            table.set(row);
        }
        table
    }
}

impl<'a, R> IntoIterator for &'a SharedTable<R> {
    type Item = &'a R;
    type IntoIter = TableRows<'a, R>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// All rows, by key.
#[derive(Debug)]
pub struct TableRows<'a, R> {
    parts: &'a [Arc<TablePart<R>>],
    /// Of the first part.
    row: usize,
}

impl<R> Clone for TableRows<'_, R> {
    fn clone(&self) -> Self {
        Self { parts: self.parts, row: self.row }
    }
}

impl<'a, R> TableRows<'a, R> {
    fn peek(&self) -> Option<&'a Arc<R>> {
        self.parts.first()?.get(self.row)
    }

    fn step(&mut self) -> Option<&'a Arc<R>> {
        let (part, rest) = self.parts.split_first()?;
        let row = part.get(self.row)?;
        self.row += 1;
        if self.row == part.len() {
            (self.parts, self.row) = (rest, 0);
        }
        Some(row)
    }

    /// Leaves out parts that both begin with.
    fn skip_shared(&mut self, other: &mut Self) {
        while let (0, 0, Some(mine), Some(theirs)) =
            (self.row, other.row, self.parts.first(), other.parts.first())
            && Arc::ptr_eq(mine, theirs)
        {
            self.parts = &self.parts[1..];
            other.parts = &other.parts[1..];
        }
    }
}

impl<'a, R> Iterator for TableRows<'a, R> {
    type Item = &'a R;

    fn next(&mut self) -> Option<&'a R> {
        self.step().map(|row| &**row)
    }
}

/// See [`SharedTable::changes_since`].
#[derive(Debug)]
pub struct TableChanges<'a, R> {
    before: TableRows<'a, R>,
    after: TableRows<'a, R>,
}

impl<'a, R: TableRow + Eq> Iterator for TableChanges<'a, R> {
    type Item = (Option<&'a R>, Option<&'a R>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.before.skip_shared(&mut self.after);
            match (self.before.peek(), self.after.peek()) {
                (None, None) => return None,
                (Some(was), Some(is)) if was.key() == is.key() => {
                    self.before.step();
                    self.after.step();
                    if !Arc::ptr_eq(was, is) && was != is {
                        return Some((Some(was), Some(is)));
                    }
                }
                (Some(was), is) if is.is_none_or(|is| was.key() < is.key()) => {
                    self.before.step();
                    return Some((Some(was), None));
                }
                (_, is) => {
                    self.after.step();
                    return Some((None, is.map(|is| &**is)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
