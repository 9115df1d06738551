//! The command line, defined once: help, completion and man pages are made from it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use purelb_core::durations;

use crate::commands::config::ConfigArgs;
use crate::commands::drain::DrainArgs;
use crate::commands::explain::ExplainArgs;
use crate::commands::get::{GetArgs, GetNoun};
use crate::commands::migrate::MigrateArgs;
use crate::commands::node_kubeconfig::NodeKubeconfigArgs;
use crate::commands::resync::ResyncArgs;
use crate::commands::status::StatusArgs;
use crate::commands::support_bundle::SupportBundleArgs;
use crate::commands::top::TopArgs;
use crate::commands::undrain::UndrainArgs;
use crate::commands::validate::ValidateArgs;
use crate::commands::version::VersionArgs;
use crate::commands::winner::WinnerArgs;
use crate::error::{CommandError, CommandResult, exit_code};

pub const DEFAULT_SOCKET: &str = "/run/purelb/control.sock";

/// Ask and steer purelb: one node's daemon, all of them, or the cluster.
#[derive(Debug, Parser)]
#[command(name = "purelbctl", version, disable_help_subcommand = true, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub target: TargetArgs,
    #[command(subcommand)]
    pub command: Command,
}

/// Which daemon is asked, and how.
#[derive(Clone, Debug, Args)]
pub struct TargetArgs {
    /// Control socket of the daemon on this machine
    #[arg(long, global = true, env = "PURELB_SOCKET", value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
    /// Ask the daemon of this node over TLS; its address comes from its Lease
    #[arg(long, global = true, value_name = "NAME", conflicts_with = "all")]
    pub node: Option<String>,
    /// Ask the daemons of all nodes over TLS
    #[arg(long, global = true)]
    pub all: bool,
    /// Ask the daemon at this address over TLS, without looking into the cluster
    #[arg(long, global = true, value_name = "HOST:PORT", conflicts_with_all = ["all", "node"])]
    pub endpoint: Option<String>,
    /// Certificate authority of the daemons (PEM)
    #[arg(long, global = true, env = "PURELB_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Client certificate (PEM)
    #[arg(long, global = true, env = "PURELB_CERT", value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// Key of the client certificate (PEM)
    #[arg(long, global = true, env = "PURELB_KEY", value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Name expected in the daemon's certificate, where it is not the host asked
    #[arg(long, global = true, value_name = "NAME")]
    pub tls_name: Option<String>,
    /// Kubeconfig for everything that asks the cluster; several, separated by colons, are
    /// merged as kubectl does
    #[arg(long, global = true, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, where it is not the current one
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace purelb is installed in
    #[arg(long, global = true, env = "PURELB_NAMESPACE", value_name = "NAMESPACE",
        default_value = purelb_api::names::DEFAULT_NAMESPACE)]
    pub install_namespace: String,
    /// With `get vips`, `get services` and `get events`: only what concerns Services of this
    /// namespace. With everything else: the same as --install-namespace
    #[arg(short = 'n', long, global = true)]
    pub namespace: Option<String>,
    /// Give up on a single answer after this long
    #[arg(long, global = true, value_name = "TIME", default_value = "10s", value_parser = durations::parse)]
    pub request_timeout: Duration,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = ColorWhen::Auto)]
    pub color: ColorWhen,
}

