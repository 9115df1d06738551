//! `support-bundle`: what support asks for first, in one archive.
//!
//! Collected best as can be: what is missing is said in the archive itself. Nothing
//! secret goes in: settings come from the daemon, which hides them, and objects are
//! Leases, groups, agents and Services, never Secrets.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use purelb_proto::control::v1 as pb;
use serde::Serialize;

use crate::cli::{BundleArgs, Target};
use crate::connect::{Client, refused};
use crate::error::{Failure, Outcome};
use crate::run::{note, say};
use crate::{cluster, get, live, rows, status, table};

struct Archive {
    file: tar::Builder<std::fs::File>,
    missing: Vec<String>,
}

pub async fn run(target: &Target, args: &BundleArgs) -> Outcome {
    let stamp = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    let path =
        args.output_file.clone().unwrap_or_else(|| PathBuf::from(format!("purelb-support-{stamp}.tar")));
    // Logs and objects of everybody: for nobody but the one who asked.
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let file = file.map_err(|e| {
        Failure::new(format!("cannot write {}", path.display()))
            .because(e)
            .next("name another with --output-file")
    })?;
    let mut archive = Archive { file: tar::Builder::new(file), missing: Vec::new() };
    let versions = serde_json::json!({
        "purelbctl": env!("CARGO_PKG_VERSION"),
        "kernel": std::fs::read_to_string("/proc/version").unwrap_or_default().trim(),
        "collected": stamp,
    });
    archive.put("versions.json", &table::json(&versions)?)?;
    match live::one(target).await {
        Ok(mut client) => daemon(&mut archive, &mut client).await?,
        Err(failure) => archive.missing.push(format!("daemon: {failure}")),
    }
    host(&mut archive, args)?;
    match cluster::client(target).await {
        Ok(client) => match cluster::everything(&client, &target.install_namespace).await {
            Ok(saved) => objects(&mut archive, &saved)?,
            Err(failure) => archive.missing.push(format!("cluster: {failure}")),
        },
        Err(failure) => archive.missing.push(format!("cluster: {failure}")),
    }
    let missing = archive.missing.clone();
    archive.put("missing.txt", &missing.iter().map(|m| format!("{m}\n")).collect::<String>())?;
    archive.file.finish()?;
    note(&missing.iter().map(|m| format!("left out: {m}")).collect::<Vec<_>>());
    say(&format!("{}\n", path.display()))
}

async fn daemon(archive: &mut Archive, client: &mut Client) -> Outcome<()> {
    let status = status::ask(client).await;
    archive.keep("status.json", status)?;
    let vips = get::vips(client).await;
    archive.keep("vips.json", vips)?;
    let members = client.list_members(pb::ListMembersRequest {}).await.map_err(|s| refused(&s));
    let members =
        members.map(|m| m.into_inner().members.into_iter().map(rows::Member::from).collect::<Vec<_>>());
    archive.keep("members.json", members)?;
    let events = client.list_events(pb::ListEventsRequest::default()).await.map_err(|s| refused(&s));
    let events = events.map(|e| e.into_inner().events.into_iter().map(rows::Event::from).collect::<Vec<_>>());
    archive.keep("events.json", events)?;
    let config = client.get_config(pb::GetConfigRequest {}).await.map_err(|s| refused(&s));
    let config = config.map(|c| {
        let all = c.into_inner().settings.into_iter();
        all.map(|s| rows::Setting { key: s.key, value: s.value, source: s.source }).collect::<Vec<_>>()
    });
    archive.keep("config.json", config)
}

fn host(archive: &mut Archive, args: &BundleArgs) -> Outcome<()> {
    let since = format!("-{}s", args.since.as_secs());
    let journal = ["-u", "purelbd", "--since", &since, "--no-pager", "-o", "short-iso-precise"];
    archive.command("journal.txt", "journalctl", &journal)?;
    archive.command("addresses.txt", "ip", &["-details", "address"])?;
    archive.command("routes.txt", "ip", &["route", "show", "table", "all"])?;
    archive.command("neighbours.txt", "ip", &["neighbour"])
}

fn objects(archive: &mut Archive, saved: &crate::saved::Saved) -> Outcome<()> {
    archive.put("leases.yaml", &table::yaml(&saved.leases)?)?;
    archive.put("services.yaml", &table::yaml(&saved.services)?)?;
    let groups: Vec<_> = saved.groups.iter().map(|g| &g.object).collect();
    archive.put("servicegroups.yaml", &table::yaml(&groups)?)?;
    let agents: Vec<_> = saved.agents.iter().map(|a| &a.object).collect();
    archive.put("lbnodeagents.yaml", &table::yaml(&agents)?)
}

impl Archive {
    fn keep<T: Serialize>(&mut self, name: &str, found: Outcome<T>) -> Outcome<()> {
        match found {
            Ok(value) => self.put(name, &table::json(&value)?),
            Err(failure) => {
                self.missing.push(format!("{name}: {failure}"));
                Ok(())
            }
        }
    }

    fn command(&mut self, name: &str, program: &str, arguments: &[&str]) -> Outcome<()> {
        match Command::new(program).args(arguments).output() {
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stdout).into_owned()
                    + &String::from_utf8_lossy(&output.stderr);
                self.put(name, &text)
            }
            Err(e) => {
                self.missing.push(format!("{name}: {program}: {e}"));
                Ok(())
            }
        }
    }

    fn put(&mut self, name: &str, text: &str) -> Outcome<()> {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default());
        Ok(self.file.append_data(&mut header, Path::new("purelb-support").join(name), text.as_bytes())?)
    }
}
