//! Writes the CustomResourceDefinitions to deploy/k8s/crds; with `--check` only says
//! whether they are what the types say.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use purelb_api::crds;

fn main() -> io::Result<ExitCode> {
    let check = match env::args().nth(1).as_deref() {
        None => false,
        Some("--check") => true,
        Some(other) => {
            eprintln!("unknown argument {other:?}; known: --check");
            return Ok(ExitCode::FAILURE);
        }
    };
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/k8s/crds");
    let mut stale = false;
    for file in crds::all() {
        let path = dir.join(file.name);
        let wanted = file.yaml();
        if fs::read_to_string(&path).is_ok_and(|text| text == wanted) {
            continue;
        }
        if check {
            eprintln!("{} is stale: run `make crds`", path.display());
            stale = true;
        } else {
            fs::write(&path, wanted)?;
            eprintln!("wrote {}", path.display());
        }
    }
    Ok(if stale { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
