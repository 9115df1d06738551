//! The command line, defined once: help, completion and man pages are made from it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use purelb_core::durations;

use crate::error::{Failure, Outcome, code};
use crate::node_kubeconfig::NodeKubeconfigArgs;

pub const DEFAULT_SOCKET: &str = "/run/purelb/control.sock";

/// Ask and steer purelb: one node's daemon, all of them, or the cluster.
#[derive(Debug, Parser)]
#[command(name = "purelbctl", version, disable_help_subcommand = true, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub target: Target,
    #[command(subcommand)]
    pub command: Command,
}

/// Which daemon is asked, and how.
#[derive(Clone, Debug, Args)]
pub struct Target {
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
    #[arg(long, global = true, value_enum, default_value_t = When::Auto)]
    pub color: When,
}

impl Cli {
    /// What is said in two ways, said in one.
    ///
    /// `-n` was the installation's namespace everywhere before it chose Services. It still
    /// is wherever there are no Services to choose among, so that what was written then
    /// means the same; only lists of what belongs to Services read it as kubectl does.
    pub fn settled(mut self) -> Outcome<Self> {
        let chooses = matches!(
            &self.command,
            Command::Get(args) if matches!(args.noun, Noun::Vips | Noun::Services | Noun::Events)
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
            let Target { node, all, endpoint, .. } = &self.target;
            if node.is_some() || *all || endpoint.is_some() {
                let what = format!("{name} names a node, and so does --node, --all or --endpoint");
                return Err(Failure::new(what).next("name it once").code(code::CRITICAL));
            }
            self.target.node = Some(name);
        }
        Ok(self)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
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
pub struct Output {
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
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
    SupportBundle(BundleArgs),
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

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Print again whenever something changes
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Noun {
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
    pub noun: Noun,
    /// Only these (addresses, names, namespace/name)
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    #[command(flatten)]
    pub output: Output,
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

#[derive(Debug, Args)]
pub struct WinnerArgs {
    /// The addresses
    #[arg(required = true, value_name = "IP")]
    pub ips: Vec<String>,
    /// Work on saved objects (`kubectl get leases -o yaml`, JSON too; - for stdin), with
    /// no daemon and no cluster; all Leases in the files count as live
    #[arg(short, long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// As if this node were gone (may be given several times)
    #[arg(long, value_name = "NODE")]
    pub without: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// An address, or a Service as NAMESPACE/NAME
    #[arg(value_name = "IP|NS/SVC")]
    pub target: String,
    /// Work on saved objects, with no daemon and no cluster
    #[arg(short, long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The node, as with --node; without it, this machine
    #[arg(value_name = "NODE")]
    pub name: Option<String>,
    /// Only print who would take each address
    #[arg(long)]
    pub dry_run: bool,
    /// Wait this long; the drain itself goes on after that
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = durations::parse)]
    pub timeout: Duration,
    /// Withdraw also addresses that no other node can take
    #[arg(long)]
    pub force: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

#[derive(Debug, Args)]
pub struct UndrainArgs {
    /// The node, as with --node; without it, this machine
    #[arg(value_name = "NODE")]
    pub name: Option<String>,
}

#[derive(Debug, Args)]
pub struct ResyncArgs {
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("from").required(true).args(["files", "cluster"])))]
pub struct ValidateArgs {
    /// Files to check (YAML or JSON, several documents, lists; - for stdin)
    #[arg(short, long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Check what is in the cluster
    #[arg(long)]
    pub cluster: bool,
    /// Warnings count as errors
    #[arg(long)]
    pub strict: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// v1 objects (YAML or JSON; - for stdin); without it they come from the cluster
    #[arg(short, long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// All groups are announced by one elected node each
    #[arg(long, conflicts_with = "remote")]
    pub local: bool,
    /// All groups are announced by every node, for routing
    #[arg(long)]
    pub remote: bool,
    /// File that says per group: `name: local` or `namespace/name: remote`
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// Write the v2 objects to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub output_file: Option<PathBuf>,
    /// Give the v2 objects this namespace; the v1 objects stay where they are
    #[arg(long, value_name = "NAMESPACE")]
    pub to_namespace: Option<String>,
    /// Have the cluster serve v2 beside v1; objects and definitions are saved first
    #[arg(long, conflicts_with_all = ["apply", "files", "local", "remote", "mapping", "output_file", "to_namespace"])]
    pub serve_both: bool,
    /// Put the v2 objects into the cluster; the v1 objects are saved first
    #[arg(long)]
    pub apply: bool,
    /// Where --serve-both and --apply save the v1 objects
    #[arg(long, value_name = "FILE")]
    pub backup: Option<PathBuf>,
    /// Put the objects and definitions of a backup back into the cluster
    #[arg(long, value_name = "BACKUP", conflicts_with_all = ["apply", "serve_both", "files", "local", "remote", "mapping", "output_file", "to_namespace"])]
    pub rollback: Option<PathBuf>,
    /// The last step: store everything as v2 and take v1 away. No rollback after this
    #[arg(long, conflicts_with_all = ["apply", "serve_both", "rollback", "files", "local", "remote", "mapping", "output_file", "to_namespace", "backup"])]
    pub finish: bool,
}

#[derive(Debug, Args)]
pub struct TopArgs {
    /// How often to look
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = durations::parse)]
    pub interval: Duration,
}

#[derive(Debug, Args)]
pub struct BundleArgs {
    /// The archive (.tar) to write
    #[arg(long, value_name = "FILE")]
    pub output_file: Option<PathBuf>,
    /// How much of the journal to include
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = durations::parse)]
    pub since: Duration,
}

#[derive(Debug, Args)]
pub struct VersionArgs {
    /// Only this program's
    #[arg(long)]
    pub client: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }

    fn settled(words: &[&str]) -> Outcome<Cli> {
        let words = ["purelbctl"].iter().chain(words);
        Cli::try_parse_from(words).expect("a command line").settled()
    }

    #[test]
    fn a_namespace_chooses_services_where_there_are_any_and_installs_elsewhere() {
        for noun in ["vips", "services", "events"] {
            let target = settled(&["get", noun, "-n", "shop", "--install-namespace", "lb"]).unwrap().target;
            assert_eq!((target.namespace.as_deref(), &*target.install_namespace), (Some("shop"), "lb"));
        }
        for words in
            [&["get", "members", "-n", "lb"][..], &["status", "--namespace", "lb"], &["-n", "lb", "top"]]
        {
            let target = settled(words).unwrap().target;
            assert_eq!((target.namespace, &*target.install_namespace), (None, "lb"), "{words:?}");
        }
    }

    #[test]
    fn a_node_is_named_with_or_without_a_flag() {
        for words in [&["drain", "worker-1"][..], &["drain", "--node", "worker-1"], &["undrain", "worker-1"]]
        {
            assert_eq!(settled(words).unwrap().target.node.as_deref(), Some("worker-1"), "{words:?}");
        }
        for words in [
            &["drain", "a", "--node", "b"][..],
            &["drain", "a", "--endpoint", "b:1"],
            &["undrain", "a", "--all"],
        ] {
            assert_eq!(settled(words).unwrap_err().code, code::CRITICAL, "{words:?}");
        }
    }
}
