//! From the command line to the command: one file per command.

pub mod completion;
pub mod config;
pub mod drain;
pub mod explain;
pub mod get;
pub mod man;
pub mod migrate;
pub mod node_kubeconfig;
pub mod resync;
pub mod status;
pub mod support_bundle;
pub mod top;
pub mod undrain;
pub mod validate;
pub mod version;
pub mod winner;

use crate::cli::{Cli, Command};
use crate::error::{CommandError, CommandResult};
use crate::output::print_text;
use crate::output::text_painter::TextPainter;

pub fn run(cli: Cli) -> CommandResult {
    let cli = cli.resolve()?;
    let paint = TextPainter::new(cli.target.color);
    match cli.command {
        Command::Winner(args) if !args.files.is_empty() => winner::run_offline(&args, paint),
        Command::Explain(args) if !args.files.is_empty() => explain::run_offline(&args, paint),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            completion::write_script(shell, &mut script);
            print_text(&String::from_utf8_lossy(&script))
        }
        Command::Man { directory } => man::write_pages(&directory).map(|()| 0),
        Command::Validate(args) => validate::run(&cli.target, &args, paint),
        Command::Migrate(args) => migrate::run(&cli.target, &args),
        Command::Version(args) if args.client => print_text(&version::client_version(&args)?),
        Command::Version(args) => block_on(version::run(&cli.target, &args)),
        Command::Winner(args) => block_on(winner::run(&cli.target, &args, paint)),
        Command::Explain(args) => block_on(explain::run(&cli.target, &args, paint)),
        Command::Status(args) => block_on(status::run(&cli.target, &args, paint)),
        Command::Get(args) => block_on(get::run(&cli.target, &args, paint)),
        Command::Drain(args) => block_on(drain::run(&cli.target, &args, paint)),
        Command::Undrain(_) => block_on(undrain::run(&cli.target)),
        Command::Resync(args) => block_on(resync::run(&cli.target, &args)),
        Command::Config(args) => block_on(config::run(&cli.target, &args, paint)),
        Command::NodeKubeconfig(args) => block_on(node_kubeconfig::run(&cli.target, &args)),
        Command::Top(args) => block_on(top::run(&cli.target, &args)),
        Command::SupportBundle(args) => block_on(support_bundle::run(&cli.target, &args)),
    }
}

/// Called by commands that need a runtime; the others end before one would have started.
fn block_on<T>(future: impl Future<Output = CommandResult<T>>) -> CommandResult<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| CommandError::new("cannot start").because(e))?.block_on(future)
}
