//! What happened on a node.

use purelb_proto::control::v1 as pb;
use serde::Serialize;

use super::{join_or_dash, or_dash};
use crate::output::table::{TableCell, TableColumn, TableRow, column, wide_column};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventRow {
    pub sequence: u64,
    pub time: String,
    pub kind: String,
    pub object: String,
    pub before: String,
    pub after: String,
    pub services: Vec<String>,
}

impl From<pb::Event> for EventRow {
    fn from(e: pb::Event) -> Self {
        let words = e.kind().as_str_name().split('_');
        let kind: String = words.map(|w| w[..1].to_owned() + &w[1..].to_lowercase()).collect();
        let after = if e.missed > 0 { format!("{} events missed: read faster", e.missed) } else { e.after };
        Self {
            sequence: e.sequence,
            time: e.time,
            kind,
            object: e.object,
            before: e.before,
            after,
            services: e.services,
        }
    }
}

impl TableRow for EventRow {
    fn columns() -> Vec<TableColumn> {
        vec![
            column("TIME"),
            column("KIND"),
            column("OBJECT"),
            column("NOW"),
            wide_column("BEFORE"),
            wide_column("SERVICE"),
            wide_column("SEQ"),
        ]
    }

    fn cells(&self) -> Vec<TableCell> {
        let now = if self.after.is_empty() { "gone" } else { &self.after };
        vec![
            (&self.time).into(),
            (&self.kind).into(),
            (&self.object).into(),
            now.into(),
            or_dash(&self.before).into(),
            join_or_dash(&self.services).into(),
            self.sequence.into(),
        ]
    }

    fn name(&self) -> String {
        self.sequence.to_string()
    }

    fn services(&self) -> &[String] {
        &self.services
    }
}
