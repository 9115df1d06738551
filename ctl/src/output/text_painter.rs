//! Colours, on a terminal only.

use std::io::IsTerminal;

use crate::cli::ColorWhen;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPainter {
    on: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextTone {
    Good,
    Warn,
    Bad,
    Dim,
    Strong,
}

impl TextPainter {
    pub fn new(when: ColorWhen) -> Self {
        let on = match when {
            ColorWhen::Always => true,
            ColorWhen::Never => false,
            ColorWhen::Auto => std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        };
        Self { on }
    }

    pub const fn off() -> Self {
        Self { on: false }
    }

    pub fn color(self, tone: TextTone, text: &str) -> String {
        if !self.on || text.is_empty() {
            return text.to_owned();
        }
        let number = match tone {
            TextTone::Good => "32",
            TextTone::Warn => "33",
            TextTone::Bad => "31",
            TextTone::Dim => "2",
            TextTone::Strong => "1",
        };
        format!("\x1b[{number}m{text}\x1b[0m")
    }
}
