use super::*;
use crate::pipeline::resume::ID_BYTES_MAX;

#[test]
fn park_keys_differ_where_any_part_does() {
    let record = ParkKey::of_record;
    let aggregate = ParkKey::of_aggregate;
    let keys = [
        record("t", b"k"),
        record("tk", b""),
        record("", b"tk"),
        record("t", b"k\xff"),
        aggregate("t", None, b"k"),
        aggregate("w.o", None, b"k"),
        aggregate("w.o", Some(b""), b"k"),
        aggregate("w.o", Some(b"k"), b""),
    ];
    for (n, key) in keys.iter().enumerate() {
        assert!(keys[..n].iter().all(|earlier| earlier != key), "{n}");
    }
    assert_eq!(record("t", b"k"), record("t", b"k"));
}

#[test]
fn words_are_those_of_the_table() {
    let file = include_str!("../../../sql/dead_letter.sql");
    let list = |words: Vec<&str>| format!("('{}')", words.join("', '"));
    assert!(file.contains(&list(State::ALL.iter().map(|state| state.word()).collect())));
    assert!(file.contains(&list(ReasonClass::ALL.iter().map(|class| class.word()).collect())));
    assert_eq!("parked".parse::<State>().unwrap(), State::Parked);
    let unknown = "lost".parse::<State>().unwrap_err().to_string();
    assert_eq!(unknown, "\"lost\" is no state; there are dead, parked, replayed, discarded");
}

#[test]
fn a_text_becomes_one_that_the_database_can_hold() {
    let (all, few) = (Encoding { unicode: true }, Encoding { unicode: false });
    for (text, in_all, in_few) in [
        ("plain\n", "plain\n", "plain\n"),
        ("é", "é", "\\u{e9}"),
        ("a\0b", "a\u{fffd}b", "a\\u{0}b"),
        ("\u{fffd}", "\u{fffd}", "\\u{fffd}"),
    ] {
        assert_eq!((&*all.text(text), &*few.text(text)), (in_all, in_few));
    }
    let long = "é".repeat(ID_BYTES_MAX);
    assert_eq!(all.event_id(&long), "é".repeat(ID_BYTES_MAX / 2));
    assert_eq!(all.event_id(&format!("a{long}")).len(), ID_BYTES_MAX - 1);
}

#[test]
fn times_keep_their_milliseconds() {
    for ms in [0, 1, 1_700_000_000_123, -1, i64::from(i32::MIN)] {
        assert_eq!(unix_ms(from_unix_ms(ms)), ms);
    }
}
