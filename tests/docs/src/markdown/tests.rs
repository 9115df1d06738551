use super::*;

#[test]
fn headings_become_anchors_as_on_github() {
    let page =
        Page::new("a.md", "# Who may use it?\n## `Foo` & [bar](x.md)\n## Twice\n## Twice\n#no heading\n");
    assert_eq!(page.anchors(), ["who-may-use-it", "foo--bar", "twice", "twice-1"]);
}

#[test]
fn blocks_keep_their_language_and_their_line() {
    let page = Page::new("a.md", "text\n```yaml\na: 1\n```\n\n````text\n```\n````\n# after\n");
    assert_eq!(page.blocks[0], Block { line: 3, language: "yaml".into(), text: "a: 1\n".into() });
    assert_eq!(page.blocks[1].text, "```\n");
    assert_eq!(page.headings(), [(9, "after".to_owned())]);
}

#[test]
fn links_are_found_in_prose_and_not_in_code() {
    let text = "[a](b.md#c) ![p](d.svg) `[no](link)`\n[`code`](e.md)\n\n[named]: f.md\n```\n[x](y)\n```\n";
    let targets: Vec<String> = Page::new("a.md", text).links().into_iter().map(|(_, t)| t).collect();
    assert_eq!(targets, ["b.md#c", "d.svg", "e.md", "f.md"]);
}
