//! The package's examples, as programs.

use std::{env, path::PathBuf};

/// The program of an example. `cargo test` builds them all, `cargo test --test e2e` none.
pub fn example(name: &str) -> PathBuf {
    let tests = env::current_exe().expect("this is a program");
    let profile = tests.ancestors().nth(2).expect("it is in target/<profile>/deps");
    let program = profile.join("examples").join(name);
    assert!(program.exists(), "example {name} is not built; run: cargo build --profile ci --examples");
    program
}
