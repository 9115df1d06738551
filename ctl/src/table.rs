//! Aligned tables, and the other shapes a list is printed in.

use std::fmt::Write;

use serde::Serialize;

use crate::cli::Format;
use crate::error::{Failure, Outcome};
use crate::paint::{Paint, Tone};

/// One column: its heading, and whether only `-o wide` shows it.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub name: &'static str,
    pub wide: bool,
}

pub const fn column(name: &'static str) -> Column {
    Column { name, wide: false }
}

pub const fn wide(name: &'static str) -> Column {
    Column { name, wide: true }
}

/// A cell, with what it should look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    pub text: String,
    pub tone: Option<Tone>,
}

impl Cell {
    pub fn toned(tone: Tone, text: impl ToString) -> Self {
        Self { text: clean(&text.to_string()), tone: Some(tone) }
    }
}

impl<T: ToString> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: clean(&text.to_string()), tone: None }
    }
}

/// What others wrote (an object's name, an error) must not steer the terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Something that is listed.
pub trait Row: Serialize {
    fn columns() -> Vec<Column>;
    /// As many as there are columns.
    fn cells(&self) -> Vec<Cell>;
    /// For `-o name`.
    fn name(&self) -> String;
    /// It is a Service, or belongs to some: `namespace/name`.
    fn services(&self) -> &[String] {
        &[]
    }
}

/// A list in the format asked for; ends in a line break.
pub fn list<R: Row>(rows: &[R], format: Format, headings: bool, paint: Paint) -> Outcome<String> {
    Ok(match format {
        Format::Json => json(&rows)?,
        Format::Yaml => yaml(&rows)?,
        Format::Name => rows.iter().map(|r| format!("{}\n", r.name())).collect(),
        Format::Table | Format::Wide => {
            let lines = lines(rows, format, headings);
            align(&lines, &widths(&lines), paint)
        }
    })
}

/// Headings and rows, as far as the format shows them.
pub fn lines<R: Row>(rows: &[R], format: Format, headings: bool) -> Vec<Vec<Cell>> {
    let columns = R::columns();
    let shown: Vec<usize> =
        (0..columns.len()).filter(|i| format == Format::Wide || !columns[*i].wide).collect();
    let head = shown.iter().map(|i| Cell::toned(Tone::Dim, columns[*i].name)).collect();
    let body = rows.iter().map(|row| {
        let cells = row.cells();
        shown.iter().map(|i| cells[*i].clone()).collect()
    });
    headings.then_some(head).into_iter().chain(body).collect()
}

pub fn widths(lines: &[Vec<Cell>]) -> Vec<usize> {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| lines.iter().filter_map(|l| l.get(i)).map(|c| c.text.chars().count()).max();
    (0..columns).map(|i| width(i).unwrap_or(0)).collect()
}

/// Cells in columns, two spaces between, none at the end of a line. A cell that is too
/// wide moves the rest of its line.
pub fn align(lines: &[Vec<Cell>], widths: &[usize], paint: Paint) -> String {
    let mut out = String::new();
    for line in lines {
        let mut pending = 0;
        for (cell, width) in line.iter().zip(widths) {
            if !cell.text.is_empty() {
                let _ = write!(out, "{:pending$}", "");
                pending = 0;
                out.push_str(&match cell.tone {
                    Some(tone) => paint.put(tone, &cell.text),
                    None => cell.text.clone(),
                });
            }
            pending += width.saturating_sub(cell.text.chars().count()) + 2;
        }
        out.push('\n');
    }
    out
}

pub fn json<T: Serialize + ?Sized>(value: &T) -> Outcome<String> {
    let text = serde_json::to_string_pretty(value);
    text.map(|t| t + "\n").map_err(|e| Failure::new("cannot write JSON").because(e))
}

pub fn yaml<T: Serialize + ?Sized>(value: &T) -> Outcome<String> {
    let text = serde_saphyr::to_string(&value);
    let text = text.map_err(|e| Failure::new("cannot write YAML").because(e))?;
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_without_spaces() {
        let lines = [vec!["A".into(), "LONGER".into()], vec!["wide cell".into(), "".into()]];
        assert_eq!(align(&lines, &widths(&lines), Paint::off()), "A          LONGER\nwide cell\n");
    }

    #[test]
    fn colours_do_not_move_columns() {
        let line = |t: &str| vec![Cell::toned(Tone::Bad, t), Cell::from("x")];
        let lines = [line("a"), line("abc")];
        let text = align(&lines, &widths(&lines), Paint::new(crate::cli::When::Always));
        assert_eq!(text, "\x1b[31ma\x1b[0m    x\n\x1b[31mabc\x1b[0m  x\n");
    }

    #[test]
    fn a_cell_cannot_steer_the_terminal() {
        assert_eq!(Cell::from("a\x1b[2Jb\nc").text, "a [2Jb c");
    }
}
