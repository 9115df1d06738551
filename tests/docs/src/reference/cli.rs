//! The command lines: from their definitions, and purelbd's from its manual page.

use std::fmt::Write;

use anyhow::{Result, ensure};
use clap::{Arg, ArgAction, Command, CommandFactory};
use purelb_allocator::settings::Settings;
use purelbctl::cli::Cli;

use super::{cell, note};

pub const MANUAL: &str = "packaging/man/purelbd.8";

pub fn markdown(manual: &str) -> Result<String> {
    let mut out = format!("# Command lines\n\n{}", note("the programs' own definitions"));
    let mut ctl = Cli::command();
    ctl.build();
    about(&mut out, "## purelbctl", &ctl);
    out.push_str("\nExit codes where nothing else is said: 0 done, 1 it did not work, 2 the daemon does not answer or the command line is wrong.\n");
    out.push_str("\n### Options of every command\n");
    table(&mut out, ctl.get_arguments().filter(|arg| arg.is_global_set()));
    for command in ctl.get_subcommands().filter(|command| !command.is_hide_set()) {
        about(&mut out, &format!("### purelbctl {}", command.get_name()), command);
        let usage = command.clone().render_usage().to_string();
        let _ = write!(out, "\n```\n{}\n```\n", usage.trim_start_matches("Usage: "));
        table(&mut out, command.get_arguments().filter(|arg| !arg.is_global_set()));
    }
    let allocator = Settings::command();
    about(&mut out, "## purelb-allocator", &allocator);
    table(&mut out, allocator.get_arguments());
    out.push_str("\n## purelbd\n\nEvery setting can be given with `--set`; they are listed in [settings](config.md).\n");
    for section in ["OPTIONS", "SIGNALS"] {
        let rows = manual_section(manual, section);
        ensure!(!rows.is_empty(), "{MANUAL} has no section {section}");
        let _ = write!(out, "\n| {} | |\n|---|---|\n", section.trim_end_matches('S').to_lowercase());
        for (name, text) in rows {
            let _ = writeln!(out, "| {name} | {} |", cell(&text));
        }
    }
    Ok(out)
}

fn about(out: &mut String, heading: &str, command: &Command) {
    let text = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let _ = write!(out, "\n{heading}\n\n{}\n", sentence(&text));
}

/// A doc comment's first line has no full stop.
fn sentence(text: &str) -> String {
    text.split("\n\n")
        .map(|part| part.trim_end_matches('.').to_owned() + ".")
        .collect::<Vec<_>>()
        .join("\n\n")
}

fn table<'a>(out: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    let own = |arg: &&Arg| !matches!(arg.get_id().as_str(), "help" | "version") && !arg.is_hide_set();
    let rows: Vec<String> = arguments.filter(own).map(row).collect();
    if !rows.is_empty() {
        let _ = write!(out, "\n| argument | default | variable | |\n|---|---|---|---|\n{}", rows.concat());
    }
}

fn row(arg: &Arg) -> String {
    let value = match arg.get_value_names() {
        Some(names) if arg.get_action().takes_values() => names.join(" "),
        _ => String::new(),
    };
    let mut names = Vec::new();
    names.extend(arg.get_short().map(|short| format!("-{short}")));
    names.extend(arg.get_long().map(|long| format!("--{long}")));
    let mut name = if names.is_empty() { value } else { format!("{} {value}", names.join(", ")) };
    if matches!(arg.get_action(), ArgAction::Append) && arg.is_positional() {
        name.push('…');
    }
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|v| v.to_string_lossy().into_owned()).collect();
    let shown = arg.get_action().takes_values() && defaults.iter().any(|d| !d.is_empty());
    let default = if shown { format!("`{}`", defaults.join(" ")) } else { String::new() };
    let variable = arg.get_env().map(|v| format!("`{}`", v.to_string_lossy())).unwrap_or_default();
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut help = cell(&sentence(&help));
    let choices: Vec<String> = match arg.get_action().takes_values() {
        true => arg.get_possible_values().iter().map(|v| format!("`{}`", v.get_name())).collect(),
        false => Vec::new(),
    };
    if !choices.is_empty() {
        let _ = write!(help, " One of {}.", choices.join(", "));
    }
    format!(
        "| `{}` | {default} | {variable} | {} |\n",
        name.trim().replace('|', "\\|"),
        help.trim_start_matches('.').trim()
    )
}

/// Paragraphs with a tag, of one section of a manual page.
fn manual_section(manual: &str, section: &str) -> Vec<(String, String)> {
    let lines = manual.lines().skip_while(|line| *line != format!(".SH {section}")).skip(1);
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut tag_next = false;
    for line in lines.take_while(|line| !line.starts_with(".SH ")) {
        if line == ".TP" {
            tag_next = true;
            continue;
        }
        let (macro_name, words) = match line.strip_prefix('.').and_then(|l| l.split_once(' ')) {
            Some((name, words)) => (name, words.to_owned()),
            None => ("", line.to_owned()),
        };
        let plain = plain(&words, !macro_name.is_empty());
        if tag_next {
            let names = plain.split(", ").map(|name| format!("`{}`", name.trim())).collect::<Vec<_>>();
            rows.push((names.join(", "), String::new()));
            tag_next = false;
        } else if let Some((_, text)) = rows.last_mut() {
            let join = if text.is_empty() { "" } else { " " };
            text.push_str(&format!("{join}{plain}"));
        }
    }
    rows
}

/// Words without roff's marks; a macro's arguments are set without spaces.
fn plain(words: &str, of_macro: bool) -> String {
    let text = words.replace("\\-", "-");
    if !of_macro {
        return text;
    }
    let mut joined = String::new();
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => {}
            c => joined.push(c),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_page_is_read() {
        let page = ".SH OPTIONS\n.TP\n.BI \\-\\-config \" FILE\"\nRead this instead of\n.IR /etc/x ;\nand so on.\n.TP\n.BR \\-h \", \" \\-\\-help\nHelp.\n.SH END\nx\n";
        let rows = manual_section(page, "OPTIONS");
        assert_eq!(
            rows[0],
            ("`--config FILE`".to_owned(), "Read this instead of /etc/x; and so on.".to_owned())
        );
        assert_eq!(rows[1], ("`-h`, `--help`".to_owned(), "Help.".to_owned()));
    }
}
