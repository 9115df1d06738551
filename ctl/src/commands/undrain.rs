//! `undrain`: lets a node take addresses again.

use clap::Args;
use purelb_proto::control::v1 as pb;

use crate::cli::TargetArgs;
use crate::client::daemon_client::call_error;
use crate::client::daemon_connection::{DaemonConnection, connect_all};
use crate::error::{CommandResult, exit_code};
use crate::output::{print_notes, print_text};

#[derive(Debug, Args)]
pub struct UndrainArgs {
    /// The node, as with --node; without it, this machine
    #[arg(value_name = "NODE")]
    pub name: Option<String>,
}

pub async fn run(target: &TargetArgs) -> CommandResult {
    let asked = connect_all(target).await?;
    let mut worst = 0;
    for DaemonConnection { node, client } in asked {
        let prefix = if node.is_empty() { String::new() } else { format!("{node}: ") };
        let done = match client {
            Ok(mut client) => {
                let node = if target.all { node.clone() } else { target.node.clone().unwrap_or_default() };
                client.undrain(pb::UndrainRequest { node }).await.map_err(|s| call_error(&s))
            }
            Err(failure) => Err(failure),
        };
        match done {
            Ok(answer) if answer.get_ref().was_draining => {
                print_text(&format!("{prefix}undrained: the node takes addresses again\n"))?;
            }
            Ok(_) => {
                print_text(&format!("{prefix}was not draining\n"))?;
            }
            Err(failure) if node.is_empty() => return Err(failure),
            Err(failure) => {
                print_notes(&[format!("{prefix}{failure}")]);
                worst = exit_code::FAILED;
            }
        }
    }
    Ok(worst)
}
