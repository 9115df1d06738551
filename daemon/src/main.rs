//! `purelbd`: reads what it is told and starts the daemon.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use purelbd::app;
use purelbd::config::{self, Sources};
use purelbd::host::{logging, memory};
use purelbd::netlink::{AddressOwnership, withdraw_all};

/// Puts the addresses of Kubernetes Services on this node's interfaces.
#[derive(Debug, Parser)]
#[command(name = "purelbd", version)]
struct Flags {
    /// Configuration file; drop-ins are read from the directory beside it (FILE.d with
    /// the extension replaced).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the configuration, say what is wrong with it, and end.
    #[arg(long)]
    check_config: bool,
    /// Remove every address of purelb from this node, without asking anybody, and end.
    #[arg(long)]
    withdraw: bool,
    /// The Node's name in the cluster [default: this host's name].
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// Any setting of the configuration file.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("give SECTION.KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.to_owned()))
}

fn main() -> ExitCode {
    match run(Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("purelbd: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: Flags) -> Result<()> {
    let mut settings = flags.settings;
    settings.extend(flags.node_name.map(|name| ("node.name".to_owned(), name)));
    let sources = Sources::of_process(flags.config, settings);
    if flags.withdraw {
        return withdraw(&sources);
    }
    let loaded = config::load(&sources)?;
    for warning in &loaded.warnings {
        eprintln!("purelbd: {warning}");
    }
    if flags.check_config {
        let files: Vec<_> = loaded.files.iter().map(|f| f.display().to_string()).collect();
        let node = loaded.config.node_name()?;
        eprintln!("purelbd: the configuration is good (node {node}; files: {})", files.join(", "));
        return Ok(());
    }
    memory::limit_heap();
    let log = logging::start(&loaded.config.log)?;
    // One thread: what is decided is decided in one place, and memory stays small.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(app::run(loaded, sources, log));
    // A request that hangs must not keep the process from ending.
    runtime.shutdown_background();
    ended
}

/// Works with a broken configuration, too: it is for emergencies.
fn withdraw(sources: &Sources) -> Result<()> {
    let config = config::load(sources).map(|loaded| loaded.config).unwrap_or_else(|error| {
        eprintln!("purelbd: {error}; withdrawing with the built-in settings");
        config::Config::default()
    });
    let marks = AddressOwnership::open(&config.network.marks.into(), &config.paths.runtime)
        .context("telling our addresses from others'")?;
    let done = withdraw_all(&marks);
    eprintln!("purelbd: {done}");
    if !done.errors.is_empty() {
        bail!("not everything could be removed");
    }
    Ok(())
}
