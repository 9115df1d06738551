use super::*;

fn complaints(records: &[(&str, &str)]) -> Vec<String> {
    let pages: Vec<Page> = records.iter().map(|(path, text)| Page::new(path, text)).collect();
    check(&pages)
}

#[test]
fn good_records_pass_and_other_pages_are_left_alone() {
    let good = "# 1. One\n\nDate: 2026-11-16. Status: in force.\n\ntext\n";
    let later = "# 2. Two\n\nDate: 2026-11-16, written down later. Status: replaced by 7.\n\ntext\n";
    let records = [
        ("README.md", "# Top\n"),
        ("docs/decisions/0001-one.md", good),
        ("docs/decisions/0002-two.md", later),
        ("docs/other.md", "# Other\n"),
    ];
    assert_eq!(complaints(&records), Vec::<String>::new());
}

#[test]
fn what_a_record_lacks_is_said() {
    let undated = complaints(&[("docs/decisions/0001-one.md", "# 1. One\n\nStatus: in force.\n\ntext\n")]);
    assert_eq!(undated.len(), 1, "{undated:?}");
    assert!(undated[0].starts_with("docs/decisions/0001-one.md:1: it should begin with "), "{undated:?}");
    let good = "# 2. Two\n\nDate: 2026-11-16. Status: in force.\n\ntext\n";
    assert_eq!(
        complaints(&[("docs/decisions/0002-two.md", good)]),
        [
            "docs/decisions/0002-two.md:1: its file's name should begin with 0001-",
            "docs/decisions/0002-two.md:1: it calls itself 2, and is 1",
        ]
    );
}
