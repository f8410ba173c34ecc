//! walpost's pure core, so that the sanitizer has nothing else to watch.

#[path = "../src/pipeline/mod.rs"]
pub mod pipeline;
