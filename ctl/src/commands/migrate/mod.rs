//! `migrate`: v1 ServiceGroups and LBNodeAgents become v2.
//!
//! v1 has one kind of pool and lets each node find out whether an address is of its
//! subnet; v2 wants to know whether a group is local or remote. That decision is the
//! operator's: by flag, by a mapping file, or asked for on a terminal. Nothing is
//! guessed, and nothing reaches the cluster without `--apply`.

pub mod backup;
mod convert;
pub mod definitions;

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use crate::cli::TargetArgs;
use crate::client::cluster;
use crate::commands::block_on;
use crate::error::{CommandError, CommandResult, did_you_mean};
use crate::offline::saved_objects::{self, SourcedObject, object_name, parse_documents};
use crate::output::{print_notes, print_text, table};

pub use convert::{AnnounceMode, convert};

pub use purelb_api::names::MIGRATED_FROM;

#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// v1 objects (YAML or JSON; - for stdin); without it they come from the cluster
    #[arg(short, long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// All groups are announced by one elected node each
    #[arg(long, conflicts_with = "remote")]
    pub local: bool,
    /// All groups are announced by every node, for routing
    #[arg(long)]
    pub remote: bool,
    /// File that says per group: `name: local` or `namespace/name: remote`
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// Write the v2 objects to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub output_file: Option<PathBuf>,
    /// Give the v2 objects this namespace; the v1 objects stay where they are
    #[arg(long, value_name = "NAMESPACE")]
    pub to_namespace: Option<String>,
    /// Have the cluster serve v2 beside v1; objects and definitions are saved first
    #[arg(long, conflicts_with_all = ["apply", "files", "local", "remote", "mapping", "output_file", "to_namespace"])]
    pub serve_both: bool,
    /// Put the v2 objects into the cluster; the v1 objects are saved first
    #[arg(long)]
    pub apply: bool,
    /// Where --serve-both and --apply save the v1 objects
    #[arg(long, value_name = "FILE")]
    pub backup: Option<PathBuf>,
    /// Put the objects and definitions of a backup back into the cluster
    #[arg(long, value_name = "BACKUP", conflicts_with_all = ["apply", "serve_both", "files", "local", "remote", "mapping", "output_file", "to_namespace"])]
    pub rollback: Option<PathBuf>,
    /// The last step: store everything as v2 and take v1 away. No rollback after this
    #[arg(long, conflicts_with_all = ["apply", "serve_both", "rollback", "files", "local", "remote", "mapping", "output_file", "to_namespace", "backup"])]
    pub finish: bool,
}

pub fn run(target: &TargetArgs, args: &MigrateArgs) -> CommandResult {
    if let Some(path) = &args.rollback {
        let saved_backup = backup::load_backup(path)?;
        let done = block_on(async {
            backup::rollback(&cluster::cluster_client(target).await?, &saved_backup).await
        })?;
        print_notes(&done);
        return print_text(&format!(
            "{} v1 objects are back as {} has them\n",
            saved_backup.objects.len(),
            path.display()
        ));
    }
    if args.finish {
        let done = block_on(async { definitions::finish(&cluster::cluster_client(target).await?).await })?;
        print_notes(&done);
        return print_text("everything is v2\n");
    }
    if args.serve_both {
        let done = block_on(async {
            let client = cluster::cluster_client(target).await?;
            let old = backup::read_v1(&client).await?;
            let definitions = definitions::read_definitions(&client).await?;
            note_backup(&backup::save_backup(args.backup.as_ref(), &definitions, &old)?);
            definitions::serve_both(&client).await
        })?;
        print_notes(&done);
        return print_text("v1 and v2 are served\n");
    }
    let old = if args.files.is_empty() {
        block_on(async { backup::read_v1(&cluster::cluster_client(target).await?).await })?
    } else {
        let saved = saved_objects::read_files(&args.files)?;
        print_notes(
            &saved.unreadable.iter().map(|u| format!("{}: {}", u.file, u.object)).collect::<Vec<_>>(),
        );
        saved.old
    };
    let done = migrate_objects(args, &old)?;
    print_notes(&done.notes);
    let text = render_yaml(&done.objects)?;
    match &args.output_file {
        Some(path) => std::fs::write(path, &text)
            .map_err(|e| CommandError::new(format!("cannot write {}", path.display())).because(e))?,
        None if !args.apply => {
            print_text(&text)?;
        }
        None => {}
    }
    if args.apply {
        note_backup(&backup::save_backup(args.backup.as_ref(), &[], &old)?);
        let written = block_on(async {
            let client = cluster::cluster_client(target).await?;
            backup::write_objects(&client, &done.objects).await
        })?;
        print_notes(&written);
        return print_text(&format!("{} objects are v2 now\n", written.len()));
    }
    Ok(0)
}

fn note_backup(backup: &Path) {
    print_notes(&[format!(
        "what is there now is saved in {0}; back with `purelbctl migrate --rollback {0}`",
        backup.display()
    )]);
}

/// The converted objects, and what the operator should know about them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MigratedObjects {
    pub objects: Vec<Value>,
    pub notes: Vec<String>,
}

