//! `validate`: objects alone, then against each other, for people and for CI.

mod cross_checks;
mod unknown_fields;

use std::path::PathBuf;

use clap::Args;
use purelb_api::{node_agent, service_group};
use purelb_core::facts::ConfigProblem;
use purelb_core::pools::RangeRules;
use serde::Serialize;

use crate::cli::{OutputFormat, TargetArgs};
use crate::client::cluster;
use crate::commands::block_on;
use crate::error::{CommandError, CommandResult};
use crate::offline::saved_objects::{self, SavedObjects};
use crate::output::table::{self, TableCell, TableColumn, TableRow, column, wide_column};
use crate::output::text_painter::{TextPainter, TextTone};
use crate::output::{print_notes, print_text};

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("from").required(true).args(["files", "cluster"])))]
pub struct ValidateArgs {
    /// Files to check (YAML or JSON, several documents, lists; - for stdin)
    #[arg(short, long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Check what is in the cluster
    #[arg(long)]
    pub cluster: bool,
    /// Warnings count as errors
    #[arg(long)]
    pub strict: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub output: OutputFormat,
}

pub fn run(target: &TargetArgs, args: &ValidateArgs, paint: TextPainter) -> CommandResult {
    let mut saved = if args.cluster {
        block_on(async {
            let client = cluster::cluster_client(target).await?;
            cluster::read_all_objects(&client, &target.install_namespace).await
        })?
    } else {
        saved_objects::read_files(&args.files)?
    };
    let found = check_all(&mut saved);
    if saved.groups.is_empty() && saved.agents.is_empty() && found.is_empty() {
        let what = "there is no ServiceGroup and no LBNodeAgent to check";
        return Err(CommandError::new(what).next("give files with objects of apiVersion purelb.io/v2"));
    }
    print_notes(&saved.notes);
    let (text, exit) = render_report(&saved, &found, args.strict, args.output, paint)?;
    print_text(&text).map(|_| exit)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingLevel {
    Error,
    Warning,
}

/// Something to mend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigFinding {
    pub level: FindingLevel,
    pub object: String,
    pub field: String,
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
}

impl TableRow for ConfigFinding {
    fn columns() -> Vec<TableColumn> {
        [column("LEVEL"), column("OBJECT"), column("FIELD"), column("MESSAGE"), wide_column("FILE")].to_vec()
    }

    fn cells(&self) -> Vec<TableCell> {
        let level = match self.level {
            FindingLevel::Error => TableCell::toned(TextTone::Bad, "error"),
            FindingLevel::Warning => TableCell::toned(TextTone::Warn, "warning"),
        };
        vec![level, (&self.object).into(), (&self.field).into(), (&self.message).into(), (&self.file).into()]
    }

    fn name(&self) -> String {
        self.object.clone()
    }
}

/// Everything that is wrong, errors first.
pub fn check_all(saved: &mut SavedObjects) -> Vec<ConfigFinding> {
    let leases = saved.lease_facts();
    let mut found = check_each(saved);
    let groups: Vec<_> = saved
        .groups
        .iter()
        .filter_map(|o| Some((o, service_group::parse(&o.object, &RangeRules::default()).ok()?)))
        .collect();
    let agents: Vec<_> = saved.agents.iter().map(|o| (o, node_agent::facts(&o.object))).collect();
    cross_checks::check_groups(&groups, &mut found);
    cross_checks::check_reach(&groups, &leases, &mut found);
    cross_checks::check_agents(&agents, &saved.nodes, &mut found);
    cross_checks::check_services(&groups, &saved.services, &mut found);
    found.sort();
    found.dedup();
    found
}

/// What is wrong with objects by themselves.
pub fn check_each(saved: &SavedObjects) -> Vec<ConfigFinding> {
    let mut found = Vec::new();
    for u in &saved.unreadable {
        let (object, message) = u.object.split_once(": ").unwrap_or((&u.object, ""));
        found.push(ConfigFinding {
            level: FindingLevel::Error,
            object: object.into(),
            field: String::new(),
            message: message.into(),
            file: u.file.clone(),
        });
    }
    for old in &saved.old {
        let kind = old.object["kind"].as_str().unwrap_or_default();
        found.push(ConfigFinding {
            level: FindingLevel::Error,
            object: format!("{kind} {}", crate::offline::saved_objects::object_name(&old.object)),
            field: "apiVersion".into(),
            message: "is v1; turn it into v2 with `purelbctl migrate`".into(),
            file: old.file.clone(),
        });
    }
    for origin in &saved.groups {
        if let Err(problem) = service_group::parse(&origin.object, &RangeRules::default()) {
            found.push(own_problem("ServiceGroup", problem, &origin.file));
        }
    }
    for origin in &saved.agents {
        if let Err(problem) = node_agent::facts(&origin.object).config {
            found.push(own_problem("LBNodeAgent", problem, &origin.file));
        }
    }
    unknown_fields::check_fields(&saved.raw, &mut found);
    found
}

fn own_problem(kind: &str, problem: ConfigProblem, file: &str) -> ConfigFinding {
    ConfigFinding {
        level: FindingLevel::Error,
        object: format!("{kind} {}", problem.object),
        field: problem.field,
        message: problem.message,
        file: file.to_owned(),
    }
}

/// The report, and the exit code.
pub fn render_report(
    saved: &SavedObjects,
    found: &[ConfigFinding],
    strict: bool,
    format: OutputFormat,
    paint: TextPainter,
) -> CommandResult<(String, u8)> {
    let errors = found.iter().filter(|f| f.level == FindingLevel::Error).count();
    let warnings = found.len() - errors;
    let mut text = match found {
        [] if matches!(format, OutputFormat::Table | OutputFormat::Wide) => String::new(),
        found => table::render_list(found, format, true, paint)?,
    };
    if matches!(format, OutputFormat::Table | OutputFormat::Wide) {
        let (groups, agents) = (saved.groups.len(), saved.agents.len());
        let line =
            format!("{groups} ServiceGroups, {agents} LBNodeAgents: {errors} errors, {warnings} warnings\n");
        text.push_str(&line);
    }
    let bad = errors > 0 || (strict && warnings > 0);
    Ok((text, if bad { crate::error::exit_code::FAILED } else { 0 }))
}
