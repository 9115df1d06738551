//! Services, with their addresses.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{VipRow, join_or_dash, or_dash};
use crate::output::table::{TableCell, TableColumn, TableRow, column, wide_column};

/// A Service, put together from its addresses.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceRow {
    pub service: String,
    pub pool: String,
    pub pool_type: &'static str,
    pub addresses: Vec<ServiceAddress>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAddress {
    pub ip: String,
    pub reason: String,
    pub winner: String,
}

/// Services in order of their names, each with all its addresses.
pub fn group_by_service(vips: &[VipRow]) -> Vec<ServiceRow> {
    let mut all: BTreeMap<&str, ServiceRow> = BTreeMap::new();
    for vip in vips {
        for name in &vip.services {
            let service = all.entry(name).or_insert_with(|| ServiceRow {
                service: name.clone(),
                pool: vip.pool.clone(),
                pool_type: vip.pool_type,
                addresses: Vec::new(),
            });
            let (ip, reason, winner) = (vip.ip.clone(), vip.reason.clone(), vip.winner.clone());
            service.addresses.push(ServiceAddress { ip, reason, winner });
        }
    }
    all.into_values().collect()
}

impl TableRow for ServiceRow {
    fn columns() -> Vec<TableColumn> {
        vec![
            column("SERVICE"),
            column("POOL"),
            column("TYPE"),
            column("ADDRESSES"),
            column("NODE"),
            wide_column("REASON"),
        ]
    }

    fn cells(&self) -> Vec<TableCell> {
        let join = |f: fn(&ServiceAddress) -> &String| {
            self.addresses.iter().map(|a| or_dash(f(a))).collect::<Vec<_>>()
        };
        let node =
            if self.pool_type == "remote" { "(all)".to_owned() } else { join_or_dash(&join(|a| &a.winner)) };
        vec![
            (&self.service).into(),
            or_dash(&self.pool).into(),
            self.pool_type.into(),
            join_or_dash(&join(|a| &a.ip)).into(),
            node.into(),
            join_or_dash(&join(|a| &a.reason)).into(),
        ]
    }

    fn name(&self) -> String {
        self.service.clone()
    }

    fn services(&self) -> &[String] {
        std::slice::from_ref(&self.service)
    }
}
