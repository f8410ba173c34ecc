#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/encode.rs"]
mod encode;
#[path = "../../tests/support/outbox.rs"]
mod outbox;
#[path = "../targets.rs"]
mod targets;

fuzz_target!(|input: &[u8]| targets::template(input));
