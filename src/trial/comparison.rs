//! What was committed against what a consumer got: loss, duplicates, order, strangers.

use std::collections::HashMap;

use serde::Serialize;

/// Committed events, and which of them have been seen.
#[derive(Debug)]
pub struct Comparison {
    places: HashMap<u128, u32>,
    /// Number of the key of each event.
    keys: Vec<u32>,
    seen: Vec<bool>,
    /// The latest place seen of each key.
    latest: Vec<Option<u32>>,
    verdict: Verdict,
    unseen: usize,
}

/// What is not as it was committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Events without a record.
    pub missing: usize,
    /// Records beyond an event's first.
    pub duplicates: usize,
    /// Events whose first record comes after that of a later event with the same key.
    pub reordered: usize,
    /// Records of no such event.
    pub unexpected: usize,
}

impl Verdict {
    /// Nothing lost, reordered or added.
    pub fn is_complete(&self) -> bool {
        self.missing == 0 && self.reordered == 0 && self.unexpected == 0
    }

    /// And nothing twice.
    pub fn is_exact(&self) -> bool {
        self.is_complete() && self.duplicates == 0
    }
}

impl Comparison {
    /// `committed` has ids and keys in commit order.
    pub fn new<'k>(committed: impl IntoIterator<Item = (u128, &'k str)>) -> Comparison {
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        let (mut places, mut keys) = (HashMap::new(), Vec::new());
        for (id, key) in committed {
            let fresh = numbers.len() as u32;
            places.insert(id, keys.len() as u32);
            keys.push(*numbers.entry(key).or_insert(fresh));
        }
        Comparison {
            unseen: keys.len(),
            seen: vec![false; keys.len()],
            latest: vec![None; numbers.len()],
            places,
            keys,
            verdict: Verdict::default(),
        }
    }

    /// A record with this id came. Records of a key come in the order of its partition.
    pub fn record(&mut self, id: Option<u128>) {
        let Some(place) = id.and_then(|id| self.places.get(&id)).copied() else {
            self.verdict.unexpected += 1;
            return;
        };
        if std::mem::replace(&mut self.seen[place as usize], true) {
            self.verdict.duplicates += 1;
            return;
        }
        self.unseen -= 1;
        let latest = &mut self.latest[self.keys[place as usize] as usize];
        if latest.is_some_and(|latest| latest > place) {
            self.verdict.reordered += 1;
        } else {
            *latest = Some(place);
        }
    }

    /// Every event has come.
    pub fn is_whole(&self) -> bool {
        self.unseen == 0
    }

    pub fn verdict(&self) -> Verdict {
        Verdict { missing: self.unseen, ..self.verdict }
    }
}

/// A UUID's text as a number.
pub fn uuid(text: &[u8]) -> Option<u128> {
    let mut digits = [0; 32];
    let mut count = 0;
    for byte in text.iter().filter(|byte| **byte != b'-') {
        *digits.get_mut(count)? = *byte;
        count += 1;
    }
    let digits = std::str::from_utf8(&digits).ok().filter(|_| count == 32)?;
    u128::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events 1 and 2 of key a, 3 of key b, 4 of key a.
    fn verdict(ids: &[u128]) -> Verdict {
        let mut comparison = Comparison::new([(1, "a"), (2, "a"), (3, "b"), (4, "a")]);
        ids.iter().for_each(|id| comparison.record(Some(*id)));
        assert_eq!(comparison.is_whole(), comparison.verdict().missing == 0);
        comparison.verdict()
    }

    #[test]
    fn keys_may_overtake_each_other() {
        assert!(verdict(&[3, 1, 2, 4]).is_exact());
    }

    #[test]
    fn faults_are_told_apart() {
        let clean = Verdict::default();
        assert_eq!(verdict(&[1, 3, 4]), Verdict { missing: 1, ..clean });
        assert_eq!(verdict(&[1, 2, 1, 2, 3, 4]), Verdict { duplicates: 2, ..clean });
        assert_eq!(verdict(&[1, 4, 3, 2]), Verdict { reordered: 1, ..clean });
        assert_eq!(verdict(&[1, 2, 3, 4, 9]), Verdict { unexpected: 1, ..clean });
        assert!(!verdict(&[1, 3, 4]).is_complete());
    }

    #[test]
    fn uuids_are_numbers() {
        assert_eq!(uuid(b"00000000-0000-0000-0000-0000000000ff"), Some(255));
        assert_eq!(uuid(b"ffffffff-ffff-ffff-ffff-ffffffffffff"), Some(u128::MAX));
        for text in ["", "12", "0000000000000000000000000000000000", "zz000000-0000-0000-0000-0000000000ff"] {
            assert_eq!(uuid(text.as_bytes()), None, "{text}");
        }
    }
}
