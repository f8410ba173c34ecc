//! How an input of the fuzzer is a session: chunks of two bytes of length and a frame, or, with the highest bit set, an
//! acknowledgement.
#![allow(dead_code)] // the target reads, the seeds write

const ACKNOWLEDGEMENT: u16 = 0x8000;

pub(crate) enum Chunk<'a> {
    Frame(&'a [u8]),
    /// Of one of the records in flight, by a number that says which.
    Acknowledgement(usize),
}

/// Reads a chunk off the input. A frame that is longer than the input ends with it.
pub(crate) fn next<'a>(input: &mut &'a [u8]) -> Option<Chunk<'a>> {
    let (head, rest) = input.split_first_chunk::<2>()?;
    let number = u16::from_be_bytes(*head);
    if number & ACKNOWLEDGEMENT != 0 {
        *input = rest;
        return Some(Chunk::Acknowledgement(usize::from(number & !ACKNOWLEDGEMENT)));
    }
    let (frame, rest) = rest.split_at(usize::from(number).min(rest.len()));
    *input = rest;
    Some(Chunk::Frame(frame))
}

pub(crate) fn write_frame(input: &mut Vec<u8>, frame: &[u8]) {
    let len = u16::try_from(frame.len()).expect("frames of seeds are short");
    assert!(len & ACKNOWLEDGEMENT == 0, "frames of seeds are short");
    input.extend(len.to_be_bytes());
    input.extend(frame);
}

pub(crate) fn write_acknowledgement(input: &mut Vec<u8>, which: u16) {
    input.extend((which | ACKNOWLEDGEMENT).to_be_bytes());
}
