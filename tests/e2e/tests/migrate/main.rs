//! From v1 to v2 as `docs/operate.md` says it, on an API server that knows only v1 when it
//! begins: the guide's own commands, in its order, and the way back.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use purelb_e2e::purelbctl;
use purelb_kit::controlplane::{ControlPlane, manifests};
use serde_json::{Value, json};

const PLURALS: [(&str, &str); 2] = [("ServiceGroup", "servicegroups"), ("LBNodeAgent", "lbnodeagents")];

/// The guide's shell blocks under a heading, until the next one of that or a higher level.
fn steps(guide: &str, heading: &str) -> Vec<String> {
    let level = heading.chars().take_while(|c| *c == '#').count();
    let ends = |line: &str| {
        let hashes = line.chars().take_while(|c| *c == '#').count();
        (1..=level).contains(&hashes) || (hashes == level + 1 && heading.starts_with("## "))
    };
    let section = guide.lines().skip_while(|line| *line != heading).skip(1);
    let mut found = Vec::new();
    let mut open: Option<String> = None;
    for line in section {
        match (&mut open, line) {
            (None, line) if ends(line) => break,
            (None, "```sh") => open = Some(String::new()),
            (Some(_), "```") => found.extend(open.take()),
            (Some(block), line) => *block += &format!("{line}\n"),
            _ => {}
        }
    }
    found
}

/// An operator's shell in a directory of its own, with the source tree's `deploy` at hand.
struct Shell {
    dir: PathBuf,
    kubeconfig: PathBuf,
    path: std::ffi::OsString,
}

impl Shell {
    fn new(plane: &ControlPlane, name: &str) -> Result<Self> {
        let dir = plane.dir().join(name);
        std::fs::create_dir_all(&dir)?;
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
        std::os::unix::fs::symlink(tree.join("deploy"), dir.join("deploy"))?;
        let ctl = purelbctl()?;
        let programs = ctl.parent().context("a program lies in a directory")?.to_owned();
        let before = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([programs].into_iter().chain(std::env::split_paths(&before)))?;
        Ok(Self { dir, kubeconfig: plane.admin_kubeconfig(&plane.url())?, path })
    }

    /// Whether it went well, and everything it said.
    fn try_run(&self, script: &str) -> Result<(bool, String)> {
        let (code, said) = self.code(script)?;
        Ok((code == Some(0), said))
    }

    /// How it ended, and everything it said.
    fn code(&self, script: &str) -> Result<(Option<i32>, String)> {
        let out = Command::new("bash")
            .args(["-euxo", "pipefail", "-c", script])
            .current_dir(&self.dir)
            .env("PATH", &self.path)
            .env("KUBECONFIG", &self.kubeconfig)
            .output()?;
        let said = [out.stdout, out.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
        Ok((out.status.code(), said))
    }

    fn run(&self, script: &str) -> Result<String> {
        let (good, said) = self.try_run(script)?;
        ensure!(good, "{script}\n{said}");
        Ok(said)
    }
}

async fn objects(client: &Client, version: &str) -> Result<Vec<(String, Value)>> {
    let mut found = Vec::new();
    for (kind, plural) in PLURALS {
        let ar =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("purelb.io", version, kind), plural);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ar);
        for object in api.list(&ListParams::default()).await?.items {
            let at = format!("{kind} {}/{}", object.namespace().unwrap_or_default(), object.name_any());
            found.push((at, object.data["spec"].clone()));
        }
    }
    Ok(found)
}

/// What is stored, with its versions: whoever wrote anything shows.
async fn versions(client: &Client) -> Result<Vec<(String, Option<String>)>> {
    let mut found = Vec::new();
    for (kind, plural) in PLURALS {
        let ar = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("purelb.io", "v1", kind), plural);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ar);
        let list = api.list(&ListParams::default()).await?;
        found.extend(list.items.iter().map(|o| (o.name_any(), o.resource_version())));
    }
    Ok(found)
}

async fn definitions(client: &Client) -> Result<Vec<Value>> {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut found = Vec::new();
    for (_, plural) in PLURALS {
        let crd = api.get(&format!("{plural}.purelb.io")).await?;
        found.push(json!({"spec": crd.spec, "stored": crd.status.context("a status")?.stored_versions}));
    }
    Ok(found)
}

