//! The last records that were delivered, for people: a few texts each, never a value.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard},
    time::SystemTime,
};

/// Most that are kept.
pub const RECORDS_MAX: usize = 50;
/// Most bytes of a text.
const TEXT_MAX: usize = 300;

/// A record that was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recent {
    /// When that was told.
    pub at: SystemTime,
    /// Empty where it has none.
    pub id: String,
    pub event_type: Option<String>,
    pub topic: String,
    pub key: Option<String>,
    /// Kafka only.
    pub partition: Option<i32>,
    /// Where the broker told it.
    pub offset: Option<i64>,
}

impl Recent {
    pub fn new(topic: &str, id: &[u8], event_type: Option<&[u8]>, key: Option<&[u8]>) -> Recent {
        Recent {
            at: SystemTime::now(),
            id: text(id),
            event_type: event_type.map(text),
            topic: text(topic.as_bytes()),
            key: key.map(text),
            partition: None,
            offset: None,
        }
    }
}

/// The beginning of a text; what is no UTF-8 in it shows as replacement characters.
fn text(bytes: &[u8]) -> String {
    if bytes.len() <= TEXT_MAX {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let mut text = String::from_utf8_lossy(&bytes[..TEXT_MAX]).into_owned();
    text.truncate(text.trim_end_matches(char::REPLACEMENT_CHARACTER).len());
    text + "…"
}

/// Keeps the last ones, the oldest first.
#[derive(Debug, Default)]
pub struct Recents(VecDeque<Recent>);

impl Recents {
    pub fn push(&mut self, record: Recent) {
        if self.0.len() >= RECORDS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(record);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes all that another one has, which is left empty.
    pub fn take(&mut self, from: &mut Recents) {
        from.0.drain(..).for_each(|record| self.push(record));
    }

    /// The newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Recent> {
        self.0.iter().rev()
    }
}

/// What is shared of them.
#[derive(Debug, Default)]
pub struct LastRecords(Mutex<Recents>);

impl LastRecords {
    /// Never held across an await.
    pub fn lock(&self) -> MutexGuard<'_, Recents> {
        self.0.lock().expect("nobody panics while holding the last records")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept() {
        let mut recents = Recents::default();
        for n in 0..RECORDS_MAX + 3 {
            recents.push(Recent::new("t", n.to_string().as_bytes(), None, None));
        }
        let ids: Vec<_> = recents.iter().map(|record| record.id.as_str()).collect();
        assert_eq!((ids.len(), ids[0], ids[RECORDS_MAX - 1]), (RECORDS_MAX, "52", "3"));
        let mut shared = Recents::default();
        shared.take(&mut recents);
        assert!(recents.is_empty());
        assert_eq!(shared.iter().next().map(|record| record.id.as_str()), Some("52"));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let long = "ü".repeat(200);
        let cut = text(format!("x{long}").as_bytes());
        assert!(cut.len() <= TEXT_MAX + "…".len() && cut.ends_with("ü…"), "{cut}");
        assert_eq!(text(b"\xff"), "\u{fffd}");
    }
}
