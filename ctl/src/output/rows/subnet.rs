//! Subnets, and who advertises them.

use purelb_proto::control::v1 as pb;
use serde::Serialize;

use super::join_or_dash;
use crate::output::table::{TableCell, TableColumn, TableRow, column, wide_column};
use crate::output::text_painter::TextTone;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubnetRow {
    pub cidr: String,
    pub candidates: u32,
    pub nodes: Vec<String>,
    pub local_interfaces: Vec<String>,
    pub advertised: bool,
}

impl From<pb::Subnet> for SubnetRow {
    fn from(s: pb::Subnet) -> Self {
        Self {
            cidr: s.cidr,
            candidates: s.candidates,
            nodes: s.nodes,
            local_interfaces: s.local_interfaces,
            advertised: s.advertised,
        }
    }
}

impl TableRow for SubnetRow {
    fn columns() -> Vec<TableColumn> {
        vec![
            column("SUBNET"),
            column("CANDIDATES"),
            column("NODES"),
            column("HERE"),
            wide_column("ADVERTISED"),
        ]
    }

    fn cells(&self) -> Vec<TableCell> {
        let tone = if self.candidates == 0 { TextTone::Bad } else { TextTone::Good };
        vec![
            (&self.cidr).into(),
            TableCell::toned(tone, self.candidates),
            join_or_dash(&self.nodes).into(),
            join_or_dash(&self.local_interfaces).into(),
            self.advertised.into(),
        ]
    }

    fn name(&self) -> String {
        self.cidr.clone()
    }
}
