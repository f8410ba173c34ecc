//! The fuzzer's targets without the fuzzer: its seeds, and mutations of them.

#[path = "../fuzz/corpus.rs"]
mod corpus;
#[path = "support/encode.rs"]
mod encode;
#[path = "support/outbox.rs"]
mod outbox;
#[path = "../fuzz/targets.rs"]
mod targets;

use proptest::{collection::vec, prelude::*, sample::Index};

/// What happens to an input at a place: a byte is changed, bytes go, or a piece of another input comes in.
#[derive(Clone, Debug)]
enum Mutation {
    Set(Index, u8),
    Cut(Index, u8),
    Splice(Index, Index, Index, u8),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (any::<Index>(), prop::sample::select(b"\0\n\"'\\${}[]()*+?.:/@=&%-,#|^ 09".to_vec()))
            .prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (any::<Index>(), 1..16_u8).prop_map(|(at, len)| Mutation::Cut(at, len)),
        (any::<Index>(), any::<Index>(), any::<Index>(), 1..32_u8)
            .prop_map(|(at, other, from, len)| Mutation::Splice(at, other, from, len)),
    ]
}

fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], mutation: &Mutation) {
    match mutation {
        _ if input.is_empty() => {}
        Mutation::Set(at, byte) => {
            let at = at.index(input.len());
            input[at] = *byte;
        }
        Mutation::Cut(at, len) => {
            let at = at.index(input.len());
            input.drain(at..(at + usize::from(*len)).min(input.len()));
        }
        Mutation::Splice(at, other, from, len) => {
            let other = &seeds[other.index(seeds.len())];
            let from = from.index(other.len());
            let piece = &other[from..(from + usize::from(*len)).min(other.len())];
            let at = at.index(input.len());
            input.splice(at..at, piece.iter().copied());
        }
    }
}

fn run(target: &str, cases: u32, function: fn(&[u8])) {
    let (_, seeds) = corpus::seeds().into_iter().find(|(name, _)| *name == target).expect("it has seeds");
    seeds.iter().for_each(|seed| function(seed));
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(seed in any::<Index>(), mutations in vec(mutation(), 1..8))| {
        let mut input = seeds[seed.index(seeds.len())].clone();
        mutations.iter().for_each(|mutation| mutate(&mut input, &seeds, mutation));
        function(&input);
    });
}

#[test]
fn configurations() {
    run("configuration", 2_000, targets::configuration);
}

#[test]
fn connection_strings() {
    run("connection_string", 5_000, targets::connection_string);
}

#[test]
fn json() {
    run("json", 5_000, targets::json);
}

#[test]
fn templates_and_patterns() {
    run("template", 5_000, targets::template);
}

#[test]
fn rows() {
    run("row", 3_000, targets::row);
}