fn spec<'a>(objects: &'a [(String, Value)], at: &str) -> Result<&'a Value> {
    objects
        .iter()
        .find(|(name, _)| name == at)
        .map(|(_, spec)| spec)
        .with_context(|| format!("{at}: {objects:#?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_moves_a_v1_cluster_to_v2_and_back() -> Result<()> {
    let plane = ControlPlane::start().await?;
    println!("on {}", plane.version());
    let client = plane.admin()?;
    let guide = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate.md"))?;
    let (forth, back) = (steps(&guide, "## From v1 to v2"), steps(&guide, "### Back to v1"));
    assert_eq!(forth.len(), 7, "the guide has seven steps: {forth:#?}");
    assert_eq!(back.len(), 1, "{back:#?}");

    let shell = Shell::new(&plane, "first")?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/migrate");
    shell.run(&format!(
        "kubectl apply -f {0}/v1.yaml && kubectl wait --for=condition=Established crd --all",
        here.display()
    ))?;
    shell.run(&format!("kubectl apply -f {}/objects.yaml", here.display()))?;
    let (v1, old) = (objects(&client, "v1").await?, definitions(&client).await?);
    assert_eq!(v1.len(), 3);

    // What the guide's first readers tried: the API server refuses definitions without v1.
    let (good, said) = shell.try_run("kubectl apply --server-side --force-conflicts -k deploy/k8s/crds")?;
    assert!(!good && said.contains("storedVersions"), "{said}");

    for (n, step) in forth[..6].iter().enumerate() {
        shell.run(step).with_context(|| format!("step {}", n + 1))?;
        if n < 2 {
            assert_eq!(definitions(&client).await?, old, "step {} changes nothing", n + 1);
        }
        let readable = objects(&client, "v1").await?;
        assert!(
            v1.iter().all(|o| readable.contains(o)),
            "after step {} v1 is as it was: {readable:#?}",
            n + 1
        );
    }
    let v2 = objects(&client, "v2").await?;
    carried_over(&v2, "purelb-system")?;

    // The last step, refused while it would lose something.
    let (good, said) = shell.try_run("purelbctl migrate --finish")?;
    assert!(!good && said.contains("purelb/bgp") && said.contains("spec.local.subnet"), "{said}");
    assert!(said.contains("nothing was changed"), "{said}");
    // Once more is the same, not an error, and finds nothing new to do.
    let (good, said) = shell
        .try_run("purelbctl migrate --local --apply --to-namespace purelb-system --backup again.yaml")?;
    assert!(good, "{said}");

    shell.run(&back[0]).context("back to v1")?;
    assert_eq!(objects(&client, "v1").await?, v1, "the objects are back, and nothing else");
    assert_eq!(definitions(&client).await?, old, "so are the definitions");

    // And forth for good.
    let shell = Shell::new(&plane, "second")?;
    for (n, step) in forth.iter().enumerate() {
        shell.run(step).with_context(|| format!("step {} again", n + 1))?;
    }
    carried_over(&objects(&client, "v2").await?, "purelb-system")?;
    assert!(objects(&client, "v1").await.is_err(), "v1 is gone");
    for definition in definitions(&client).await? {
        assert_eq!(definition["stored"], json!(["v2"]));
        assert_eq!(definition["spec"]["versions"].as_array().map(Vec::len), Some(1));
    }
    let (good, said) = shell.try_run("purelbctl migrate --rollback v1-backup.yaml")?;
    assert!(!good && said.contains("v1 is gone"), "{said}");
    Ok(())
}

/// Without `--to-namespace` the v2 objects take the place of the v1 ones.
#[tokio::test(flavor = "multi_thread")]
async fn in_place_nothing_is_written_unasked_and_objects_are_replaced_as_a_whole() -> Result<()> {
    let plane = ControlPlane::start().await?;
    let client = plane.admin()?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/migrate");
    for file in ["v1.yaml", "objects.yaml"] {
        manifests::apply(&client, &manifests::read_file(&here.join(file))?).await?;
    }
    let (v1, old) = (objects(&client, "v1").await?, definitions(&client).await?);
    let shell = Shell::new(&plane, "in-place")?;
    let backup = shell.dir.join("v1-objects.yaml");
    shell.run("purelbctl migrate --serve-both --backup v1-backup.yaml")?;
    let untouched = versions(&client).await?;

    let shown = shell.run("purelbctl migrate --remote --output-file v2.yaml && cat v2.yaml")?;
    assert!(shown.contains("remote:"), "{shown}");
    assert_eq!(versions(&client).await?, untouched, "nothing is written without --apply");

    std::fs::write(shell.dir.join("half.yaml"), "default: local\n")?;
    for words in ["", "--mapping half.yaml"] {
        let (code, said) =
            shell.code(&format!("purelbctl migrate {words} --apply --backup v1-objects.yaml"))?;
        assert_eq!(code, Some(1), "{words}: {said}");
        assert!(said.contains("Undecided: ") && said.contains("purelb/bgp"), "{words}: {said}");
        assert!(said.contains("purelb/default") == words.is_empty(), "only what is undecided: {said}");
        assert_eq!(versions(&client).await?, untouched, "one that is undecided stops them all");
        assert!(!backup.exists(), "and nothing was saved");
    }

    std::fs::write(shell.dir.join("decisions.yaml"), "default: local\npurelb/bgp: remote\n")?;
    let apply = "purelbctl migrate --mapping decisions.yaml --apply --backup v1-objects.yaml";
    shell.run(apply)?;
    let v2 = objects(&client, "v2").await?;
    assert_eq!(v2.len(), v1.len(), "in place of the old ones: {v2:#?}");
    carried_over(&v2, "purelb")?;
    // Read as v1, whose schema keeps every field now: a merge would show the old ones.
    let stored = objects(&client, "v1").await?;
    let keys = |spec: &Value| spec.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
    assert!(spec(&stored, "ServiceGroup purelb/bgp")?["local"].is_null(), "{stored:#?}");
    for pool in ["subnet", "pool", "aggregation"] {
        assert!(
            spec(&stored, "ServiceGroup purelb/default")?["local"][pool].is_null(),
            "{pool}: {stored:#?}"
        );
    }
    let agent = keys(&spec(&stored, "LBNodeAgent purelb/default")?["local"]).context("a map")?;
    assert!(
        !agent.iter().any(|key| ["localint", "extlbint", "sendgarp"].contains(&key.as_str())),
        "{agent:?}"
    );

    let saved = std::fs::read_to_string(&backup)?;
    assert!(saved.contains("purelb.io/v1") && saved.contains("203.0.113.0/28"), "{saved}");
    let written = versions(&client).await?;
    let twice = "purelbctl migrate -f v1-objects.yaml --remote --apply --backup v1-objects.yaml";
    let (code, said) = shell.code(twice)?;
    assert!(code == Some(1) && said.contains("nothing was changed"), "{said}");
    assert_eq!(versions(&client).await?, written, "a backup is never overwritten");
    assert_eq!(std::fs::read_to_string(&backup)?, saved);

    shell.run("purelbctl migrate --rollback v1-backup.yaml")?;
    assert_eq!(objects(&client, "v1").await?, v1, "the objects are back as a whole");
    assert_eq!(definitions(&client).await?, old, "so are the definitions");
    Ok(())
}

/// Everything v1 said is in the v2 objects of this namespace.
fn carried_over(v2: &[(String, Value)], namespace: &str) -> Result<()> {
    let spec = |kind: &str, name: &str| spec(v2, &format!("{kind} {namespace}/{name}"));
    let local = &spec("ServiceGroup", "default")?["local"];
    assert_eq!(local["v4pool"]["pool"], "192.0.2.100-192.0.2.110");
    assert_eq!(local["v6pool"]["pool"], "2001:db8:1::f:0/112");
    let remote = &spec("ServiceGroup", "bgp")?["remote"];
    assert_eq!(
        remote["v4pool"],
        json!({"subnet": "203.0.113.0/24", "pool": "203.0.113.0/28", "aggregation": "/32"})
    );
    let agent = &spec("LBNodeAgent", "default")?["local"];
    assert_eq!(
        (&agent["localInterface"], &agent["dummyInterface"]),
        (&json!("eth[0-9]+"), &json!("kube-lb1"))
    );
    let garp = &agent["garpConfig"];
    // garpConfig counts over sendgarp, as in v1.
    assert_eq!((&garp["enabled"], &garp["count"]), (&json!(true), &json!(5)));
    assert_eq!((&garp["interval"], &garp["initialDelay"]), (&json!("1000ms"), &json!("200ms")));
    let addresses = &agent["addressConfig"];
    assert_eq!(addresses["localInterface"], json!({"validLifetime": 120, "noPrefixRoute": true}));
    assert_eq!(addresses["dummyInterface"], json!({"validLifetime": 0, "noPrefixRoute": false}));
    Ok(())
}
