//! A producer makes itself known to each partition with one record alone.
//!
//! From a producer that it does not know yet, a partition takes any sequence number. So when the first request to it is
//! refused, one that is already under way behind it is taken: records overtake the refused ones (G2), and librdkafka
//! concludes from the success that the refused ones had been taken too (G1). A partition that has taken a record knows
//! the producer, and takes only what follows without a gap.

/// What the partitions of one topic know of this producer.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    partitions: Vec<Acquaintance>,
    known: usize,
    /// A record is under way that may go to any partition, a strange one included.
    roaming: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acquaintance {
    Stranger,
    /// The first record is under way.
    Introduced,
    Known,
}

impl Partitions {
    /// Takes the topic's number of partitions, which may grow.
    pub(super) fn count(&mut self, partitions: usize) {
        if partitions > self.partitions.len() {
            self.partitions.resize(partitions, Acquaintance::Stranger);
        }
    }

    /// No record has to wait for another.
    pub(super) fn all_known(&self) -> bool {
        self.known == self.partitions.len() && self.known > 0
    }

    /// Whether a record may be sent to a partition; none: to whichever it will be. `waits`: others of the topic are
    /// under way.
    pub(super) fn admit(&self, partition: Option<usize>, waits: bool) -> bool {
        match partition.map(|partition| self.partitions[partition]) {
            Some(Acquaintance::Known) => true,
            Some(Acquaintance::Introduced) => false,
            Some(Acquaintance::Stranger) => !self.roaming,
            None => self.all_known() || !waits,
        }
    }

    /// An admitted record was sent.
    pub(super) fn sent(&mut self, partition: Option<usize>) {
        match partition.map(|partition| &mut self.partitions[partition]) {
            Some(stranger @ Acquaintance::Stranger) => *stranger = Acquaintance::Introduced,
            Some(Acquaintance::Introduced | Acquaintance::Known) => {}
            None => self.roaming = !self.all_known(),
        }
    }

    /// A partition took a record. `waits`: others of the topic are still under way.
    pub(super) fn delivered(&mut self, partition: usize, waits: bool) {
        self.count(partition + 1);
        if self.partitions[partition] != Acquaintance::Known {
            self.partitions[partition] = Acquaintance::Known;
            self.known += 1;
        }
        self.roaming &= waits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_record_to_a_partition_goes_alone() {
        let mut partitions = Partitions::default();
        partitions.count(2);
        assert!(partitions.admit(Some(0), false));
        partitions.sent(Some(0));
        assert!(!partitions.admit(Some(0), true), "the first is under way");
        assert!(partitions.admit(Some(1), true), "another partition is another matter");
        partitions.delivered(0, false);
        for _ in 0..3 {
            assert!(partitions.admit(Some(0), true));
            partitions.sent(Some(0));
        }
        assert!(!partitions.all_known());
        partitions.sent(Some(1));
        partitions.delivered(1, true);
        assert!(partitions.all_known());
    }

    #[test]
    fn a_record_for_any_partition_goes_alone_until_all_are_known() {
        let mut partitions = Partitions::default();
        assert!(partitions.admit(None, false), "how many there are is not known yet");
        partitions.sent(None);
        assert!(!partitions.admit(None, true));
        partitions.count(2);
        assert!(!partitions.admit(Some(1), true), "it may be where the other one goes");
        partitions.delivered(1, false);
        assert!(partitions.admit(Some(1), false));
        partitions.sent(Some(1));
        assert!(!partitions.admit(None, true), "it may go to the strange one");
        assert!(partitions.admit(Some(0), true));
        partitions.sent(Some(0));
        partitions.delivered(0, true);
        assert!(partitions.admit(None, true));
    }

    #[test]
    fn a_topic_that_grows_has_strangers_again() {
        let mut partitions = Partitions::default();
        partitions.count(1);
        partitions.sent(Some(0));
        partitions.delivered(0, false);
        assert!(partitions.all_known());
        partitions.count(2);
        assert!(!partitions.all_known() && partitions.admit(Some(1), true) && !partitions.admit(None, true));
    }
}
