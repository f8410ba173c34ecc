//! The table of dead letters, by what its statements promise.

use std::collections::{BTreeSet, HashMap};

use walpost::{
    pipeline::{Lsn, Position, Ticket},
    postgres::dead_letter::{DeadLetter, Known, KnownLetter, ParkKey, ReasonClass, Replayed, State, Stored},
    session::letters::Culprit,
};

use crate::{
    oracle::{Judged, Oracle},
    random::Random,
    world::number,
};

#[derive(Default)]
pub(crate) struct Table {
    pub(crate) rows: Vec<Row>,
    pub(crate) parked: u64,
    pub(crate) replayed: u64,
}

pub(crate) struct Row {
    letter: DeadLetter,
    state: State,
    requested: bool,
}

impl Row {
    pub(crate) fn event(&self) -> usize {
        number(&self.letter.event_id)
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Dead | State::Parked)
    }

    fn is_parked(&self) -> bool {
        self.state == State::Parked
    }
}

impl Table {
    pub(crate) fn write(&mut self, letters: &[(Ticket, DeadLetter)], oracle: &mut Oracle) -> Judged {
        for (_, letter) in letters {
            if self.rows.iter().all(|row| row.letter.position != letter.position) {
                let state = if letter.park_key.is_some() { State::Parked } else { State::Dead };
                self.parked += u64::from(state == State::Parked);
                self.rows.push(Row { letter: letter.clone(), state, requested: false });
                let event = number(&letter.event_id);
                oracle.row(event, state)?;
                if letter.class == ReasonClass::Parked {
                    oracle.waits(event);
                }
            }
        }
        Ok(())
    }

    /// Keys of these rows, and of those that have no parked row left.
    pub(crate) fn settle(
        &mut self,
        sent: &[Replayed],
        oracle: &mut Oracle,
    ) -> Result<[BTreeSet<ParkKey>; 2], crate::oracle::Violation> {
        let (mut all, mut asked) = (BTreeSet::new(), BTreeSet::new());
        for Replayed { row, position } in sent {
            let row = &mut self.rows[*row as usize];
            assert_eq!(row.letter.position, *position);
            if row.state == State::Replayed {
                continue;
            }
            row.state = State::Replayed;
            self.replayed += 1;
            oracle.row(row.event(), State::Replayed)?;
            all.extend(row.letter.park_key);
            asked.extend(row.letter.park_key.filter(|_| row.requested));
        }
        let mut emptied = all.clone();
        for row in self.rows.iter_mut().filter(|row| row.is_parked()) {
            let key = row.letter.park_key.expect("a parked row has a key");
            row.requested |= asked.contains(&key);
            emptied.remove(&key);
        }
        Ok([all, emptied])
    }

    /// What is sent next, and what was refused again.
    pub(crate) fn requested(&mut self, culprits: &[Culprit], limit: usize) -> Vec<Stored> {
        culprits.iter().for_each(|culprit| self.refuse(culprit, limit));
        self.next(limit)
    }

    fn refuse(&mut self, culprit: &Culprit, limit: usize) {
        let is_it =
            |row: &&Stored| row.letter.topic.as_ref().is_some_and(|topic| culprit.is_at(row.letter.position, topic));
        let next = self.next(limit);
        let Some(refused) = next.iter().find(is_it) else { return };
        let key = refused.letter.park_key;
        self.rows[refused.id as usize].requested = false;
        self.rows
            .iter_mut()
            .filter(|row| row.is_parked() && row.letter.park_key == key)
            .for_each(|row| row.requested = false);
    }

    fn next(&self, limit: usize) -> Vec<Stored> {
        let open = || self.rows.iter().enumerate().filter(|(_, row)| row.is_open());
        let asked: Vec<_> =
            open().filter(|(_, row)| row.requested).filter_map(|(_, row)| row.letter.park_key).collect();
        let is_wanted = |row: &Row| match row.letter.park_key {
            Some(key) => asked.contains(&key),
            None => row.requested,
        };
        let mut next: Vec<_> = open()
            .filter(|(_, row)| is_wanted(row))
            .map(|(id, row)| Stored {
                id: id as i64,
                system_identifier: String::new(),
                slot: String::new(),
                letter: row.letter.clone(),
                state: row.state,
                replay_requested_at: None,
                settled_at: None,
            })
            .collect();
        next.sort_by_key(|row| row.letter.position);
        next.truncate(limit);
        next
    }

    pub(crate) fn parked(&self) -> HashMap<ParkKey, u64> {
        let mut parked = HashMap::new();
        for row in self.rows.iter().filter(|row| row.is_parked()) {
            *parked.entry(row.letter.park_key.expect("a parked row has a key")).or_default() += 1;
        }
        parked
    }

    pub(crate) fn known(&self, from: Lsn) -> Known {
        let again = self.rows.iter().filter(|row| row.letter.position >= Position::first_of(from));
        let known = |row: &Row| {
            let letter = KnownLetter { state: row.state, class: row.letter.class, reason: row.letter.reason.clone() };
            (row.letter.position, row.letter.event_id.clone(), letter)
        };
        again.map(known).collect()
    }

    /// A person asks for a letter, or for no more of it; for all of its key, or for it alone.
    pub(crate) fn mark(&mut self, random: &mut Random, oracle: &mut Oracle) -> Judged {
        let open: Vec<usize> = (0..self.rows.len()).filter(|&id| self.rows[id].is_open()).collect();
        if open.is_empty() {
            return Ok(());
        }
        let chosen = random.pick(&open);
        let (discards, whole, key) = (random.one_in(5), random.one_in(2), self.rows[chosen].letter.park_key);
        for id in open {
            let row = &mut self.rows[id];
            if id == chosen || whole && key.is_some() && row.letter.park_key == key {
                row.requested |= !discards;
                if discards {
                    row.state = State::Discarded;
                    oracle.row(row.event(), State::Discarded)?;
                }
            }
        }
        Ok(())
    }

    /// A person asks for all that nobody has asked for, and discards what has no topic.
    pub(crate) fn mark_all(&mut self, oracle: &mut Oracle) -> Judged {
        for row in self.rows.iter_mut().filter(|row| row.is_open()) {
            if row.letter.topic.is_some() {
                row.requested = true;
            } else {
                row.state = State::Discarded;
                oracle.row(row.event(), State::Discarded)?;
            }
        }
        Ok(())
    }
}
