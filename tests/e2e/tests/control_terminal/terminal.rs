//! A terminal: the program runs on a real one, and what it shows is read back.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use purelb_kit::wait::eventually;

const WITHIN: Duration = Duration::from_secs(40);

pub struct Terminal {
    child: Child,
    keys: Option<ChildStdin>,
    screen: Arc<Mutex<vt100::Parser>>,
    device: String,
}

impl Terminal {
    /// Runs a command line on a terminal of this size.
    pub async fn run(line: &str, rows: u16, columns: u16) -> Result<Self> {
        // The device's name comes first and is wiped: it is needed to change the size.
        let inner = format!("tty; stty rows {rows} cols {columns}; printf '\\033[2J\\033[H'; {line}");
        let mut child = Command::new("script")
            .args(["-qefc", &inner, "/dev/null"])
            .env("TERM", "xterm-256color")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("running `script` (util-linux)")?;
        let keys = child.stdin.take();
        let mut out = child.stdout.take().context("a pipe")?;
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let first = Arc::new(Mutex::new(String::new()));
        let (shown, seen) = (screen.clone(), first.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = out.read(&mut buffer) {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                if seen.len() < 4096 {
                    seen.push_str(&String::from_utf8_lossy(&buffer[..n]));
                }
                shown.lock().unwrap_or_else(PoisonError::into_inner).process(&buffer[..n]);
            }
        });
        let device = eventually("the terminal has a name", WITHIN, || {
            let text = first.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let name = text.split_once(['\r', '\n']).map(|(name, _)| name.to_owned());
            async move { name.filter(|n| n.starts_with("/dev/")).ok_or(text) }
        })
        .await?;
        Ok(Self { child, keys, screen, device })
    }

    pub fn text(&self) -> String {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner).screen().contents()
    }

    pub fn full_screen(&self) -> bool {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner).screen().alternate_screen()
    }

    pub async fn shows(&self, words: &[&str]) -> Result<()> {
        eventually(&format!("the terminal shows {words:?}"), WITHIN, || {
            let text = self.text();
            let all = words.iter().all(|w| text.contains(w));
            async move { if all { Ok(()) } else { Err(text) } }
        })
        .await
    }

    pub fn press(&mut self, keys: &str) -> Result<()> {
        let to = self.keys.as_mut().context("it has ended")?;
        to.write_all(keys.as_bytes())?;
        Ok(to.flush()?)
    }

    pub fn resize(&self, rows: u16, columns: u16) -> Result<()> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner).screen_mut().set_size(rows, columns);
        let size = [rows.to_string(), columns.to_string()];
        let done =
            Command::new("stty").args(["-F", &self.device, "rows", &size[0], "cols", &size[1]]).status()?;
        ensure!(done.success(), "stty: {done}");
        Ok(())
    }

    /// Waits for the end; its exit code.
    pub async fn ended(&mut self) -> Result<i32> {
        let status = eventually("it ends", WITHIN, || {
            let ended = self.child.try_wait().ok().flatten().ok_or("running");
            async move { ended }
        })
        .await?;
        Ok(status.code().unwrap_or(-1))
    }

    /// The screen as a picture. Written only on request: it differs from run to run.
    pub fn picture(&self, name: &str) -> Result<()> {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures").join(format!("{name}.svg"));
        if std::env::var_os("UPDATE_PICTURES").is_none() {
            ensure!(path.exists(), "{} is missing: run this test with UPDATE_PICTURES=1", path.display());
            return Ok(());
        }
        let parser = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::fs::write(path, svg(parser.screen()))?)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn colour(cell: &vt100::Cell) -> &'static str {
    match cell.fgcolor() {
        vt100::Color::Idx(1) => "#ff7b72",
        vt100::Color::Idx(2) => "#7ee787",
        vt100::Color::Idx(3) => "#e3b341",
        _ if cell.dim() => "#8b949e",
        _ => "#e6edf3",
    }
}

fn svg(screen: &vt100::Screen) -> String {
    let (rows, columns) = screen.size();
    let used = (0..rows)
        .rev()
        .find(|r| (0..columns).any(|c| screen.cell(*r, c).is_some_and(|x| !x.contents().trim().is_empty())));
    let used = used.map_or(1, |r| r + 1);
    let (width, height) = (f64::from(columns) * 8.4 + 24.0, f64::from(used) * 18.0 + 24.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"monospace\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#0d1117\"/>\n"
    );
    for row in 0..used {
        let mut runs: Vec<(&str, bool, u16, String)> = Vec::new();
        for column in 0..columns {
            let Some(cell) = screen.cell(row, column) else { continue };
            let text = if cell.has_contents() { cell.contents() } else { " " };
            let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            match runs.last_mut() {
                Some((fill, bold, _, run)) if *fill == colour(cell) && *bold == cell.bold() => {
                    run.push_str(&text);
                }
                _ => runs.push((colour(cell), cell.bold(), column, text)),
            }
        }
        for (fill, bold, column, text) in runs.iter().filter(|r| !r.3.trim().is_empty()) {
            let weight = if *bold { " font-weight=\"bold\"" } else { "" };
            let (x, y) = (12.0 + f64::from(*column) * 8.4, 26 + row * 18);
            out += &format!(
                "<text x=\"{x:.1}\" y=\"{y}\" fill=\"{fill}\"{weight} xml:space=\"preserve\">{}</text>\n",
                text.trim_end()
            );
        }
    }
    out + "</svg>\n"
}
