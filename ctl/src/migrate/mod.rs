//! `migrate`: v1 ServiceGroups and LBNodeAgents become v2.
//!
//! v1 has one kind of pool and lets each node find out whether an address is of its
//! subnet; v2 wants to know whether a group is local or remote. That decision is the
//! operator's: by flag, by a mapping file, or asked for on a terminal. Nothing is
//! guessed, and nothing reaches the cluster without `--apply`.

pub mod cluster;
mod convert;
pub mod definitions;

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;

use serde_json::Value;

use crate::cli::MigrateArgs;
use crate::error::{Failure, Outcome, did_you_mean};
use crate::saved::{Origin, documents, name_of};
use crate::table;

pub use convert::{Announce, convert};

pub use purelb_api::names::MIGRATED_FROM;

/// The converted objects, and what the operator should know about them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Migrated {
    pub objects: Vec<Value>,
    pub notes: Vec<String>,
}

/// Converts every object, or names all that stand in the way.
pub fn run(args: &MigrateArgs, old: &[Origin<Value>]) -> Outcome<Migrated> {
    if old.is_empty() {
        return Err(Failure::new("there are no v1 ServiceGroups or LBNodeAgents (apiVersion purelb.io/v1)")
            .next("save them with `kubectl get servicegroups.v1.purelb.io,lbnodeagents.v1.purelb.io -A -o yaml >v1.yaml`"));
    }
    let decisions = Decisions::read(args, old)?;
    let mut done = Migrated::default();
    let mut undecided = Vec::new();
    for origin in old {
        let decision = if convert::needs_decision(&origin.object) {
            match decisions.of(&origin.object)? {
                Some(decision) => decision,
                None => {
                    undecided.push(name_of(&origin.object));
                    continue;
                }
            }
        } else {
            Announce::Local
        };
        let (mut object, notes) = convert(&origin.object, decision).map_err(|problem| {
            Failure::new(format!("{}: {problem}", origin.file)).next("mend the object, then migrate again")
        })?;
        object["metadata"]["annotations"][MIGRATED_FROM] = name_of(&origin.object).into();
        if let Some(namespace) = &args.to_namespace {
            object["metadata"]["namespace"] = namespace.as_str().into();
            let name = name_of(&object);
            if let Some(other) =
                done.objects.iter().find(|o| o["kind"] == object["kind"] && name_of(o) == name)
            {
                let from = &other["metadata"]["annotations"][MIGRATED_FROM];
                let what = format!("{} and {from} would both become {name}", name_of(&origin.object));
                return Err(Failure::new(what)
                    .next("rename one of them first, or migrate them from files, one namespace at a time"));
            }
        }
        done.objects.push(object);
        done.notes.extend(notes);
    }
    if undecided.is_empty() {
        return Ok(done);
    }
    Err(Failure::new(format!("local or remote? Undecided: {}", undecided.join(", "))).next(
        "local: one elected node has the address on a real interface; remote: every node has it on the dummy interface, for routing\n\
         give --local, --remote, or --mapping FILE with lines like `name: local`",
    ))
}

/// Where the decision for a group comes from.
struct Decisions {
    all: Option<Announce>,
    mapping: BTreeMap<String, Announce>,
    ask: bool,
}

impl Decisions {
    fn read(args: &MigrateArgs, old: &[Origin<Value>]) -> Outcome<Self> {
        let all = match (args.local, args.remote) {
            (true, _) => Some(Announce::Local),
            (_, true) => Some(Announce::Remote),
            _ => None,
        };
        let mapping = args.mapping.as_deref().map(|path| mapping(path, old)).transpose()?.unwrap_or_default();
        let ask = std::io::stdin().is_terminal() && !args.files.iter().any(|f| f.as_os_str() == "-");
        Ok(Self { all, mapping, ask })
    }

    fn of(&self, group: &Value) -> Outcome<Option<Announce>> {
        let full = name_of(group);
        let name = full.rsplit('/').next().unwrap_or(&full);
        let mapped = self.mapping.get(&full).or_else(|| self.mapping.get(name)).copied();
        match mapped.or(self.all) {
            None if self.ask => ask(&full, group).map(Some),
            decided => Ok(decided),
        }
    }
}

/// `name: local` or `namespace/name: remote`; a name that is no group's is an error,
/// since it is most likely a typing mistake that would change what another group gets.
fn mapping(path: &Path, old: &[Origin<Value>]) -> Outcome<BTreeMap<String, Announce>> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|e| Failure::new(format!("cannot read the mapping {file}")).because(e))?;
    let usage = "write one line per group: `name: local` or `namespace/name: remote`";
    let known: Vec<String> = old.iter().map(|o| name_of(&o.object)).collect();
    let mut found = BTreeMap::new();
    for document in documents(&file, &text)? {
        let Value::Object(map) = document else {
            return Err(Failure::new(format!("{file} is not a mapping")).next(usage));
        };
        for (name, value) in map {
            let decision = match value.as_str() {
                Some("local") => Announce::Local,
                Some("remote") => Announce::Remote,
                _ => {
                    return Err(Failure::new(format!("{file}: {name}: {value} is neither local nor remote"))
                        .next(usage));
                }
            };
            let short = |k: &String| k.rsplit('/').next().unwrap_or(k).to_owned();
            if !known.iter().any(|k| *k == name || short(k) == name) {
                let near = did_you_mean(&name, known.iter().map(String::as_str))
                    .map(|n| format!("did you mean {n}?"));
                let what = format!("{file}: there is no v1 ServiceGroup {name}");
                return Err(Failure::new(what)
                    .next(near.unwrap_or_else(|| format!("there are: {}", known.join(", ")))));
            }
            found.insert(name, decision);
        }
    }
    Ok(found)
}

/// On a terminal only; the question goes where the answers come from, not into the output.
fn ask(name: &str, group: &Value) -> Outcome<Announce> {
    let mut err = std::io::stderr();
    let pools = convert::pool_texts(group).join(", ");
    let mut line = String::new();
    loop {
        write!(err, "ServiceGroup {name} ({pools}): announce [l]ocal or [r]emote? ")?;
        err.flush()?;
        line.clear();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            return Err(Failure::new(format!("no answer for ServiceGroup {name}"))
                .next("give --local, --remote or --mapping FILE"));
        }
        match line.trim() {
            "l" | "local" => return Ok(Announce::Local),
            "r" | "remote" => return Ok(Announce::Remote),
            _ => {}
        }
    }
}

/// All objects as one YAML stream.
pub fn yaml(objects: &[Value]) -> Outcome<String> {
    let texts = objects.iter().map(table::yaml).collect::<Outcome<Vec<String>>>()?;
    Ok(texts.iter().map(|t| format!("---\n{t}")).collect())
}

#[cfg(test)]
mod tests;
