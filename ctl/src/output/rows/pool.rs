//! Pools of addresses.

use purelb_proto::control::v1 as pb;
use serde::Serialize;

use super::{join_or_dash, pool_type_name};
use crate::output::table::{TableCell, TableColumn, TableRow, column};
use crate::output::text_painter::TextTone;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRow {
    pub name: String,
    pub pool_type: &'static str,
    pub in_use: u32,
    pub subnets: Vec<String>,
    pub unserved_subnets: Vec<String>,
}

impl From<pb::Pool> for PoolRow {
    fn from(p: pb::Pool) -> Self {
        Self {
            pool_type: pool_type_name(p.pool_type()),
            name: p.name,
            in_use: p.in_use,
            subnets: p.subnets,
            unserved_subnets: p.unserved_subnets,
        }
    }
}

impl TableRow for PoolRow {
    fn columns() -> Vec<TableColumn> {
        ["NAME", "TYPE", "IN-USE", "SUBNETS", "UNSERVED"].map(column).to_vec()
    }

    fn cells(&self) -> Vec<TableCell> {
        let unserved = if self.unserved_subnets.is_empty() {
            "-".into()
        } else {
            TableCell::toned(TextTone::Bad, join_or_dash(&self.unserved_subnets))
        };
        vec![
            (&self.name).into(),
            self.pool_type.into(),
            self.in_use.into(),
            join_or_dash(&self.subnets).into(),
            unserved,
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}