/// Converts every object, or names all that stand in the way.
pub fn migrate_objects(args: &MigrateArgs, old: &[SourcedObject<Value>]) -> CommandResult<MigratedObjects> {
    if old.is_empty() {
        return Err(CommandError::new("there are no v1 ServiceGroups or LBNodeAgents (apiVersion purelb.io/v1)")
            .next("save them with `kubectl get servicegroups.v1.purelb.io,lbnodeagents.v1.purelb.io -A -o yaml >v1.yaml`"));
    }
    let decisions = AnnounceDecisions::read(args, old)?;
    let mut done = MigratedObjects::default();
    let mut undecided = Vec::new();
    for origin in old {
        let decision = if convert::needs_decision(&origin.object) {
            match decisions.of(&origin.object)? {
                Some(decision) => decision,
                None => {
                    undecided.push(object_name(&origin.object));
                    continue;
                }
            }
        } else {
            AnnounceMode::Local
        };
        let (mut object, notes) = convert(&origin.object, decision).map_err(|problem| {
            CommandError::new(format!("{}: {problem}", origin.file))
                .next("mend the object, then migrate again")
        })?;
        object["metadata"]["annotations"][MIGRATED_FROM] = object_name(&origin.object).into();
        if let Some(namespace) = &args.to_namespace {
            object["metadata"]["namespace"] = namespace.as_str().into();
            let name = object_name(&object);
            if let Some(other) =
                done.objects.iter().find(|o| o["kind"] == object["kind"] && object_name(o) == name)
            {
                let from = &other["metadata"]["annotations"][MIGRATED_FROM];
                let what = format!("{} and {from} would both become {name}", object_name(&origin.object));
                return Err(CommandError::new(what)
                    .next("rename one of them first, or migrate them from files, one namespace at a time"));
            }
        }
        done.objects.push(object);
        done.notes.extend(notes);
    }
    if undecided.is_empty() {
        return Ok(done);
    }
    Err(CommandError::new(format!("local or remote? Undecided: {}", undecided.join(", "))).next(
        "local: one elected node has the address on a real interface; remote: every node has it on the dummy interface, for routing\n\
         give --local, --remote, or --mapping FILE with lines like `name: local`",
    ))
}

/// Where the decision for a group comes from.
struct AnnounceDecisions {
    all: Option<AnnounceMode>,
    mapping: BTreeMap<String, AnnounceMode>,
    ask: bool,
}

impl AnnounceDecisions {
    fn read(args: &MigrateArgs, old: &[SourcedObject<Value>]) -> CommandResult<Self> {
        let all = match (args.local, args.remote) {
            (true, _) => Some(AnnounceMode::Local),
            (_, true) => Some(AnnounceMode::Remote),
            _ => None,
        };
        let mapping =
            args.mapping.as_deref().map(|path| read_mapping(path, old)).transpose()?.unwrap_or_default();
        let ask = std::io::stdin().is_terminal() && !args.files.iter().any(|f| f.as_os_str() == "-");
        Ok(Self { all, mapping, ask })
    }

    fn of(&self, group: &Value) -> CommandResult<Option<AnnounceMode>> {
        let full = object_name(group);
        let name = full.rsplit('/').next().unwrap_or(&full);
        let mapped = self.mapping.get(&full).or_else(|| self.mapping.get(name)).copied();
        match mapped.or(self.all) {
            None if self.ask => ask_operator(&full, group).map(Some),
            decided => Ok(decided),
        }
    }
}

/// `name: local` or `namespace/name: remote`; a name that is no group's is an error,
/// since it is most likely a typing mistake that would change what another group gets.
fn read_mapping(path: &Path, old: &[SourcedObject<Value>]) -> CommandResult<BTreeMap<String, AnnounceMode>> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|e| CommandError::new(format!("cannot read the mapping {file}")).because(e))?;
    let usage = "write one line per group: `name: local` or `namespace/name: remote`";
    let known: Vec<String> = old.iter().map(|o| object_name(&o.object)).collect();
    let mut found = BTreeMap::new();
    for document in parse_documents(&file, &text)? {
        let Value::Object(map) = document else {
            return Err(CommandError::new(format!("{file} is not a mapping")).next(usage));
        };
        for (name, value) in map {
            let decision = match value.as_str() {
                Some("local") => AnnounceMode::Local,
                Some("remote") => AnnounceMode::Remote,
                _ => {
                    return Err(CommandError::new(format!(
                        "{file}: {name}: {value} is neither local nor remote"
                    ))
                    .next(usage));
                }
            };
            let short = |k: &String| k.rsplit('/').next().unwrap_or(k).to_owned();
            if !known.iter().any(|k| *k == name || short(k) == name) {
                let near = did_you_mean(&name, known.iter().map(String::as_str))
                    .map(|n| format!("did you mean {n}?"));
                let what = format!("{file}: there is no v1 ServiceGroup {name}");
                return Err(CommandError::new(what)
                    .next(near.unwrap_or_else(|| format!("there are: {}", known.join(", ")))));
            }
            found.insert(name, decision);
        }
    }
    Ok(found)
}

/// On a terminal only; the question goes where the answers come from, not into the output.
fn ask_operator(name: &str, group: &Value) -> CommandResult<AnnounceMode> {
    let mut err = std::io::stderr();
    let pools = convert::pool_texts(group).join(", ");
    let mut line = String::new();
    loop {
        write!(err, "ServiceGroup {name} ({pools}): announce [l]ocal or [r]emote? ")?;
        err.flush()?;
        line.clear();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            return Err(CommandError::new(format!("no answer for ServiceGroup {name}"))
                .next("give --local, --remote or --mapping FILE"));
        }
        match line.trim() {
            "l" | "local" => return Ok(AnnounceMode::Local),
            "r" | "remote" => return Ok(AnnounceMode::Remote),
            _ => {}
        }
    }
}

/// All objects as one YAML stream.
pub fn render_yaml(objects: &[Value]) -> CommandResult<String> {
    let texts = objects.iter().map(table::to_yaml).collect::<CommandResult<Vec<String>>>()?;
    Ok(texts.iter().map(|t| format!("---\n{t}")).collect())
}

#[cfg(test)]
mod tests;
