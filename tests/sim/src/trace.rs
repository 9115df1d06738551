//! The event log: always a running hash, text only when asked for. A failing run is
//! repeated with text, since one seed is one run.

#[derive(Debug)]
pub struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub fn new(text: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, lines: text.then(Vec::new) }
    }

    /// Mixes one event's numbers into the hash (FNV-1a over 64-bit words).
    pub fn mix(&mut self, words: [u64; 3]) {
        for word in words {
            self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
            self.hash ^= self.hash >> 29;
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn wanted(&self) -> bool {
        self.lines.is_some()
    }

    pub fn line(&mut self, line: String) {
        if let Some(lines) = &mut self.lines {
            lines.push(line);
        }
    }

    pub fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
