//! `config`: the settings a daemon runs with.

use clap::Args;
use purelb_proto::control::v1 as pb;

use crate::cli::{OutputArgs, TargetArgs};
use crate::client::daemon_client::call_error;
use crate::client::daemon_connection::connect_one;
use crate::error::CommandResult;
use crate::output::print_text;
use crate::output::rows;
use crate::output::table;
use crate::output::text_painter::TextPainter;

#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(flatten)]
    pub output: OutputArgs,
}

pub async fn run(target: &TargetArgs, args: &ConfigArgs, paint: TextPainter) -> CommandResult {
    let mut client = connect_one(target).await?;
    let answer = client.get_config(pb::GetConfigRequest {}).await.map_err(|s| call_error(&s))?;
    let settings = answer.into_inner().settings.into_iter();
    let rows: Vec<rows::SettingRow> =
        settings.map(|s| rows::SettingRow { key: s.key, value: s.value, source: s.source }).collect();
    print_text(&table::render_list(&rows, args.output.output, !args.output.no_headers, paint)?)
}