impl Cli {
    /// Brings options that can be given in two ways into one form.
    ///
    /// Before `-n` selected Services it was the namespace of the installation, with every
    /// command. It still is with commands that do not list Services, so that older scripts
    /// keep their meaning; only lists of what belongs to Services read it as kubectl does.
    pub fn resolve(mut self) -> CommandResult<Self> {
        let chooses = matches!(
            &self.command,
            Command::Get(args) if matches!(args.noun, GetNoun::Vips | GetNoun::Services | GetNoun::Events)
        );
        if !chooses && let Some(namespace) = self.target.namespace.take() {
            self.target.install_namespace = namespace;
        }
        let named = match &mut self.command {
            Command::Drain(args) => args.name.take(),
            Command::Undrain(args) => args.name.take(),
            _ => None,
        };
        if let Some(name) = named {
            let TargetArgs { node, all, endpoint, .. } = &self.target;
            if node.is_some() || *all || endpoint.is_some() {
                let what = format!("{name} names a node, and so does --node, --all or --endpoint");
                return Err(CommandError::new(what).next("name it once").code(exit_code::CRITICAL));
            }
            self.target.node = Some(name);
        }
        Ok(self)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    Table,
    /// A table with more columns
    Wide,
    Json,
    Yaml,
    /// Names only, one per line
    Name,
}

/// How lists are printed.
#[derive(Clone, Debug, Args)]
pub struct OutputArgs {
    /// How to print
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub output: OutputFormat,
    /// Leave the headings out
    #[arg(long)]
    pub no_headers: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// One screen: Lease, fence, members, addresses by reason, problems
    ///
    /// Exit code 0: all is well; 1: somebody should look; 2: addresses are not served,
    /// or the daemon does not answer.
    Status(StatusArgs),
    /// List members, vips, services, pools, subnets or events
    Get(GetArgs),
    /// Who wins an address, and who comes next
    Winner(WinnerArgs),
    /// Every step from Service to packet, and what to do where it does not go on
    Explain(ExplainArgs),
    /// Hand all addresses of a node over to others
    ///
    /// Returns 0 when the node holds none, 3 when some stay because no other node can
    /// take them. The drain survives restarts until `undrain`.
    Drain(DrainArgs),
    /// Let the node take addresses again
    Undrain(UndrainArgs),
    /// List and dump everything anew, compare, announce once more
    Resync(ResyncArgs),
    /// Check ServiceGroups and LBNodeAgents, alone and against each other
    ///
    /// Exit code 0: fine; 1: errors (with --strict also warnings).
    Validate(ValidateArgs),
    /// Turn v1 ServiceGroups and LBNodeAgents into v2
    Migrate(MigrateArgs),
    /// Make the kubeconfig of a node's daemon
    ///
    /// Needs an administrator's kubeconfig. The token in it is bound to the Node: it has the
    /// rights of a daemon, writes no other node's Lease, and ends when the Node is deleted.
    NodeKubeconfig(NodeKubeconfigArgs),
    /// Full-screen live view
    Top(TopArgs),
    /// The daemon's settings in force, secrets hidden
    Config(ConfigArgs),
    /// Collect what support needs into one archive
    SupportBundle(SupportBundleArgs),
    /// Versions of this program and of the daemon
    Version(VersionArgs),
    /// Print a completion script for a shell
    Completion {
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the man pages
    #[command(hide = true)]
    Man {
        /// Directory they go to
        directory: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }

    fn resolved(words: &[&str]) -> CommandResult<Cli> {
        let words = ["purelbctl"].iter().chain(words);
        Cli::try_parse_from(words).expect("a command line").resolve()
    }

    #[test]
    fn a_namespace_chooses_services_where_there_are_any_and_installs_elsewhere() {
        for noun in ["vips", "services", "events"] {
            let target = resolved(&["get", noun, "-n", "shop", "--install-namespace", "lb"]).unwrap().target;
            assert_eq!((target.namespace.as_deref(), &*target.install_namespace), (Some("shop"), "lb"));
        }
        for words in
            [&["get", "members", "-n", "lb"][..], &["status", "--namespace", "lb"], &["-n", "lb", "top"]]
        {
            let target = resolved(words).unwrap().target;
            assert_eq!((target.namespace, &*target.install_namespace), (None, "lb"), "{words:?}");
        }
    }

    #[test]
    fn a_node_is_named_with_or_without_a_flag() {
        for words in [&["drain", "worker-1"][..], &["drain", "--node", "worker-1"], &["undrain", "worker-1"]]
        {
            assert_eq!(resolved(words).unwrap().target.node.as_deref(), Some("worker-1"), "{words:?}");
        }
        for words in [
            &["drain", "a", "--node", "b"][..],
            &["drain", "a", "--endpoint", "b:1"],
            &["undrain", "a", "--all"],
        ] {
            assert_eq!(resolved(words).unwrap_err().code, exit_code::CRITICAL, "{words:?}");
        }
    }
}
