use super::*;

#[test]
fn what_is_not_there_is_named_with_its_line() {
    let tree = tempfile::tempdir().unwrap();
    std::fs::create_dir(tree.path().join("docs")).unwrap();
    std::fs::write(tree.path().join("README.md"), "").unwrap();
    std::fs::write(tree.path().join("docs/a.md"), "").unwrap();
    let readme = Page::new("README.md", "# Top\n[a](docs/a.md#one) [web](https://example.com/x#y)\n");
    let text =
        "# One\n[up](../README.md#top) [here](#one)\n[gone](b.md)\n[no](../README.md#no)\n[out](../../x)\n";
    let found = check(tree.path(), &[readme, Page::new("docs/a.md", text)]);
    assert_eq!(
        found,
        [
            "docs/a.md:3: b.md: there is no docs/b.md",
            "docs/a.md:4: ../README.md#no: README.md has no heading #no",
            "docs/a.md:5: ../../x leads out of the source tree",
        ]
    );
}

#[test]
fn a_page_nobody_links_to_is_lost() {
    let index = Page::new(INDEX, "[a](a.md)\n");
    let pages = [
        index,
        Page::new("docs/a.md", "[b](x/b.md)"),
        Page::new("docs/x/b.md", ""),
        Page::new("docs/c.md", ""),
    ];
    assert_eq!(unreachable(&pages), ["docs/c.md: no link leads there from docs/README.md"]);
}
