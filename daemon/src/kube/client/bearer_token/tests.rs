use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::*;

/// A token as the API server makes them, but for its signature.
fn mk_token(issued: i64, expires: i64, issuer: &str, node: &str) -> String {
    let claims = json!({
        "iat": issued, "exp": expires, "iss": issuer, "sub": "system:serviceaccount:purelb-system:purelbd",
        "kubernetes.io": {
            "namespace": "purelb-system", "node": {"name": node, "uid": "u-\u{fe}\u{3f}"},
            "serviceaccount": {"name": "purelbd", "uid": "s"},
        },
    });
    let encoded = json!(ByteString(claims.to_string().into_bytes()));
    let payload = encoded.as_str().unwrap().trim_end_matches('=').replace('+', "-").replace('/', "_");
    format!("h.{payload}.s")
}

#[test]
fn a_token_says_when_it_ends_and_whose_it_is() {
    let claims = TokenClaims::of(&mk_token(100, 700, "i", "n1")).unwrap();
    assert_eq!((claims.issued, claims.expires, claims.lifetime()), (100, 700, 600));
    assert_eq!(claims.subject.serviceaccount.name, "purelbd");
    assert_eq!(claims.subject.node.unwrap().name, "n1");
    for text in ["", "opaque", "a.b", "a.!!.c", "a.e30.c"] {
        assert_eq!(TokenClaims::of(text), None, "{text}");
    }
}

#[test]
fn the_newest_token_of_the_same_bearer_is_shown() {
    let given = mk_token(100, 700, "i", "n1");
    let own = mk_token(500, 1100, "i", "n1");
    assert_eq!(newest_token(&given, None, None), given);
    assert_eq!(newest_token(&given, Some(&own), None), own);
    assert_eq!(newest_token(&given, Some(&own), Some(&own)), given, "the server took ours no more");
    assert_eq!(newest_token(&given, Some(&own), Some(&given)), own);
    let fresh = mk_token(900, 1500, "i", "n1");
    assert_eq!(newest_token(&fresh, Some(&own), None), fresh, "the administrator brought a new one");
    for stranger in [mk_token(500, 1100, "another cluster", "n1"), mk_token(500, 1100, "i", "n2")] {
        assert_eq!(newest_token(&given, Some(&stranger), Some(&given)), given);
    }
    assert_eq!(newest_token("opaque", Some(&own), None), "opaque");
    assert_eq!(newest_token("opaque", Some(&own), Some("opaque")), own, "better than nothing");
}

#[test]
fn what_we_asked_for_is_private_and_survives() {
    let dir = tempfile::tempdir().unwrap();
    let (file, own) = (dir.path().join("token"), dir.path().join("own"));
    fs::write(&file, format!(" {}\n", mk_token(100, 700, "i", "n1"))).unwrap();
    let token = BearerToken::open(GivenToken::File(file.clone()), Some(own.clone())).unwrap();
    assert_eq!(token.claims().unwrap().issued, 100);
    for issued in [500, 600] {
        token.store_own(&mk_token(issued, 1100, "i", "n1")).unwrap();
        assert_eq!(token.claims().unwrap().issued, issued);
    }
    assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no leftovers");
    assert!(token.header().is_sensitive());
    token.refused();
    assert_eq!(token.claims().unwrap().issued, 100);

    fs::remove_file(&file).unwrap();
    assert_eq!(token.claims().unwrap().issued, 100, "while it is being replaced");
    let again = BearerToken::open(GivenToken::File(file.clone()), Some(own)).unwrap();
    assert_eq!(again.claims().unwrap().issued, 600, "ours is there");
    let error = BearerToken::open(GivenToken::File(file), None).unwrap_err();
    assert!(error.to_string().contains("token"), "{error}");
}
