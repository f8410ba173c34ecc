//! Writes inputs for the fuzzer to start from: for `decoder` a stream that has every message, whole and message by message.
//!
//! `cargo run --manifest-path fuzz/Cargo.toml --bin seeds` from the repository's root.

use std::{fs, io, path::Path};

mod chunks;
mod corpus;
#[path = "../tests/support/encode.rs"]
mod encode;
#[path = "../tests/support/sample.rs"]
mod sample;

fn main() -> io::Result<()> {
    for (target, inputs) in corpus::seeds() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        fs::create_dir_all(&folder)?;
        for (number, input) in inputs.iter().enumerate() {
            fs::write(folder.join(format!("seed-{number:02}")), input)?;
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/decoder");
    fs::create_dir_all(&folder)?;
    let frames = sample::frames();
    let mut whole = Vec::new();
    let mut acknowledged = Vec::new();
    for frame in &frames {
        chunks::write_frame(&mut whole, frame);
        chunks::write_frame(&mut acknowledged, frame);
        chunks::write_acknowledgement(&mut acknowledged, 1);
    }
    fs::write(folder.join("whole"), whole)?;
    fs::write(folder.join("acknowledged"), acknowledged)?;
    for (number, frame) in frames.iter().enumerate() {
        let mut input = Vec::new();
        chunks::write_frame(&mut input, frame);
        fs::write(folder.join(format!("frame-{number:02}")), input)?;
    }
    Ok(())
}
