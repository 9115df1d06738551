use serde_json::json;

use super::*;

fn kubeconfig(text: serde_json::Value) -> Kubeconfig {
    Kubeconfig::from_yaml(&text.to_string()).unwrap()
}

fn cluster(name: &str, server: &str, ca: Option<&str>) -> serde_json::Value {
    json!({"name": name, "cluster": {"server": server, "certificate-authority-data": ca}})
}

fn context(name: &str, cluster: &str, user: &str) -> serde_json::Value {
    json!({"name": name, "context": {"cluster": cluster, "user": user}})
}

#[test]
fn only_contexts_that_lead_to_the_same_cluster_are_further_endpoints() {
    let config = kubeconfig(json!({
        "current-context": "one",
        "clusters": [
            cluster("a", "https://192.0.2.1", Some("Q0E=")),
            cluster("b", "https://192.0.2.2", Some("Q0E=")),
            cluster("elsewhere", "https://198.51.100.1", Some("T1RIRVI=")),
            cluster("not-ours", "https://192.0.2.3", Some("Q0E=")),
            cluster("unused", "https://192.0.2.4", Some("Q0E=")),
        ],
        "contexts": [
            context("one", "a", "me"),
            context("two", "b", "me"),
            context("two-again", "b", "me"),
            context("other-cluster", "elsewhere", "me"),
            context("other-user", "not-ours", "somebody"),
        ],
        "users": [{"name": "me", "user": {"token": "t"}}, {"name": "somebody", "user": {"token": "u"}}],
    }));
    assert_eq!(other_endpoints(&config, None), ["b"]);
    assert_eq!(other_endpoints(&config, Some("two")), ["a"]);
    assert!(other_endpoints(&config, Some("other-cluster")).is_empty());
    assert!(other_endpoints(&config, Some("none")).is_empty());
}

#[test]
fn without_an_authority_nothing_says_that_two_clusters_are_one() {
    let config = kubeconfig(json!({
        "current-context": "one",
        "clusters": [cluster("a", "http://192.0.2.1", None), cluster("b", "http://192.0.2.2", None)],
        "contexts": [context("one", "a", "me"), context("two", "b", "me")],
        "users": [{"name": "me", "user": {}}],
    }));
    assert!(other_endpoints(&config, None).is_empty());
}

#[tokio::test]
async fn servers_of_the_settings_replace_the_address_and_keep_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config");
    let token = dir.path().join("token");
    std::fs::write(&token, " t \n").unwrap();
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [cluster("a", "https://192.0.2.1:6443", None)],
        "contexts": [context("one", "a", "me")],
        "users": [{"name": "me", "user": {"tokenFile": token}}],
    });
    std::fs::write(&file, text.to_string()).unwrap();
    let mut access = ApiAccess::kubeconfig(&file);
    access.servers = vec!["https://192.0.2.7:6443".into(), "https://[2001:db8::7]:6443".into()];
    let endpoints = access.endpoints().await.unwrap();
    let urls: Vec<String> = endpoints.iter().map(|e| e.config.cluster_url.to_string()).collect();
    assert_eq!(urls, ["https://192.0.2.7:6443/", "https://[2001:db8::7]:6443/"]);
    for endpoint in &endpoints {
        assert_eq!(endpoint.token.as_ref().unwrap().header(), "Bearer t");
        assert!(endpoint.config.auth_info.token_file.is_none(), "read by us alone");
        assert!(!endpoint.config.default_retry);
    }
    // The same inside the kubeconfig, and the authority in a file that somebody replaces.
    let authority = dir.path().join("ca.crt");
    std::fs::write(&authority, "one").unwrap();
    let mut inside = text;
    inside["users"][0]["user"] = json!({"token": "inline"});
    std::fs::write(&file, inside.to_string()).unwrap();
    let endpoints = access.endpoints().await.unwrap();
    assert_eq!(endpoints[1].token.as_ref().unwrap().header(), "Bearer inline");
    inside["clusters"][0]["cluster"]["certificate-authority"] = json!(authority);
    std::fs::write(&file, inside.to_string()).unwrap();
    let before = access.stamp(&endpoints);
    assert_eq!(before, access.stamp(&endpoints));
    std::fs::write(&authority, "another").unwrap();
    assert_ne!(before, access.stamp(&endpoints));
}
