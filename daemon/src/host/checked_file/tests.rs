use std::path::Path;

use super::*;

const FORMAT: &str = "purelb-test 1";
const LARGEST: u64 = 1000;

fn at(dir: &Path) -> CheckedFile {
    CheckedFile::new(dir.join("words"), FORMAT, LARGEST, "the words")
}

fn any(_: &Vec<String>) -> Option<String> {
    None
}

fn words(count: usize) -> Vec<String> {
    vec!["word".to_owned(); count]
}

#[test]
fn what_was_written_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = at(dir.path());
    assert_eq!(file.read(any), None, "there is none yet, which is no fault");
    assert!(!dir.path().join("words.damaged").exists());
    file.write(&file.encode(&words(2)).unwrap()).unwrap();
    assert_eq!(file.read(any), Some(words(2)));
    file.write(&file.encode(&words(3)).unwrap()).unwrap();
    assert_eq!(file.read(any), Some(words(3)));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["words"], "nothing half written stays beside it");
}

#[test]
fn a_damaged_one_is_set_aside_and_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let good = at(dir.path()).encode(&words(2)).unwrap();
    let changed = |edit: fn(&mut Vec<u8>)| {
        let mut text = good.clone();
        edit(&mut text);
        text
    };
    let signed =
        |body: &str| [format!("{FORMAT} {}\n", digest(body.as_bytes())).as_bytes(), body.as_bytes()].concat();
    let huge = signed(&format!("[\"{}\"]", "x".repeat(2000)));
    let cases: [(&str, Vec<u8>); 8] = [
        ("empty", vec![]),
        ("cut off", changed(|t| t.truncate(t.len() - 3))),
        ("one bit", changed(|t| *t.last_mut().unwrap() ^= 1)),
        ("a later version", changed(|t| t[FORMAT.len() - 1] = b'2')),
        ("a longer version", changed(|t| t.insert(FORMAT.len(), b'0'))),
        ("not ours", b"[lease]\nduration = 1\n".to_vec()),
        ("signed nonsense", signed("7")),
        ("huge", huge),
    ];
    for (what, text) in cases {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("words"), &text).unwrap();
        assert_eq!(at(dir.path()).read(any), None, "{what}");
        assert_eq!(fs::read(dir.path().join("words.damaged")).unwrap(), text, "{what}");
        assert!(!dir.path().join("words").exists(), "{what}");
    }
}

#[test]
fn one_of_somebody_else_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let file = at(dir.path());
    file.write(&file.encode(&words(2)).unwrap()).unwrap();
    let wrong = |content: &Vec<String>| (content.len() == 2).then(|| "of another node".to_owned());
    assert_eq!(file.read(wrong), None);
    assert!(dir.path().join("words.damaged").exists());
}

#[test]
fn what_would_not_be_read_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let error = at(dir.path()).encode(&words(500)).unwrap_err().to_string();
    assert!(error.contains("more than is ever read"), "{error}");
}

/// Whoever reads while it is replaced sees one or the other.
#[test]
fn a_reader_beside_the_writer_sees_a_whole_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = at(dir.path());
    file.write(&file.encode(&words(1)).unwrap()).unwrap();
    std::thread::scope(|scope| {
        let writer = file.clone();
        let written = scope.spawn(move || {
            for round in 0..50 {
                writer.write(&writer.encode(&words(1 + round % 5)).unwrap()).unwrap();
            }
        });
        while !written.is_finished() {
            let read = file.read(any).expect("a whole one is there at any time");
            assert!((1..=5).contains(&read.len()), "{read:?}");
        }
    });
}
