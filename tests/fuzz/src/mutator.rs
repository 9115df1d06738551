//! Makes new inputs from a corpus, always the same ones from the same seed.
//!
//! Without coverage to guide it, it relies on good examples: bytes and words are changed
//! at random, and JSON also by its structure, so that an object stays an object.

use serde_json::Value;

use crate::corpus::CorpusEntry;

/// Mutated inputs end here: time is better spent on many than on long ones.
const LONGEST_INPUT: usize = 16 << 10;
/// As many changes as are made to one example.
const MOST_CHANGES: usize = 6;

/// What parsers tend to trip over, and words of our grammars.
const WORDS: &[&str] = &[
    "",
    " ",
    ",",
    "-",
    "/",
    ":",
    ".",
    "\n",
    "\t",
    "\0",
    "0",
    "1",
    "-1",
    "00",
    "255",
    "256",
    "65536",
    "2147483648",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "0.0000000000000000001",
    "1e309",
    "NaN",
    "null",
    "true",
    "{}",
    "[]",
    "[[[[",
    "\"",
    "\\",
    "\\u0000",
    "\u{e9}",
    "\u{202e}",
    "\u{1f600}",
    "default",
    "none",
    "any",
    "ms",
    "s",
    "m",
    "h",
    "500y",
    "192.0.2.1",
    "192.0.2.0/24",
    "192.0.2.255",
    "10.0.0.0-10.255.255.255",
    "255.255.255.255",
    "0.0.0.0/0",
    "::",
    "::/0",
    "::ffff:192.0.2.1",
    "::ffff:0:0/96",
    "2001:db8::1",
    "2001:db8::/64",
    "fe80::1",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    "&a",
    "*a",
    "---\n",
    "!!binary",
    "[lease]\n",
    "= ",
];

/// SplitMix64: small, and good enough to choose with.
#[derive(Clone, Debug)]
struct RandomNumbers(u64);

impl RandomNumbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, and 0 below 0.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.below(WORDS.len())]
    }
}

#[derive(Clone, Debug)]
pub struct InputMutator<'a> {
    random: RandomNumbers,
    corpus: &'a [CorpusEntry],
}

impl<'a> InputMutator<'a> {
    pub fn new(seed: u64, corpus: &'a [CorpusEntry]) -> Self {
        Self { random: RandomNumbers(seed), corpus }
    }

    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.example().to_vec();
        let changes = 1 + self.random.below(MOST_CHANGES);
        if self.random.below(2) == 0
            && let Ok(mut value) = serde_json::from_slice::<Value>(&input)
        {
            for _ in 0..changes {
                self.change_json(&mut value);
            }
            input = value.to_string().into_bytes();
            // Most of these stay well-formed, which gets them past the JSON parser.
            if self.random.below(8) == 0 {
                self.change_bytes(&mut input);
            }
        } else {
            for _ in 0..changes {
                self.change_bytes(&mut input);
            }
        }
        input.truncate(LONGEST_INPUT);
        input
    }

    fn example(&mut self) -> &'a [u8] {
        let corpus = self.corpus;
        corpus.get(self.random.below(corpus.len())).map_or(&[], |entry| &entry.bytes)
    }

    fn change_bytes(&mut self, input: &mut Vec<u8>) {
        let at = self.random.below(input.len() + 1);
        let length = 1 + self.random.below(1 << self.random.clone().below(6));
        let end = (at + length).min(input.len());
        match self.random.below(9) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << (self.random.byte() & 7);
                }
            }
            1 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = self.random.byte();
                }
            }
            2 => input.insert(at, self.random.byte()),
            3 => drop(input.drain(at..end)),
            4 => input.truncate(at),
            5 => {
                let copied = input[at..end].to_vec();
                let to = self.random.below(input.len() + 1);
                input.splice(to..to, copied);
            }
            6 => {
                let word = self.random.word();
                input.splice(at..at, word.bytes());
            }
            7 => {
                let word = self.random.word();
                input.splice(at..end, word.bytes());
            }
            _ => {
                let other = self.example();
                let from = self.random.below(other.len() + 1);
                let to = (from + 2 * length).min(other.len());
                input.splice(at..end, other[from..to].iter().copied());
            }
        }
    }

    fn change_json(&mut self, value: &mut Value) {
        let mut count = 0;
        count_nodes(value, &mut count);
        let mut chosen = self.random.below(count);
        let donor = self.donor(value, count);
        if let Some(node) = nth_node(value, &mut chosen) {
            self.change_node(node, donor);
        }
    }

    /// A part of the same object, to stand where it does not belong.
    fn donor(&mut self, value: &mut Value, count: usize) -> Value {
        let mut chosen = self.random.below(count);
        nth_node(value, &mut chosen).map_or(Value::Null, |node| node.clone())
    }

    fn change_node(&mut self, node: &mut Value, donor: Value) {
        match (self.random.below(8), &mut *node) {
            (0, _) => *node = donor,
            (1, _) => {
                let word = self.random.word();
                *node = serde_json::from_str(word).unwrap_or_else(|_| word.into());
            }
            (2 | 3, Value::Array(list)) => {
                if self.random.below(2) == 0 && !list.is_empty() {
                    list.remove(self.random.below(list.len()));
                } else {
                    list.push(donor);
                }
            }
            (2..=4, Value::Object(map)) => {
                let at = self.random.below(map.len());
                if let Some(key) = map.keys().nth(at).cloned() {
                    map.remove(&key);
                }
            }
            (5, Value::Object(map)) => drop(map.insert(self.random.word().to_owned(), donor)),
            (_, Value::Number(_)) => {
                let number = self.random.next() as i64;
                *node = (number >> self.random.below(64)).into();
            }
            (_, Value::Bool(value)) => *value = !*value,
            (_, Value::String(text)) => {
                let mut bytes = std::mem::take(text).into_bytes();
                self.change_bytes(&mut bytes);
                *text = String::from_utf8_lossy(&bytes).into_owned();
            }
            _ => {}
        }
    }
}

fn count_nodes(value: &Value, count: &mut usize) {
    *count += 1;
    match value {
        Value::Array(list) => list.iter().for_each(|v| count_nodes(v, count)),
        Value::Object(map) => map.values().for_each(|v| count_nodes(v, count)),
        _ => {}
    }
}

fn nth_node<'v>(value: &'v mut Value, left: &mut usize) -> Option<&'v mut Value> {
    if *left == 0 {
        return Some(value);
    }
    *left -= 1;
    match value {
        Value::Array(list) => list.iter_mut().find_map(|v| nth_node(v, left)),
        Value::Object(map) => map.values_mut().find_map(|v| nth_node(v, left)),
        _ => None,
    }
}
