//! Aligned tables, and the other shapes a list is printed in.

use std::fmt::Write;

use serde::Serialize;

use crate::cli::OutputFormat;
use crate::error::{CommandError, CommandResult};
use crate::output::text_painter::{TextPainter, TextTone};

/// One column: its heading, and whether only `-o wide` shows it.
#[derive(Clone, Copy, Debug)]
pub struct TableColumn {
    pub name: &'static str,
    pub wide: bool,
}

pub const fn column(name: &'static str) -> TableColumn {
    TableColumn { name, wide: false }
}

pub const fn wide_column(name: &'static str) -> TableColumn {
    TableColumn { name, wide: true }
}

/// A cell, with what it should look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableCell {
    pub text: String,
    pub tone: Option<TextTone>,
}

impl TableCell {
    pub fn toned(tone: TextTone, text: impl ToString) -> Self {
        Self { text: replace_controls(&text.to_string()), tone: Some(tone) }
    }
}

impl<T: ToString> From<T> for TableCell {
    fn from(text: T) -> Self {
        Self { text: replace_controls(&text.to_string()), tone: None }
    }
}

/// What others wrote (an object's name, an error) must not steer the terminal.
fn replace_controls(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Something that is listed.
pub trait TableRow: Serialize {
    fn columns() -> Vec<TableColumn>;
    /// As many as there are columns.
    fn cells(&self) -> Vec<TableCell>;
    /// For `-o name`.
    fn name(&self) -> String;
    /// It is a Service, or belongs to some: `namespace/name`.
    fn services(&self) -> &[String] {
        &[]
    }
}

/// A list in the format asked for; ends in a line break.
pub fn render_list<R: TableRow>(
    rows: &[R],
    format: OutputFormat,
    headings: bool,
    paint: TextPainter,
) -> CommandResult<String> {
    Ok(match format {
        OutputFormat::Json => to_json(&rows)?,
        OutputFormat::Yaml => to_yaml(&rows)?,
        OutputFormat::Name => rows.iter().map(|r| format!("{}\n", r.name())).collect(),
        OutputFormat::Table | OutputFormat::Wide => {
            let lines = table_lines(rows, format, headings);
            align_columns(&lines, &column_widths(&lines), paint)
        }
    })
}

/// Headings and rows, as far as the format shows them.
pub fn table_lines<R: TableRow>(rows: &[R], format: OutputFormat, headings: bool) -> Vec<Vec<TableCell>> {
    let columns = R::columns();
    let shown: Vec<usize> =
        (0..columns.len()).filter(|i| format == OutputFormat::Wide || !columns[*i].wide).collect();
    let head = shown.iter().map(|i| TableCell::toned(TextTone::Dim, columns[*i].name)).collect();
    let body = rows.iter().map(|row| {
        let cells = row.cells();
        shown.iter().map(|i| cells[*i].clone()).collect()
    });
    headings.then_some(head).into_iter().chain(body).collect()
}

pub fn column_widths(lines: &[Vec<TableCell>]) -> Vec<usize> {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| lines.iter().filter_map(|l| l.get(i)).map(|c| c.text.chars().count()).max();
    (0..columns).map(|i| width(i).unwrap_or(0)).collect()
}

/// Cells in columns, two spaces between, none at the end of a line. A cell that is too
/// wide moves the rest of its line.
pub fn align_columns(lines: &[Vec<TableCell>], widths: &[usize], paint: TextPainter) -> String {
    let mut out = String::new();
    for line in lines {
        let mut pending = 0;
        for (cell, width) in line.iter().zip(widths) {
            if !cell.text.is_empty() {
                let _ = write!(out, "{:pending$}", "");
                pending = 0;
                out.push_str(&match cell.tone {
                    Some(tone) => paint.color(tone, &cell.text),
                    None => cell.text.clone(),
                });
            }
            pending += width.saturating_sub(cell.text.chars().count()) + 2;
        }
        out.push('\n');
    }
    out
}

pub fn to_json<T: Serialize + ?Sized>(value: &T) -> CommandResult<String> {
    let text = serde_json::to_string_pretty(value);
    text.map(|t| t + "\n").map_err(|e| CommandError::new("cannot write JSON").because(e))
}

pub fn to_yaml<T: Serialize + ?Sized>(value: &T) -> CommandResult<String> {
    let text = serde_saphyr::to_string(&value);
    let text = text.map_err(|e| CommandError::new("cannot write YAML").because(e))?;
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_without_spaces() {
        let lines = [vec!["A".into(), "LONGER".into()], vec!["wide cell".into(), "".into()]];
        assert_eq!(
            align_columns(&lines, &column_widths(&lines), TextPainter::off()),
            "A          LONGER\nwide cell\n"
        );
    }

    #[test]
    fn colours_do_not_move_columns() {
        let line = |t: &str| vec![TableCell::toned(TextTone::Bad, t), TableCell::from("x")];
        let lines = [line("a"), line("abc")];
        let text =
            align_columns(&lines, &column_widths(&lines), TextPainter::new(crate::cli::ColorWhen::Always));
        assert_eq!(text, "\x1b[31ma\x1b[0m    x\n\x1b[31mabc\x1b[0m  x\n");
    }

    #[test]
    fn a_cell_cannot_steer_the_terminal() {
        assert_eq!(TableCell::from("a\x1b[2Jb\nc").text, "a [2Jb c");
    }
}
