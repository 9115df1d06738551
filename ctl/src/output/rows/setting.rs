//! Settings of a daemon.

use serde::Serialize;

use super::or_dash;
use crate::output::table::{TableCell, TableColumn, TableRow, column};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SettingRow {
    pub key: String,
    pub value: String,
    pub source: String,
}

impl TableRow for SettingRow {
    fn columns() -> Vec<TableColumn> {
        ["KEY", "VALUE", "SOURCE"].map(column).to_vec()
    }

    fn cells(&self) -> Vec<TableCell> {
        vec![(&self.key).into(), or_dash(&self.value).into(), (&self.source).into()]
    }

    fn name(&self) -> String {
        self.key.clone()
    }
}
