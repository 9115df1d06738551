use super::*;

fn complaints(text: &str) -> Vec<String> {
    check(&Page::new("a.md", text)).unwrap()
}

#[test]
fn commands_are_read_like_a_shell_reads_them() {
    let words = |line| shell_commands(line).into_iter().map(|c| c.join("|")).collect::<Vec<_>>();
    assert_eq!(
        words("A=1 purelbctl get vips -o json | jq '.[] | .ip' # note"),
        ["purelbctl|get|vips|-o|json", "jq|.[] | .ip"]
    );
    assert_eq!(words("purelbctl status >out 2>/dev/null && echo ok"), ["purelbctl|status", "echo|ok"]);
    assert_eq!(words("# only a comment"), Vec::<String>::new());
    assert_eq!(lines("# one \\\n  two\nthree\n"), [(0, "# one   two".to_owned()), (2, "three".to_owned())]);
}

#[test]
fn commands_that_work_pass() {
    let page = "```console\n# purelbctl drain --dry-run\n$ purelbctl --node a explain \\\n    192.0.2.1 -o json\nNAME STATE\n```\n\
        Use `purelbctl --all status`, `purelbctl --node`, `purelbctl explain NAMESPACE/SERVICE` or `purelbd --check-config`.\n";
    assert_eq!(complaints(page), Vec::<String>::new());
}

#[test]
fn commands_that_do_not_are_named_with_their_line() {
    let found = complaints(
        "text\n```sh\nls\npurelbctl drian\n```\nand `purelbctl status --wach` or `purelbctl drian`\n`purelbd --frobnicate`\n",
    );
    assert_eq!(found.len(), 4, "{found:#?}");
    assert!(found[0].starts_with("a.md:4: purelbctl drian: "), "{found:#?}");
    assert_eq!(found[1], "a.md:6: purelbctl status --wach: there is no flag --wach");
    assert_eq!(found[2], "a.md:6: purelbctl drian: there is no command drian");
    assert_eq!(found[3], "a.md:7: purelbd --frobnicate: purelbd has no flag --frobnicate");
}
