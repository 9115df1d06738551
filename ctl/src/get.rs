//! `get`: lists, once or on and on.

use std::time::Duration;

use purelb_proto::control::v1 as pb;

use crate::cli::{Format, GetArgs, Noun, Target};
use crate::connect::{Client, refused};
use crate::error::{Outcome, code};
use crate::live::{self, Asked};
use crate::paint::Paint;
use crate::rows::{self, On};
use crate::run::{note, say};
use crate::select::Selection;
use crate::table::{self, Row};

const LOOK: Duration = Duration::from_secs(1);

pub async fn run(target: &Target, args: &GetArgs, paint: Paint) -> Outcome {
    match args.noun {
        Noun::Members => Get { target, args, paint }.run(members).await,
        Noun::Vips => Get { target, args, paint }.run(vips).await,
        Noun::Services => Get { target, args, paint }.run(services).await,
        Noun::Pools => Get { target, args, paint }.run(pools).await,
        Noun::Subnets => Get { target, args, paint }.run(subnets).await,
        Noun::Events => Get { target, args, paint }.run(events).await,
    }
}

async fn members(client: &mut Client) -> Outcome<Vec<rows::Member>> {
    let answer = client.list_members(pb::ListMembersRequest {}).await.map_err(|s| refused(&s))?;
    Ok(answer.into_inner().members.into_iter().map(Into::into).collect())
}

pub async fn vips(client: &mut Client) -> Outcome<Vec<rows::Vip>> {
    let answer = client.list_vips(pb::ListVipsRequest::default()).await.map_err(|s| refused(&s))?;
    Ok(answer.into_inner().vips.into_iter().map(Into::into).collect())
}

async fn services(client: &mut Client) -> Outcome<Vec<rows::Service>> {
    Ok(rows::services(&vips(client).await?))
}

async fn pools(client: &mut Client) -> Outcome<Vec<rows::Pool>> {
    let answer = client.list_pools(pb::ListPoolsRequest {}).await.map_err(|s| refused(&s))?;
    Ok(answer.into_inner().pools.into_iter().map(Into::into).collect())
}

async fn subnets(client: &mut Client) -> Outcome<Vec<rows::Subnet>> {
    let answer = client.list_subnets(pb::ListSubnetsRequest {}).await.map_err(|s| refused(&s))?;
    Ok(answer.into_inner().subnets.into_iter().map(Into::into).collect())
}

async fn events(client: &mut Client) -> Outcome<Vec<rows::Event>> {
    let answer = client.list_events(pb::ListEventsRequest::default()).await.map_err(|s| refused(&s))?;
    Ok(answer.into_inner().events.into_iter().map(Into::into).collect())
}

struct Get<'a> {
    target: &'a Target,
    args: &'a GetArgs,
    paint: Paint,
}

impl Get<'_> {
    async fn run<R, F>(&self, ask: F) -> Outcome
    where
        R: Row + Clone + PartialEq,
        F: AsyncFn(&mut Client) -> Outcome<Vec<R>>,
    {
        let mut asked = live::every(self.target).await?;
        if self.target.all {
            return self
                .follow::<On<R>>(self.selection::<On<R>>()?, async || {
                    let mut failed = Vec::new();
                    let mut all = Vec::new();
                    for Asked { node, client } in &mut asked {
                        let found = match client {
                            Ok(client) => ask(client).await,
                            Err(failure) => Err(failure.clone()),
                        };
                        match found {
                            Ok(rows) => all.extend(rows.into_iter().map(|row| On { on: node.clone(), row })),
                            Err(failure) => failed.push(format!("{node}: {failure}")),
                        }
                    }
                    Ok((all, failed))
                })
                .await;
        }
        let mut client = asked.remove(0).client?;
        self.follow::<R>(self.selection::<R>()?, async || Ok((ask(&mut client).await?, Vec::new()))).await
    }

    fn selection<R: Row>(&self) -> Outcome<Selection> {
        Selection::new::<R>(self.args, self.target.namespace.as_deref())
    }

    /// Prints what there is and, with `--watch`, every row that is new or changed.
    async fn follow<R: Row + Clone + PartialEq>(
        &self,
        selection: Selection,
        mut ask: impl AsyncFnMut() -> Outcome<(Vec<R>, Vec<String>)>,
    ) -> Outcome {
        let format = self.args.output.output;
        let (rows, failed) = ask().await?;
        note(&failed);
        let mut before = selection.apply(rows);
        if !self.args.watch {
            say(&table::list(&before, format, !self.args.output.no_headers, self.paint)?)?;
            // A script asks for one thing by its name and looks at the exit code.
            let missing: Vec<String> =
                selection.missing(&before).into_iter().map(|name| format!("{name} is not there")).collect();
            note(&missing);
            return Ok(if failed.is_empty() && missing.is_empty() { 0 } else { code::FAILED });
        }
        let lines = table::lines(&before, format, !self.args.output.no_headers);
        let widths = table::widths(&lines);
        say(&match format {
            Format::Table | Format::Wide => table::align(&lines, &widths, self.paint),
            _ => one_by_one(&before, format)?,
        })?;
        loop {
            tokio::time::sleep(LOOK).await;
            let (rows, _) = ask().await?;
            let now = selection.apply(rows);
            let changed: Vec<R> =
                now.iter().filter(|r| !before.iter().any(|b| same(b, r))).cloned().collect();
            say(&match format {
                Format::Table | Format::Wide => {
                    let lines = table::lines(&changed, format, false);
                    table::align(&lines, &widths, self.paint)
                }
                _ => one_by_one(&changed, format)?,
            })?;
            before = now;
        }
    }
}

/// As shown: what only counts down is no change.
fn same<R: Row>(a: &R, b: &R) -> bool {
    let shown = |r: &R| {
        let columns = R::columns();
        let cells = r.cells().into_iter().zip(columns);
        cells.filter(|(_, c)| c.name != "EXPIRES").map(|(cell, _)| cell.text).collect::<Vec<_>>()
    };
    shown(a) == shown(b)
}

/// A stream of documents: one per line in JSON, one per document in YAML.
fn one_by_one<R: Row>(rows: &[R], format: Format) -> Outcome<String> {
    let mut out = String::new();
    for row in rows {
        out.push_str(&match format {
            Format::Json => serde_json::to_string(row).map(|t| t + "\n").unwrap_or_default(),
            Format::Yaml => format!("---\n{}", table::yaml(row)?),
            _ => row.name() + "\n",
        });
    }
    Ok(out)
}
