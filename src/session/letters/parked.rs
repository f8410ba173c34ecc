//! What is parked, by key.

use std::collections::HashMap;

use crate::postgres::dead_letter::ParkKey;

/// Events parked under each key.
pub(super) struct Parked {
    keys: HashMap<ParkKey, u64>,
    events: u64,
}

impl Parked {
    pub(super) fn new(keys: HashMap<ParkKey, u64>) -> Parked {
        let events = keys.values().sum();
        Parked { keys, events }
    }

    /// Events of all keys.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn has(&self, key: &ParkKey) -> bool {
        self.keys.contains_key(key)
    }

    pub(super) fn add(&mut self, key: ParkKey) {
        *self.keys.entry(key).or_default() += 1;
        self.events += 1;
    }

    pub(super) fn count(&self, key: &ParkKey) -> u64 {
        self.keys.get(key).copied().unwrap_or_default()
    }

    /// One of the key is settled. Whether that was the last is the table's to say.
    pub(super) fn settle(&mut self, key: &ParkKey) {
        if let Some(count) = self.keys.get_mut(key).filter(|count| **count > 0) {
            *count -= 1;
            self.events -= 1;
        }
    }

    pub(super) fn remove(&mut self, key: &ParkKey) {
        self.events -= self.keys.remove(key).unwrap_or_default();
    }
}
