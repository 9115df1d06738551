//! A table that is redrawn in place on a terminal, and printed when it has something
//! final to say where output goes to a file.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;

/// One address, as the world sees it right now.
#[derive(Clone, Debug)]
pub struct Row {
    pub service: String,
    pub vip: IpAddr,
    /// Nodes whose kernel has it.
    pub on: Vec<String>,
    /// Who answered the client's last probe.
    pub answers: String,
    pub sent: u64,
    pub lost: u64,
}

#[derive(Debug)]
pub struct Screen {
    terminal: bool,
    /// Lines of the live table on the screen now.
    drawn: usize,
}

impl Screen {
    pub fn new(terminal: bool) -> Self {
        Self { terminal, drawn: 0 }
    }

    pub fn say(&mut self, text: &str) {
        self.drawn = 0;
        for paragraph in text.lines() {
            println!("{}", wrap(paragraph, 100));
        }
    }

    pub fn step(&mut self, number: u32, text: &str) {
        let (on, off) = if self.terminal { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        self.say(&format!("\n{on}{number}. {text}{off}"));
    }

    /// What a program said.
    pub fn quote(&mut self, text: &str) {
        for line in text.lines() {
            println!("   | {line}");
        }
        self.drawn = 0;
    }

    /// On a terminal only, over the one drawn before.
    pub fn live(&mut self, rows: &[Row]) {
        if self.terminal {
            self.draw(rows);
        }
    }

    pub fn table(&mut self, rows: &[Row]) {
        self.draw(rows);
        self.drawn = 0;
    }

    fn draw(&mut self, rows: &[Row]) {
        let mut text = String::new();
        if self.drawn > 0 {
            let _ = write!(text, "\x1b[{}A\x1b[J", self.drawn);
        }
        let _ = writeln!(
            text,
            "   {:<10} {:<18} {:<18} {:<12} {:>8} {:>6}",
            "SERVICE", "ADDRESS", "ON", "ANSWERED BY", "PROBES", "LOST"
        );
        for row in rows {
            let on = if row.on.is_empty() { "nobody".to_owned() } else { row.on.join(" + ") };
            let _ = writeln!(
                text,
                "   {:<10} {:<18} {:<18} {:<12} {:>8} {:>6}",
                row.service,
                row.vip.to_string(),
                on,
                row.answers,
                row.sent,
                row.lost
            );
        }
        self.drawn = rows.len() + 1;
        print!("{text}");
        let _ = std::io::stdout().flush();
    }
}

/// Breaks a paragraph at spaces.
fn wrap(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        if column > 0 && column + 1 + word.chars().count() > width {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.chars().count();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn paragraphs_break_at_spaces_only() {
        assert_eq!(wrap("one two three", 7), "one two\nthree");
        assert_eq!(wrap("unbreakable", 4), "unbreakable");
        assert_eq!(wrap("", 4), "");
    }
}
