//! Nodes, by their Leases.

use purelb_proto::control::v1 as pb;
use serde::Serialize;

use super::{format_seconds, join_or_dash, or_dash};
use crate::output::table::{TableCell, TableColumn, TableRow, column, wide_column};
use crate::output::text_painter::TextTone;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberRow {
    pub node: String,
    pub state: &'static str,
    pub this_node: bool,
    pub expires_in_seconds: f64,
    pub addresses: usize,
    pub subnets: Vec<String>,
    pub control_endpoint: String,
    pub knows_handoffs: bool,
    pub announced: Vec<String>,
}

impl From<pb::Member> for MemberRow {
    fn from(m: pb::Member) -> Self {
        let state = match &m {
            m if !m.live => "dead",
            m if m.out_of_service => "out-of-service",
            m if m.draining => "draining",
            m if m.excluded => "excluded",
            m if m.ranks_last => "last",
            _ => "live",
        };
        Self {
            node: m.node,
            state,
            this_node: m.this_node,
            expires_in_seconds: m.expires_in_seconds,
            addresses: m.announced.len(),
            subnets: m.subnets,
            control_endpoint: m.control_endpoint,
            knows_handoffs: m.knows_handoffs,
            announced: m.announced,
        }
    }
}

impl TableRow for MemberRow {
    fn columns() -> Vec<TableColumn> {
        let shown = ["NODE", "STATE", "ADDRESSES", "SUBNETS"].map(column);
        let more = ["EXPIRES", "ENDPOINT", "HANDOFFS"].map(wide_column);
        [shown.to_vec(), more.to_vec()].concat()
    }

    fn cells(&self) -> Vec<TableCell> {
        let tone = match self.state {
            "live" => TextTone::Good,
            "draining" | "excluded" | "last" => TextTone::Warn,
            _ => TextTone::Bad,
        };
        let node = if self.this_node { format!("{}*", self.node) } else { self.node.clone() };
        let count = if self.knows_handoffs { self.addresses.to_string() } else { "?".into() };
        vec![
            node.into(),
            TableCell::toned(tone, self.state),
            count.into(),
            join_or_dash(&self.subnets).into(),
            format_seconds(self.expires_in_seconds).into(),
            or_dash(&self.control_endpoint).into(),
            self.knows_handoffs.into(),
        ]
    }

    fn name(&self) -> String {
        self.node.clone()
    }
}
