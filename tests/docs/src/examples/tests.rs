use super::*;

const GROUP: &str =
    "apiVersion: purelb.io/v2\nkind: ServiceGroup\nmetadata: {name: default, namespace: purelb-system}\n";

fn complaints(language: &str, text: &str) -> String {
    let page = Page::new("a.md", &format!("```{language}\n{text}\n```\n"));
    check(&page).unwrap().join("\n")
}

#[test]
fn good_examples_pass() {
    let good = format!("{GROUP}spec:\n  local:\n    v4pool: {{subnet: 192.0.2.0/24, pool: 192.0.2.8/29}}\n");
    assert_eq!(complaints("yaml", &good), "");
    assert_eq!(complaints("toml", "[lease]\nduration = \"12s\""), "");
    assert_eq!(complaints("text", ": not looked at ["), "");
}

#[test]
fn a_typing_mistake_in_an_object_is_found() {
    let typo = format!("{GROUP}spec:\n  local:\n    v4pol: {{subnet: 192.0.2.0/24, pool: 192.0.2.8/29}}\n");
    assert!(complaints("yaml", &typo).contains("v4pol"), "{}", complaints("yaml", &typo));
    let outside =
        format!("{GROUP}spec:\n  local:\n    v4pool: {{subnet: 192.0.2.0/24, pool: 198.51.100.0/29}}\n");
    assert!(complaints("yaml", &outside).contains("not inside the subnet"));
    assert!(complaints("yaml", "a: [").contains("neither YAML nor JSON"));
    let service = "kind: Service\nmetadata: {annotations: {purelb.io/adresses: x}}\nspec: {type: ClusterIP}";
    assert!(complaints("yaml", service).contains("no annotation purelb.io/adresses"));
    assert!(complaints("yaml", service).contains("not of type LoadBalancer"));
}

#[test]
fn settings_that_the_daemon_would_refuse_are_found() {
    assert!(
        complaints("toml", "[lease]\ndurations = \"20s\"").contains("there is no setting lease.durations")
    );
    assert!(complaints("toml", "[lease]\nduration = \"7s\"").contains("lease"));
}
