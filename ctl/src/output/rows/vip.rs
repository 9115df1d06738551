//! Addresses.

use purelb_proto::control::v1 as pb;
use serde::Serialize;

use super::{join_or_dash, or_dash, pool_type_name, reason_name, reason_tone};
use crate::output::table::{TableCell, TableColumn, TableRow, column, wide_column};
use crate::output::text_painter::TextTone;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VipRow {
    pub ip: String,
    pub services: Vec<String>,
    pub pool: String,
    pub pool_type: &'static str,
    pub reason: String,
    pub message: String,
    pub winner: String,
    pub interface: String,
    pub retry_in_seconds: f64,
    #[serde(skip)]
    pub tone: Option<TextTone>,
}

impl From<pb::Vip> for VipRow {
    fn from(v: pb::Vip) -> Self {
        let reason = v.reason.clone().unwrap_or_default();
        Self {
            pool_type: pool_type_name(v.pool_type()),
            ip: v.ip,
            services: v.services,
            pool: v.pool,
            tone: reason_tone(reason.code()),
            reason: reason_name(reason.code()),
            message: reason.text,
            winner: v.winner,
            interface: v.interface,
            retry_in_seconds: reason.retry_in_seconds,
        }
    }
}

impl TableRow for VipRow {
    fn columns() -> Vec<TableColumn> {
        let shown = ["IP", "REASON", "WINNER", "INTERFACE", "SERVICE"].map(column);
        let more = ["POOL", "TYPE", "MESSAGE"].map(wide_column);
        [shown.to_vec(), more.to_vec()].concat()
    }

    fn cells(&self) -> Vec<TableCell> {
        let reason = TableCell { tone: self.tone, ..TableCell::from(&self.reason) };
        vec![
            (&self.ip).into(),
            reason,
            or_dash(&self.winner).into(),
            or_dash(&self.interface).into(),
            join_or_dash(&self.services).into(),
            or_dash(&self.pool).into(),
            self.pool_type.into(),
            (&self.message).into(),
        ]
    }

    fn name(&self) -> String {
        self.ip.clone()
    }

    fn services(&self) -> &[String] {
        &self.services
    }
}
