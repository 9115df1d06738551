//! The reference says what the files say, and the files say something of everything.

use prost::Message;
use prost_types::FileDescriptorSet;

#[test]
fn the_reference_is_fresh() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/api.md");
    let stored = std::fs::read_to_string(path).expect("docs/api.md");
    let now = purelb_proto::reference::markdown();
    assert!(stored == now, "run `cargo run -p purelb-proto --example reference` and commit docs/api.md");
}

/// Every row of the reference's tables ends in words, not in an empty cell.
#[test]
fn everything_is_documented() {
    let text = purelb_proto::reference::markdown();
    let bare: Vec<&str> = text.lines().filter(|l| l.ends_with("|  |") && !l.contains("---")).collect();
    assert!(bare.is_empty(), "no comment: {bare:#?}");
    let headings: Vec<&str> = text.lines().collect();
    let silent: Vec<&&str> =
        headings.windows(3).filter(|w| w[0].starts_with("### ") && w[2].is_empty()).map(|w| &w[0]).collect();
    assert!(silent.is_empty(), "no comment: {silent:#?}");
}

/// A number that is used twice, or moved, would be read wrongly by older programs.
#[test]
fn field_numbers_run_without_gaps() {
    let set = FileDescriptorSet::decode(purelb_proto::DESCRIPTORS).unwrap();
    for message in set.file.iter().flat_map(|f| &f.message_type) {
        let mut numbers: Vec<i32> = message.field.iter().map(|f| f.number()).collect();
        let order = numbers.clone();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers, order, "{}: in order, each once", message.name());
        assert_eq!(numbers.last().copied().unwrap_or(0), numbers.len() as i32, "{}", message.name());
    }
}
