//! Conformance: walpost, given a Debezium connector's configuration, writes what the real Debezium wrote.
//!
//! [`golden`] reads what Debezium wrote, [`run`] takes a variant to real servers, [`verdict`] and [`compare`] say whether
//! it is the same, and [`faults`] that they would notice if it were not.

mod compare;
mod faults;
mod golden;
mod run;
mod text;
mod verdict;

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicUsize, Ordering},
};

use self::golden::Variant;

/// Where walpost differs on purpose. docs/debezium.md names each.
const DIFFERENT: &[Different] = &[
    Different {
        reason: "a message that is not transactional would come even from a transaction that is rolled back",
        dead_letters: &[2, 3],
        ..Different::of("V14a_emit")
    },
    Different {
        reason: "a message that is not transactional would come even from a transaction that is rolled back",
        dead_letters: &[2, 3],
        ..Different::of("V14b_emit_json")
    },
    Different {
        reason: "a message that is not transactional would come even from a transaction that is rolled back",
        dead_letters: &[2],
        ..Different::of("V14e_nosmt")
    },
    Different {
        reason: "librdkafka sends the timestamp 0, the beginning of 1970, as the time of sending",
        sent_now: &[3],
        ..Different::of("V08a_timestamp6")
    },
];

/// What differs of a variant. All else is compared.
pub struct Different {
    variant: &'static str,
    reason: &'static str,
    /// Records that become dead letters, by their lines.
    dead_letters: &'static [usize],
    /// Records that bear the time of sending, by their lines.
    sent_now: &'static [usize],
}

impl Different {
    const fn of(variant: &'static str) -> Different {
        Different { variant, reason: "", dead_letters: &[], sent_now: &[] }
    }
}

/// How many may hang, of all tests, before the others are not tried: a run ends in bounded time.
const PATIENCE: usize = 4;
static HUNG: AtomicUsize = AtomicUsize::new(0);

/// Runs the variants of a number, all of them, and shows the first difference of each.
fn conform(number: &str) {
    let mut failures = Vec::new();
    for variant in Variant::numbered(number) {
        if HUNG.load(Ordering::Relaxed) >= PATIENCE {
            failures.push(format!("{}: not tried", variant.name));
            continue;
        }
        let variant = match DIFFERENT.iter().find(|different| different.variant == variant.name) {
            Some(different) => variant.but(different),
            None => variant,
        };
        let tried = catch_unwind(AssertUnwindSafe(|| {
            let observed = run::observe(&variant);
            (verdict::verdict(&variant, &observed), observed.awaited.is_some())
        }));
        let (verdict, hung) = tried.unwrap_or_else(|panic| (Err(words(&*panic)), true));
        HUNG.fetch_add(usize::from(hung), Ordering::Relaxed);
        if let Err(difference) = verdict {
            failures.push(format!("{}: {difference}", variant.name));
        }
    }
    assert!(failures.is_empty(), "{} of {number} differ:\n\n{}\n", failures.len(), failures.join("\n\n"));
}

fn words(panic: &dyn std::any::Any) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("without words"))
}

macro_rules! variants {
    ($($test:ident = $number:literal;)*) => {
        const NUMBERS: &[&str] = &[$($number),*];
        $(
            #[test]
            fn $test() {
                conform($number);
            }
        )*
    };
}

variants! {
    v01_columns_of_the_table = "V01";
    v02_routes = "V02";
    v03_placed_columns = "V03";
    v04_expanded_payloads = "V04";
    v05_tombstones = "V05";
    v06_json_converters = "V06";
    v07_binary_payloads = "V07";
    v08_timestamps = "V08";
    v09_updates_and_deletes = "V09";
    v10_keys = "V10";
    v11_schema_versions = "V11";
    v12_tracing = "V12";
    v13_payloads_of_jsonb = "V13";
    v14_logical_messages = "V14";
    v15_heartbeats = "V15";
    v16_snapshots = "V16";
    v17_types = "V17";
    v18_partitions = "V18";
    v19_the_connector = "V19";
    v20_defaults_of_columns = "V20";
    v24_ids = "V24";
}

#[test]
fn every_variant_is_run() {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for variant in Variant::all() {
        *found.entry(variant.number().to_owned()).or_default() += 1;
    }
    assert_eq!(found.keys().collect::<Vec<_>>(), NUMBERS);
    assert_eq!(found.values().sum::<usize>(), 148);
}

#[test]
fn what_differs_is_documented() {
    let page = include_str!("../../../docs/debezium.md");
    for Different { variant, reason, .. } in DIFFERENT {
        assert!(page.contains(variant), "docs/debezium.md does not name {variant}: {reason}");
    }
}
