//! Events and settings, and rows of several nodes.

use purelb_proto::control::v1 as pb;
use serde::Serialize;

use super::{list, or_dash};
use crate::table::{Cell, Column, Row, column, wide};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    pub sequence: u64,
    pub time: String,
    pub kind: String,
    pub object: String,
    pub before: String,
    pub after: String,
    pub services: Vec<String>,
}

impl From<pb::Event> for Event {
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

impl Row for Event {
    fn columns() -> Vec<Column> {
        vec![
            column("TIME"),
            column("KIND"),
            column("OBJECT"),
            column("NOW"),
            wide("BEFORE"),
            wide("SERVICE"),
            wide("SEQ"),
        ]
    }

    fn cells(&self) -> Vec<Cell> {
        let now = if self.after.is_empty() { "gone" } else { &self.after };
        vec![
            (&self.time).into(),
            (&self.kind).into(),
            (&self.object).into(),
            now.into(),
            or_dash(&self.before).into(),
            list(&self.services).into(),
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

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    pub key: String,
    pub value: String,
    pub source: String,
}

impl Row for Setting {
    fn columns() -> Vec<Column> {
        ["KEY", "VALUE", "SOURCE"].map(column).to_vec()
    }

    fn cells(&self) -> Vec<Cell> {
        vec![(&self.key).into(), or_dash(&self.value).into(), (&self.source).into()]
    }

    fn name(&self) -> String {
        self.key.clone()
    }
}

/// A row of one of several nodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct On<R> {
    pub on: String,
    #[serde(flatten)]
    pub row: R,
}

impl<R: Row> Row for On<R> {
    fn columns() -> Vec<Column> {
        [vec![column("ON")], R::columns()].concat()
    }

    fn cells(&self) -> Vec<Cell> {
        [vec![(&self.on).into()], self.row.cells()].concat()
    }

    fn name(&self) -> String {
        format!("{}/{}", self.on, self.row.name())
    }

    fn services(&self) -> &[String] {
        self.row.services()
    }
}
