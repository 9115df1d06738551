//! From the command line to the command.

use std::io::Write;
use std::path::Path;

use crate::cli::{Cli, Command, Format, MigrateArgs, Target, ValidateArgs, VersionArgs};
use crate::error::{Failure, Outcome};
use crate::paint::Paint;
use crate::{
    actions, bundle, cluster, drain, explain, get, migrate, node_kubeconfig, offline, saved, shell, status,
    table, top, validate, winner,
};

pub fn run(cli: Cli) -> Outcome {
    let cli = cli.settled()?;
    let paint = Paint::new(cli.target.color);
    match cli.command {
        Command::Winner(args) if !args.files.is_empty() => {
            let (answers, notes) = winner::offline(&args)?;
            note(&notes);
            say(&winner::print(&answers, args.output, paint)?)
        }
        Command::Explain(args) if !args.files.is_empty() => {
            let explanations = offline::explain(&args)?;
            say(&explain::print(&explanations, args.output, paint)?)
        }
        Command::Completion { shell } => {
            let mut script = Vec::new();
            shell::completion(shell, &mut script);
            say(&String::from_utf8_lossy(&script))
        }
        Command::Man { directory } => shell::man(&directory).map(|()| 0),
        Command::Validate(args) => run_validate(&cli.target, &args, paint),
        Command::Migrate(args) => run_migrate(&cli.target, &args),
        Command::Version(args) if args.client => say(&version(&args)?),
        Command::Version(args) => block_on(actions::version(&cli.target, &args)),
        Command::Winner(args) => block_on(actions::winner(&cli.target, &args, paint)),
        Command::Explain(args) => block_on(actions::explain(&cli.target, &args, paint)),
        Command::Status(args) => block_on(status::run(&cli.target, &args, paint)),
        Command::Get(args) => block_on(get::run(&cli.target, &args, paint)),
        Command::Drain(args) => block_on(drain::run(&cli.target, &args, paint)),
        Command::Undrain(_) => block_on(drain::undrain(&cli.target)),
        Command::Resync(args) => block_on(actions::resync(&cli.target, &args)),
        Command::Config(args) => block_on(actions::config(&cli.target, &args, paint)),
        Command::NodeKubeconfig(args) => block_on(node_kubeconfig::run(&cli.target, &args)),
        Command::Top(args) => block_on(top::run(&cli.target, &args)),
        Command::SupportBundle(args) => block_on(bundle::run(&cli.target, &args)),
    }
}

/// Standard output; a reader that has seen enough (`| head`) is not an error.
pub fn say(text: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(0),
    }
}

/// Standard error, so that it never mixes with what is asked for.
pub fn note(notes: &[String]) {
    let mut err = std::io::stderr().lock();
    for note in notes {
        let _ = writeln!(err, "note: {note}");
    }
}

/// Most commands are over before a runtime would have started.
pub fn block_on<T>(future: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| Failure::new("cannot start").because(e))?.block_on(future)
}

fn run_validate(target: &Target, args: &ValidateArgs, paint: Paint) -> Outcome {
    let mut saved = if args.cluster {
        block_on(async {
            let client = cluster::client(target).await?;
            cluster::everything(&client, &target.install_namespace).await
        })?
    } else {
        saved::read(&args.files)?
    };
    let found = validate::check(&mut saved);
    if saved.groups.is_empty() && saved.agents.is_empty() && found.is_empty() {
        let what = "there is no ServiceGroup and no LBNodeAgent to check";
        return Err(Failure::new(what).next("give files with objects of apiVersion purelb.io/v2"));
    }
    note(&saved.notes);
    let (text, exit) = validate::report(&saved, &found, args.strict, args.output, paint)?;
    say(&text).map(|_| exit)
}

fn run_migrate(target: &Target, args: &MigrateArgs) -> Outcome {
    if let Some(path) = &args.rollback {
        let backup = migrate::cluster::load(path)?;
        let done =
            block_on(async { migrate::cluster::rollback(&cluster::client(target).await?, &backup).await })?;
        note(&done);
        return say(&format!(
            "{} v1 objects are back as {} has them\n",
            backup.objects.len(),
            path.display()
        ));
    }
    if args.finish {
        let done = block_on(async { migrate::definitions::finish(&cluster::client(target).await?).await })?;
        note(&done);
        return say("everything is v2\n");
    }
    if args.serve_both {
        let done = block_on(async {
            let client = cluster::client(target).await?;
            let old = migrate::cluster::read_v1(&client).await?;
            let definitions = migrate::definitions::read(&client).await?;
            said_saved(&migrate::cluster::save(args.backup.as_ref(), &definitions, &old)?);
            migrate::definitions::serve_both(&client).await
        })?;
        note(&done);
        return say("v1 and v2 are served\n");
    }
    let old = if args.files.is_empty() {
        block_on(async { migrate::cluster::read_v1(&cluster::client(target).await?).await })?
    } else {
        let saved = saved::read(&args.files)?;
        note(&saved.unreadable.iter().map(|u| format!("{}: {}", u.file, u.object)).collect::<Vec<_>>());
        saved.old
    };
    let done = migrate::run(args, &old)?;
    note(&done.notes);
    let text = migrate::yaml(&done.objects)?;
    match &args.output_file {
        Some(path) => std::fs::write(path, &text)
            .map_err(|e| Failure::new(format!("cannot write {}", path.display())).because(e))?,
        None if !args.apply => {
            say(&text)?;
        }
        None => {}
    }
    if args.apply {
        said_saved(&migrate::cluster::save(args.backup.as_ref(), &[], &old)?);
        let written = block_on(async {
            let client = cluster::client(target).await?;
            migrate::cluster::write(&client, &done.objects).await
        })?;
        note(&written);
        return say(&format!("{} objects are v2 now\n", written.len()));
    }
    Ok(0)
}

fn said_saved(backup: &Path) {
    note(&[format!(
        "what is there now is saved in {0}; back with `purelbctl migrate --rollback {0}`",
        backup.display()
    )]);
}

pub fn version(args: &VersionArgs) -> Outcome<String> {
    let client = env!("CARGO_PKG_VERSION");
    match args.output {
        Format::Json => table::json(&serde_json::json!({"client": client})),
        Format::Yaml => table::yaml(&serde_json::json!({"client": client})),
        _ => Ok(format!("purelbctl {client}\n")),
    }
}
