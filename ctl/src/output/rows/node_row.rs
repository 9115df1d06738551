//! Rows of several nodes in one list.

use serde::Serialize;

use crate::output::table::{TableCell, TableColumn, TableRow, column};

/// A row, and the node whose daemon gave it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeRow<R> {
    pub on: String,
    #[serde(flatten)]
    pub row: R,
}

impl<R: TableRow> TableRow for NodeRow<R> {
    fn columns() -> Vec<TableColumn> {
        [vec![column("ON")], R::columns()].concat()
    }

    fn cells(&self) -> Vec<TableCell> {
        [vec![(&self.on).into()], self.row.cells()].concat()
    }

    fn name(&self) -> String {
        format!("{}/{}", self.on, self.row.name())
    }

    fn services(&self) -> &[String] {
        self.row.services()
    }
}
