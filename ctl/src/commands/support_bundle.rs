//! `support-bundle`: what support asks for first, in one archive.
//!
//! Collected best as can be: what is missing is said in the archive itself. Nothing
//! secret goes in: settings come from the daemon, which hides them, and objects are
//! Leases, groups, agents and Services, never Secrets.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use purelb_core::durations;
use purelb_proto::control::v1 as pb;
use serde::Serialize;

use crate::cli::TargetArgs;
use crate::client::cluster;
use crate::client::daemon_client::{DaemonClient, call_error};
use crate::client::daemon_connection::connect_one;
use crate::commands::{get, status};
use crate::error::{CommandError, CommandResult};
use crate::offline::saved_objects::SavedObjects;
use crate::output::{print_notes, print_text};
use crate::output::{rows, table};

#[derive(Debug, Args)]
pub struct SupportBundleArgs {
    /// The archive (.tar) to write
    #[arg(long, value_name = "FILE")]
    pub output_file: Option<PathBuf>,
    /// How much of the journal to include
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = durations::parse)]
    pub since: Duration,
}

struct BundleArchive {
    file: tar::Builder<std::fs::File>,
    missing: Vec<String>,
}

pub async fn run(target: &TargetArgs, args: &SupportBundleArgs) -> CommandResult {
    let stamp = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    let path =
        args.output_file.clone().unwrap_or_else(|| PathBuf::from(format!("purelb-support-{stamp}.tar")));
    // Logs and objects of everybody: for nobody but the one who asked.
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let file = file.map_err(|e| {
        CommandError::new(format!("cannot write {}", path.display()))
            .because(e)
            .next("name another with --output-file")
    })?;
    let mut archive = BundleArchive { file: tar::Builder::new(file), missing: Vec::new() };
    let versions = serde_json::json!({
        "purelbctl": env!("CARGO_PKG_VERSION"),
        "kernel": std::fs::read_to_string("/proc/version").unwrap_or_default().trim(),
        "collected": stamp,
    });
    archive.add_text("versions.json", &table::to_json(&versions)?)?;
    match connect_one(target).await {
        Ok(mut client) => add_daemon(&mut archive, &mut client).await?,
        Err(failure) => archive.missing.push(format!("daemon: {failure}")),
    }
    add_host(&mut archive, args)?;
    match cluster::cluster_client(target).await {
        Ok(client) => match cluster::read_all_objects(&client, &target.install_namespace).await {
            Ok(saved) => add_objects(&mut archive, &saved)?,
            Err(failure) => archive.missing.push(format!("cluster: {failure}")),
        },
        Err(failure) => archive.missing.push(format!("cluster: {failure}")),
    }
    let missing = archive.missing.clone();
    archive.add_text("missing.txt", &missing.iter().map(|m| format!("{m}\n")).collect::<String>())?;
    archive.file.finish()?;
    print_notes(&missing.iter().map(|m| format!("left out: {m}")).collect::<Vec<_>>());
    print_text(&format!("{}\n", path.display()))
}

async fn add_daemon(archive: &mut BundleArchive, client: &mut DaemonClient) -> CommandResult<()> {
    let status = status::fetch_status(client).await;
    archive.add_answer("status.json", status)?;
    let vips = get::list_vips(client).await;
    archive.add_answer("vips.json", vips)?;
    let members = client.list_members(pb::ListMembersRequest {}).await.map_err(|s| call_error(&s));
    let members =
        members.map(|m| m.into_inner().members.into_iter().map(rows::MemberRow::from).collect::<Vec<_>>());
    archive.add_answer("members.json", members)?;
    let events = client.list_events(pb::ListEventsRequest::default()).await.map_err(|s| call_error(&s));
    let events =
        events.map(|e| e.into_inner().events.into_iter().map(rows::EventRow::from).collect::<Vec<_>>());
    archive.add_answer("events.json", events)?;
    let config = client.get_config(pb::GetConfigRequest {}).await.map_err(|s| call_error(&s));
    let config = config.map(|c| {
        let all = c.into_inner().settings.into_iter();
        all.map(|s| rows::SettingRow { key: s.key, value: s.value, source: s.source }).collect::<Vec<_>>()
    });
    archive.add_answer("config.json", config)
}

fn add_host(archive: &mut BundleArchive, args: &SupportBundleArgs) -> CommandResult<()> {
    let since = format!("-{}s", args.since.as_secs());
    let journal = ["-u", "purelbd", "--since", &since, "--no-pager", "-o", "short-iso-precise"];
    archive.add_command("journal.txt", "journalctl", &journal)?;
    archive.add_command("addresses.txt", "ip", &["-details", "address"])?;
    archive.add_command("routes.txt", "ip", &["route", "show", "table", "all"])?;
    archive.add_command("neighbours.txt", "ip", &["neighbour"])
}

fn add_objects(archive: &mut BundleArchive, saved: &SavedObjects) -> CommandResult<()> {
    archive.add_text("leases.yaml", &table::to_yaml(&saved.leases)?)?;
    archive.add_text("services.yaml", &table::to_yaml(&saved.services)?)?;
    let groups: Vec<_> = saved.groups.iter().map(|g| &g.object).collect();
    archive.add_text("servicegroups.yaml", &table::to_yaml(&groups)?)?;
    let agents: Vec<_> = saved.agents.iter().map(|a| &a.object).collect();
    archive.add_text("lbnodeagents.yaml", &table::to_yaml(&agents)?)
}

impl BundleArchive {
    fn add_answer<T: Serialize>(&mut self, name: &str, found: CommandResult<T>) -> CommandResult<()> {
        match found {
            Ok(value) => self.add_text(name, &table::to_json(&value)?),
            Err(failure) => {
                self.missing.push(format!("{name}: {failure}"));
                Ok(())
            }
        }
    }

    fn add_command(&mut self, name: &str, program: &str, arguments: &[&str]) -> CommandResult<()> {
        match Command::new(program).args(arguments).output() {
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stdout).into_owned()
                    + &String::from_utf8_lossy(&output.stderr);
                self.add_text(name, &text)
            }
            Err(e) => {
                self.missing.push(format!("{name}: {program}: {e}"));
                Ok(())
            }
        }
    }

    fn add_text(&mut self, name: &str, text: &str) -> CommandResult<()> {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default());
        Ok(self.file.append_data(&mut header, Path::new("purelb-support").join(name), text.as_bytes())?)
    }
}
