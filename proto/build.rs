//! Compiles the .proto files without a system `protoc`.

use std::error::Error;
use std::path::PathBuf;

use prost::Message;

const FILES: [&str; 4] = [
    "purelb/control/v1/control.proto",
    "purelb/control/v1/state.proto",
    "purelb/control/v1/actions.proto",
    "purelb/ipam/v1/ipam.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    for file in FILES {
        println!("cargo:rerun-if-changed={file}");
    }
    // With comments: the reference in docs/ is written from them.
    let mut compiler = protox::Compiler::new(["."])?;
    compiler.include_source_info(true).include_imports(true).open_files(FILES)?;
    let set = compiler.file_descriptor_set();
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), set.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(set)?;
    Ok(())
}
