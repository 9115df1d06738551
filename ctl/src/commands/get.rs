//! `get`: lists, once or followed with `--watch`.

mod row_selection;

use std::time::Duration;

use clap::{Args, ValueEnum};

use purelb_proto::control::v1 as pb;

use crate::cli::{OutputArgs, OutputFormat, TargetArgs};
use crate::client::daemon_client::{DaemonClient, call_error};
use crate::client::daemon_connection::{DaemonConnection, connect_all};
use crate::error::{CommandResult, exit_code};
use crate::output::rows::{self, NodeRow};
use crate::output::table::{self, TableRow};
use crate::output::text_painter::TextPainter;
use crate::output::{print_notes, print_text};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GetNoun {
    #[value(alias = "member", alias = "nodes")]
    Members,
    #[value(alias = "vip")]
    Vips,
    #[value(alias = "service", alias = "svc")]
    Services,
    #[value(alias = "pool")]
    Pools,
    #[value(alias = "subnet")]
    Subnets,
    #[value(alias = "event")]
    Events,
}

#[derive(Debug, Args)]
pub struct GetArgs {
    /// What to list
    #[arg(value_enum)]
    pub noun: GetNoun,
    /// Only these (addresses, names, namespace/name)
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Go on and print what changes
    #[arg(short, long)]
    pub watch: bool,
    /// Only rows where COLUMN=VALUE (or COLUMN!=VALUE); several are joined by "and"
    #[arg(short = 'l', long = "selector", value_name = "COLUMN=VALUE", value_delimiter = ',')]
    pub selectors: Vec<String>,
    /// Sort by this column; a leading "-" turns the order round
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    pub sort_by: Option<String>,
}

pub use row_selection::RowSelection;

const WATCH_INTERVAL: Duration = Duration::from_secs(1);

pub async fn run(target: &TargetArgs, args: &GetArgs, paint: TextPainter) -> CommandResult {
    match args.noun {
        GetNoun::Members => GetCommand { target, args, paint }.run(list_members).await,
        GetNoun::Vips => GetCommand { target, args, paint }.run(list_vips).await,
        GetNoun::Services => GetCommand { target, args, paint }.run(list_services).await,
        GetNoun::Pools => GetCommand { target, args, paint }.run(list_pools).await,
        GetNoun::Subnets => GetCommand { target, args, paint }.run(list_subnets).await,
        GetNoun::Events => GetCommand { target, args, paint }.run(list_events).await,
    }
}

async fn list_members(client: &mut DaemonClient) -> CommandResult<Vec<rows::MemberRow>> {
    let answer = client.list_members(pb::ListMembersRequest {}).await.map_err(|s| call_error(&s))?;
    Ok(answer.into_inner().members.into_iter().map(Into::into).collect())
}

pub async fn list_vips(client: &mut DaemonClient) -> CommandResult<Vec<rows::VipRow>> {
    let answer = client.list_vips(pb::ListVipsRequest::default()).await.map_err(|s| call_error(&s))?;
    Ok(answer.into_inner().vips.into_iter().map(Into::into).collect())
}

async fn list_services(client: &mut DaemonClient) -> CommandResult<Vec<rows::ServiceRow>> {
    Ok(rows::group_by_service(&list_vips(client).await?))
}

async fn list_pools(client: &mut DaemonClient) -> CommandResult<Vec<rows::PoolRow>> {
    let answer = client.list_pools(pb::ListPoolsRequest {}).await.map_err(|s| call_error(&s))?;
    Ok(answer.into_inner().pools.into_iter().map(Into::into).collect())
}

async fn list_subnets(client: &mut DaemonClient) -> CommandResult<Vec<rows::SubnetRow>> {
    let answer = client.list_subnets(pb::ListSubnetsRequest {}).await.map_err(|s| call_error(&s))?;
    Ok(answer.into_inner().subnets.into_iter().map(Into::into).collect())
}

async fn list_events(client: &mut DaemonClient) -> CommandResult<Vec<rows::EventRow>> {
    let answer = client.list_events(pb::ListEventsRequest::default()).await.map_err(|s| call_error(&s))?;
    Ok(answer.into_inner().events.into_iter().map(Into::into).collect())
}

