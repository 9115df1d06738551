//! Commands that a page tells its reader to type: the programs take them.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use anyhow::Result;
use clap::{Command, CommandFactory, Parser};
use purelbctl::cli::Cli;
use regex::Regex;

use crate::Page;

/// Blocks with commands in them; in a console's, what stands before one.
const SHELLS: [&str; 4] = ["console", "sh", "bash", "text"];
static PROMPT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(?:[\w@.-]*[$#] )").expect("a valid pattern"));
static FLAG: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"--[a-z][a-z-]*").expect("a valid pattern"));

/// Commands of a page that would be refused.
pub fn check(page: &Page) -> Result<Vec<String>> {
    let daemon = daemon_flags()?;
    let mut wrong = Vec::new();
    for block in page.blocks.iter().filter(|block| SHELLS.contains(&block.language.as_str())) {
        for (offset, line) in lines(&block.text) {
            let typed = match PROMPT.find(&line) {
                Some(prompt) if block.language == "console" => &line[prompt.end()..],
                // What a program printed.
                None if block.language == "console" => continue,
                _ => &line,
            };
            let number = block.line + offset;
            for command in shell_commands(typed) {
                let refused = match command.first().map(String::as_str) {
                    Some("purelbctl") => whole(&command),
                    Some("purelbd") => flags_of_daemon(&command.join(" "), &daemon),
                    _ => None,
                };
                wrong.extend(refused.map(|why| page.at(number, format!("{}: {why}", command.join(" ")))));
            }
        }
    }
    for (number, code) in page.code() {
        let words: Vec<&str> = code.split_whitespace().collect();
        let refused = match words.first() {
            Some(&"purelbctl") => part(&words[1..]),
            Some(&"purelbd") => flags_of_daemon(&code, &daemon),
            _ => None,
        };
        wrong.extend(refused.map(|why| page.at(number, format!("{code}: {why}"))));
    }
    Ok(wrong)
}

/// Lines as a shell reads them: continued ones joined, with the number of the first.
fn lines(text: &str) -> Vec<(usize, String)> {
    let mut joined: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in text.lines().enumerate() {
        let (line, more) = line.strip_suffix('\\').map_or((line, false), |line| (line, true));
        match joined.last_mut().filter(|_| goes_on) {
            Some((_, last)) => last.push_str(line),
            None => joined.push((number, line.trim_start().to_owned())),
        }
        goes_on = more;
    }
    joined
}

/// The simple commands of a line: words between pipes, lists and redirections.
fn shell_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, '|' | ';' | '&' | '(' | ')') => {
                end_word(&mut commands, &mut word);
                commands.push(Vec::new());
            }
            (None, '>' | '<') => {
                // The file that follows is no argument; neither is a number before.
                if word.as_deref().is_some_and(|w| w.chars().all(|c| c.is_ascii_digit())) {
                    word = None;
                }
                end_word(&mut commands, &mut word);
                while characters.next_if(|c| c.is_whitespace() || ['>', '&'].contains(c)).is_some() {}
                while characters.next_if(|c| !c.is_whitespace()).is_some() {}
            }
            (None, c) if c.is_whitespace() => end_word(&mut commands, &mut word),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    end_word(&mut commands, &mut word);
    commands.retain(|command| !command.is_empty());
    commands
}

fn end_word(commands: &mut [Vec<String>], word: &mut Option<String>) {
    if let (Some(word), Some(command)) = (word.take(), commands.last_mut()) {
        // `A=b program` runs the program.
        let assigns = word.contains('=') && !word.starts_with('-');
        let before = assigns || ["sudo", "exec", "time"].contains(&word.as_str());
        if !before || !command.is_empty() {
            command.push(word);
        }
    }
}

/// A command as it would be typed, taken by the real definitions.
fn whole(words: &[String]) -> Option<String> {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    match Cli::try_parse_from(words) {
        Ok(_) => None,
        Err(error) if [DisplayHelp, DisplayVersion].contains(&error.kind()) => None,
        Err(error) => Some(error.to_string().lines().next().unwrap_or_default().to_owned()),
    }
}

/// A command within a sentence, which may leave out what it is not about: the command and
/// each of its flags exist.
fn part(words: &[&str]) -> Option<String> {
    let root = Cli::command();
    let mut known = longs(&root);
    let mut words = words.iter();
    let mut command: Option<&Command> = None;
    while let Some(word) = words.next() {
        let flag = word.split('=').next().unwrap_or(word);
        if let Some(flag) = flag.strip_prefix("--") {
            if !known.contains(flag) {
                return Some(format!("there is no flag --{flag}"));
            }
            if takes_value(&root, command, flag) && !word.contains('=') {
                words.next();
            }
        } else if command.is_none() && !word.starts_with('-') {
            match root.find_subcommand(word) {
                Some(found) => {
                    known.extend(longs(found));
                    command = Some(found);
                }
                None => return Some(format!("there is no command {word}")),
            }
        }
    }
    None
}

fn longs(command: &Command) -> BTreeSet<String> {
    let mut known: BTreeSet<String> =
        command.get_arguments().filter_map(|arg| arg.get_long()).map(str::to_owned).collect();
    known.extend(["help".to_owned(), "version".to_owned()]);
    known
}

fn takes_value(root: &Command, command: Option<&Command>, flag: &str) -> bool {
    let all = root.get_arguments().chain(command.into_iter().flat_map(Command::get_arguments));
    let mut named = all.filter(|arg| arg.get_long() == Some(flag));
    named.next().is_some_and(|arg| arg.get_action().takes_values())
}

/// The flags of purelbd, as its manual page lists them.
pub fn daemon_flags() -> Result<BTreeSet<String>> {
    let page = crate::read("packaging/man/purelbd.8")?.replace("\\-", "-");
    Ok(FLAG.find_iter(&page).map(|flag| flag.as_str().to_owned()).collect())
}

fn flags_of_daemon(code: &str, known: &BTreeSet<String>) -> Option<String> {
    let mut flags = FLAG.find_iter(code).map(|flag| flag.as_str());
    flags.find(|flag| !known.contains(*flag)).map(|flag| format!("purelbd has no flag {flag}"))
}

#[cfg(test)]
mod tests;
