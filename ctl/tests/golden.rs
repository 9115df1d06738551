//! Every output format, compared with what was agreed. `UPDATE_GOLDEN=1` writes anew;
//! the difference is then for the reviewer to judge.

use std::path::Path;
use std::process::{Command, Stdio};

/// Runs the real program in the directory of the test data; what a user would see.
fn run(arguments: &[&str]) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let output = Command::new(env!("CARGO_BIN_EXE_purelbctl"))
        .args(arguments)
        .current_dir(data)
        .env_remove("KUBECONFIG")
        .env("PURELB_SOCKET", "/nonexistent/control.sock")
        .stdin(Stdio::null())
        .output()
        .expect("purelbctl runs");
    let code = output.status.code().map_or("signal".to_owned(), |c| c.to_string());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("its output is text");
    let errors: String = text(&output.stderr).lines().map(|l| format!("! {l}\n")).collect();
    format!("$ purelbctl {}\n{}{errors}=> {code}\n", arguments.join(" "), text(&output.stdout))
}

fn golden(name: &str, commands: &[&str]) {
    let seen: Vec<String> = commands.iter().map(|c| run(&c.split(' ').collect::<Vec<_>>())).collect();
    let seen = seen.join("\n");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return std::fs::write(path, seen).expect("the golden file can be written");
    }
    let agreed = std::fs::read_to_string(&path).expect("the golden file is there");
    assert!(seen == agreed, "{name}: not as agreed. Seen:\n{seen}\nAgreed:\n{agreed}");
}

#[test]
fn winner() {
    golden(
        "winner",
        &[
            "winner 192.168.1.100 -f leases.yaml",
            "winner 192.168.1.100 -f leases.yaml -o wide",
            "winner 192.168.1.100 -f leases.yaml -o json",
            "winner 192.168.1.100 -f leases.json -o json",
            "winner 192.168.1.101 fd00:1::f0 8.8.8.8 -f leases.yaml -o json",
            "winner 192.168.1.101 8.8.8.8 -f leases.yaml -o yaml",
            "winner 192.168.1.101 8.8.8.8 -f leases.yaml -o name",
            "winner 192.168.1.102 -f leases.yaml -o yaml --without node-c",
            "winner ::ffff:192.168.1.100 10.9.0.1 8.8.8.8 -f leases.yaml -f drained.yaml",
            "winner 192.168.1.100 -f leases.yaml --without nod-a",
            "winner 192.168.1.101 -f leases.yaml -f services.yaml -o name",
            "winner 192.168.1.0/24 -f leases.yaml",
            "winner 192.168.1.1 -f services.yaml",
            "winner 192.168.1.1 -f nothing.yaml",
        ],
    );
}

#[test]
fn explain() {
    golden(
        "explain",
        &[
            "explain 192.168.1.100 -f leases.yaml -f services.yaml -f groups.yaml",
            "explain shop/web -f leases.yaml -f services.yaml -f groups.yaml -o wide",
            "explain shop/web -f leases.yaml -f services.yaml -f groups.yaml -o json",
            "explain shop/web -f leases.yaml -f services.yaml -f groups.yaml -o yaml",
            "explain shop/web -f leases.yaml -f services.yaml -f groups.yaml -o name",
            "explain shop/only-here -f leases.yaml -f services.yaml -f groups.yaml",
            "explain shop/waiting -f services.yaml",
            "explain shop/inside -f services.yaml",
            "explain shop/far -f services.yaml -f groups.yaml",
            "explain shop/lost -f services.yaml -f leases.yaml",
            "explain 192.168.1.107 -f leases.yaml",
            "explain 192.168.1.107 -f leases.yaml -f services.yaml",
            "explain shop/wbe -f services.yaml",
            "explain web -f services.yaml",
        ],
    );
}

#[test]
fn validate() {
    golden(
        "validate",
        &[
            "validate -f groups.yaml -f leases.yaml --strict",
            "validate -f broken.yaml -f leases.yaml",
            "validate -f broken.yaml -f leases.yaml -o json",
            "validate -f broken.yaml -o name",
            "validate -f warned.yaml",
            "validate -f warned.yaml --strict",
            "validate -f leases.yaml",
        ],
    );
}

#[test]
fn migrate() {
    golden(
        "migrate",
        &[
            "migrate -f v1.yaml --local",
            "migrate -f v1.yaml --mapping mapping.yaml",
            "migrate -f v1.yaml --remote --mapping partial.yaml",
            "migrate -f v1.yaml --mapping partial.yaml",
            "migrate -f v1.yaml --mapping mistaken.yaml",
            "migrate -f v1.yaml",
            "migrate -f groups.yaml --local",
            "migrate --rollback groups.yaml",
        ],
    );
}

/// What `migrate` writes is what `validate` accepts.
#[test]
fn migrated_objects_are_valid() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("v2.yaml");
    let path = file.to_str().unwrap();
    assert!(run(&["migrate", "-f", "v1.yaml", "--remote", "--output-file", path]).ends_with("=> 0\n"));
    let checked = run(&["validate", "--strict", "-f", path]);
    assert!(checked.contains("4 ServiceGroups, 1 LBNodeAgents: 0 errors, 0 warnings"), "{checked}");
}

#[test]
fn the_rest() {
    golden(
        "rest",
        &[
            "version --client",
            "version --client -o json",
            "version --client -o yaml",
            "status",
            "get vips",
            "frobnicate",
        ],
    );
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completion", shell]);
        assert!(script.ends_with("=> 0\n") && script.contains("support-bundle"), "{shell}");
    }
}

#[test]
fn there_is_a_man_page_for_every_command() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("man");
    assert!(run(&["man", path.to_str().unwrap()]).ends_with("=> 0\n"));
    for page in ["purelbctl.1", "purelbctl-drain.1", "purelbctl-winner.1", "purelbctl-support-bundle.1"] {
        let text = std::fs::read_to_string(path.join(page)).unwrap();
        assert!(text.contains(".TH") && text.contains(".SH"), "{page}");
    }
}