struct GetCommand<'a> {
    target: &'a TargetArgs,
    args: &'a GetArgs,
    paint: TextPainter,
}

impl GetCommand<'_> {
    async fn run<R, F>(&self, ask: F) -> CommandResult
    where
        R: TableRow + Clone + PartialEq,
        F: AsyncFn(&mut DaemonClient) -> CommandResult<Vec<R>>,
    {
        let mut asked = connect_all(self.target).await?;
        if self.target.all {
            return self
                .follow::<NodeRow<R>>(self.selection::<NodeRow<R>>()?, async || {
                    let mut failed = Vec::new();
                    let mut all = Vec::new();
                    for DaemonConnection { node, client } in &mut asked {
                        let found = match client {
                            Ok(client) => ask(client).await,
                            Err(failure) => Err(failure.clone()),
                        };
                        match found {
                            Ok(rows) => {
                                all.extend(rows.into_iter().map(|row| NodeRow { on: node.clone(), row }))
                            }
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

    fn selection<R: TableRow>(&self) -> CommandResult<RowSelection> {
        RowSelection::new::<R>(self.args, self.target.namespace.as_deref())
    }

    /// Prints what there is and, with `--watch`, every row that is new or changed.
    async fn follow<R: TableRow + Clone + PartialEq>(
        &self,
        selection: RowSelection,
        mut ask: impl AsyncFnMut() -> CommandResult<(Vec<R>, Vec<String>)>,
    ) -> CommandResult {
        let format = self.args.output.output;
        let (rows, failed) = ask().await?;
        print_notes(&failed);
        let mut before = selection.apply(rows);
        if !self.args.watch {
            print_text(&table::render_list(&before, format, !self.args.output.no_headers, self.paint)?)?;
            // A script asks for one thing by its name and looks at the exit code.
            let missing: Vec<String> =
                selection.missing(&before).into_iter().map(|name| format!("{name} is not there")).collect();
            print_notes(&missing);
            return Ok(if failed.is_empty() && missing.is_empty() { 0 } else { exit_code::FAILED });
        }
        let lines = table::table_lines(&before, format, !self.args.output.no_headers);
        let widths = table::column_widths(&lines);
        print_text(&match format {
            OutputFormat::Table | OutputFormat::Wide => table::align_columns(&lines, &widths, self.paint),
            _ => render_stream(&before, format)?,
        })?;
        loop {
            tokio::time::sleep(WATCH_INTERVAL).await;
            let (rows, _) = ask().await?;
            let now = selection.apply(rows);
            let changed: Vec<R> =
                now.iter().filter(|r| !before.iter().any(|b| shows_same(b, r))).cloned().collect();
            print_text(&match format {
                OutputFormat::Table | OutputFormat::Wide => {
                    let lines = table::table_lines(&changed, format, false);
                    table::align_columns(&lines, &widths, self.paint)
                }
                _ => render_stream(&changed, format)?,
            })?;
            before = now;
        }
    }
}

/// Whether two rows look the same, leaving out the column that only counts down.
fn shows_same<R: TableRow>(a: &R, b: &R) -> bool {
    let shown = |r: &R| {
        let columns = R::columns();
        let cells = r.cells().into_iter().zip(columns);
        cells.filter(|(_, c)| c.name != "EXPIRES").map(|(cell, _)| cell.text).collect::<Vec<_>>()
    };
    shown(a) == shown(b)
}

/// A stream of documents: one per line in JSON, one per document in YAML.
fn render_stream<R: TableRow>(rows: &[R], format: OutputFormat) -> CommandResult<String> {
    let mut out = String::new();
    for row in rows {
        out.push_str(&match format {
            OutputFormat::Json => serde_json::to_string(row).map(|t| t + "\n").unwrap_or_default(),
            OutputFormat::Yaml => format!("---\n{}", table::to_yaml(row)?),
            _ => row.name() + "\n",
        });
    }
    Ok(out)
}
