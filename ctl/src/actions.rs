//! Live `winner`, `explain`, `resync`, `config` and `version`.

use std::fmt::Write;

use purelb_proto::control::v1 as pb;
use serde::Serialize;

use crate::cli::{ConfigArgs, ExplainArgs, Format, ResyncArgs, Target, VersionArgs, WinnerArgs};
use crate::connect::refused;
use crate::error::{Failure, Outcome, code};
use crate::live::{self, Asked};
use crate::paint::Paint;
use crate::run::{note, say};
use crate::{explain, rows, table, winner};

pub async fn winner(target: &Target, args: &WinnerArgs, paint: Paint) -> Outcome {
    for ip in &args.ips {
        winner::parse_ip(ip)?;
    }
    let mut client = live::one(target).await?;
    let answer = client.winner(pb::WinnerRequest { ips: args.ips.clone() }).await.map_err(|s| refused(&s))?;
    let mut answers: Vec<winner::Answer> = answer.into_inner().results.into_iter().map(Into::into).collect();
    for answer in &mut answers {
        answer.order.retain(|place| !args.without.contains(&place.node));
        answer.winner = answer.order.first().map(|place| place.node.clone());
    }
    say(&winner::print(&answers, args.output, paint)?)
}

pub async fn explain(target: &Target, args: &ExplainArgs, paint: Paint) -> Outcome {
    use pb::explain_request::Target as T;
    let what = match (winner::parse_ip(&args.target), args.target.contains('/')) {
        (Ok(vip), _) => T::Ip(vip.to_string()),
        (Err(_), true) => T::Service(args.target.clone()),
        (Err(_), false) => {
            let what = format!("{:?} is neither an address nor a Service", args.target);
            return Err(Failure::new(what).next("write an IP address, or NAMESPACE/NAME of a Service"));
        }
    };
    let mut worst = 0;
    for Asked { node, client } in live::every(target).await? {
        let request = pb::ExplainRequest { target: Some(what.clone()) };
        let answer = match client {
            Ok(mut client) => client.explain(request).await.map_err(|s| refused(&s)),
            Err(failure) => Err(failure),
        };
        match answer {
            Ok(answer) => {
                if !node.is_empty() && matches!(args.output, Format::Table | Format::Wide) {
                    say(&format!("== {node}\n"))?;
                }
                say(&explain::print(&answer.into_inner().explanations, args.output, paint)?)?;
            }
            Err(failure) if node.is_empty() => return Err(failure),
            Err(failure) => {
                note(&[format!("{node}: {failure}")]);
                worst = code::FAILED;
            }
        }
    }
    Ok(worst)
}

#[derive(Serialize)]
struct Resynced {
    #[serde(skip_serializing_if = "String::is_empty")]
    node: String,
    added: Vec<String>,
    withdrawn: Vec<String>,
    changed: Vec<String>,
    announced: u32,
    settled: bool,
}

pub async fn resync(target: &Target, args: &ResyncArgs) -> Outcome {
    let (mut done, mut worst) = (Vec::new(), 0);
    for Asked { node, client } in live::every(target).await? {
        let answer = match client {
            Ok(mut client) => {
                // Empty for a daemon that was reached in another way than by its node's name.
                let node = if target.all { node.clone() } else { target.node.clone().unwrap_or_default() };
                client.resync(pb::ResyncRequest { node }).await.map_err(|s| refused(&s))
            }
            Err(failure) => Err(failure),
        };
        match answer {
            Ok(answer) => {
                let a = answer.into_inner();
                let (added, withdrawn, changed) = (a.added, a.withdrawn, a.changed);
                done.push(Resynced {
                    node,
                    added,
                    withdrawn,
                    changed,
                    announced: a.announced,
                    settled: a.settled,
                });
            }
            Err(failure) if node.is_empty() => return Err(failure),
            Err(failure) => {
                note(&[format!("{node}: {failure}")]);
                worst = code::FAILED;
            }
        }
    }
    say(&match (args.output, done.as_slice()) {
        (Format::Json, [one]) if !target.all => table::json(one)?,
        (Format::Json, many) => table::json(many)?,
        (Format::Yaml, [one]) if !target.all => table::yaml(one)?,
        (Format::Yaml, many) => table::yaml(many)?,
        (_, many) => many.iter().map(words).collect(),
    })?;
    Ok(worst)
}

fn words(r: &Resynced) -> String {
    let mut out = String::new();
    let prefix = if r.node.is_empty() { String::new() } else { format!("{}: ", r.node) };
    for change in &r.changed {
        let _ = writeln!(out, "{prefix}{change}");
    }
    let nothing = r.added.is_empty() && r.withdrawn.is_empty() && r.changed.is_empty();
    let changed = if nothing {
        "nothing had to change".to_owned()
    } else {
        format!(
            "{} added, {} withdrawn, {} with another reason",
            r.added.len(),
            r.withdrawn.len(),
            r.changed.len()
        )
    };
    let more = if r.settled { "" } else { "; more changes are coming in" };
    let _ = writeln!(
        out,
        "{prefix}listed and compared anew: {changed}; {} announcements sent{more}",
        r.announced
    );
    out
}

pub async fn config(target: &Target, args: &ConfigArgs, paint: Paint) -> Outcome {
    let mut client = live::one(target).await?;
    let answer = client.get_config(pb::GetConfigRequest {}).await.map_err(|s| refused(&s))?;
    let settings = answer.into_inner().settings.into_iter();
    let rows: Vec<rows::Setting> =
        settings.map(|s| rows::Setting { key: s.key, value: s.value, source: s.source }).collect();
    say(&table::list(&rows, args.output.output, !args.output.no_headers, paint)?)
}

#[derive(Serialize)]
struct Versions {
    client: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    daemon: Option<String>,
}

/// A daemon that does not answer has no version; that is said, and no error.
pub async fn version(target: &Target, args: &VersionArgs) -> Outcome {
    let daemon = match live::one(target).await {
        Ok(mut client) => crate::status::ask(&mut client).await.map(|s| s.version),
        Err(failure) => Err(failure),
    };
    let client = env!("CARGO_PKG_VERSION");
    let versions = Versions { client, daemon: daemon.as_ref().ok().cloned() };
    say(&match args.output {
        Format::Json => table::json(&versions)?,
        Format::Yaml => table::yaml(&versions)?,
        _ => match daemon {
            Ok(daemon) => format!("purelbctl {client}\npurelbd {daemon}\n"),
            Err(failure) => format!("purelbctl {client}\npurelbd (unknown: {})\n", failure.what),
        },
    })
}
