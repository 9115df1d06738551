//! `validate`: objects alone, then against each other, for people and for CI.

mod cross;
mod unknown;

use purelb_api::{agent, group};
use purelb_core::facts::ConfigProblem;
use purelb_core::pools::Rules;
use serde::Serialize;

use crate::cli::Format;
use crate::error::Outcome;
use crate::paint::{Paint, Tone};
use crate::saved::Saved;
use crate::table::{self, Cell, Column, Row, column, wide};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Error,
    Warning,
}

/// Something to mend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub level: Level,
    pub object: String,
    pub field: String,
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
}

impl Row for Finding {
    fn columns() -> Vec<Column> {
        [column("LEVEL"), column("OBJECT"), column("FIELD"), column("MESSAGE"), wide("FILE")].to_vec()
    }

    fn cells(&self) -> Vec<Cell> {
        let level = match self.level {
            Level::Error => Cell::toned(Tone::Bad, "error"),
            Level::Warning => Cell::toned(Tone::Warn, "warning"),
        };
        vec![level, (&self.object).into(), (&self.field).into(), (&self.message).into(), (&self.file).into()]
    }

    fn name(&self) -> String {
        self.object.clone()
    }
}

/// Everything that is wrong, errors first.
pub fn check(saved: &mut Saved) -> Vec<Finding> {
    let leases = saved.lease_facts();
    let mut found = each_alone(saved);
    let groups: Vec<_> = saved
        .groups
        .iter()
        .filter_map(|o| Some((o, group::parse(&o.object, &Rules::default()).ok()?)))
        .collect();
    let agents: Vec<_> = saved.agents.iter().map(|o| (o, agent::facts(&o.object))).collect();
    cross::groups(&groups, &mut found);
    cross::reach(&groups, &leases, &mut found);
    cross::agents(&agents, &saved.nodes, &mut found);
    cross::services(&groups, &saved.services, &mut found);
    found.sort();
    found.dedup();
    found
}

/// What is wrong with objects by themselves.
pub fn each_alone(saved: &Saved) -> Vec<Finding> {
    let mut found = Vec::new();
    for u in &saved.unreadable {
        let (object, message) = u.object.split_once(": ").unwrap_or((&u.object, ""));
        found.push(Finding {
            level: Level::Error,
            object: object.into(),
            field: String::new(),
            message: message.into(),
            file: u.file.clone(),
        });
    }
    for old in &saved.old {
        let kind = old.object["kind"].as_str().unwrap_or_default();
        found.push(Finding {
            level: Level::Error,
            object: format!("{kind} {}", crate::saved::name_of(&old.object)),
            field: "apiVersion".into(),
            message: "is v1; turn it into v2 with `purelbctl migrate`".into(),
            file: old.file.clone(),
        });
    }
    for origin in &saved.groups {
        if let Err(problem) = group::parse(&origin.object, &Rules::default()) {
            found.push(alone("ServiceGroup", problem, &origin.file));
        }
    }
    for origin in &saved.agents {
        if let Err(problem) = agent::facts(&origin.object).config {
            found.push(alone("LBNodeAgent", problem, &origin.file));
        }
    }
    unknown::fields(&saved.raw, &mut found);
    found
}

fn alone(kind: &str, problem: ConfigProblem, file: &str) -> Finding {
    Finding {
        level: Level::Error,
        object: format!("{kind} {}", problem.object),
        field: problem.field,
        message: problem.message,
        file: file.to_owned(),
    }
}

/// The report, and the exit code.
pub fn report(
    saved: &Saved,
    found: &[Finding],
    strict: bool,
    format: Format,
    paint: Paint,
) -> Outcome<(String, u8)> {
    let errors = found.iter().filter(|f| f.level == Level::Error).count();
    let warnings = found.len() - errors;
    let mut text = match found {
        [] if matches!(format, Format::Table | Format::Wide) => String::new(),
        found => table::list(found, format, true, paint)?,
    };
    if matches!(format, Format::Table | Format::Wide) {
        let (groups, agents) = (saved.groups.len(), saved.agents.len());
        let line =
            format!("{groups} ServiceGroups, {agents} LBNodeAgents: {errors} errors, {warnings} warnings\n");
        text.push_str(&line);
    }
    let bad = errors > 0 || (strict && warnings > 0);
    Ok((text, if bad { crate::error::code::FAILED } else { 0 }))
}
