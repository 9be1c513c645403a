//! *Occupants*: what is in a file or on a block device that `mkfs` is to write to. Anything but zeros is one.
//!
//! 1. Both ends are read whole: that is where formats say what they are.
//! 2. Data between them is read whole: of a regular file all that is in no hole, of a device up to [`READ_BYTES_MAX`].
//! 3. Of a larger device, samples at equal distances are read instead of the rest.
//!
//! So a file is empty if all of it reads as zeros. Of a large device whose ends and samples do, nothing more is known.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::signatures::{END_BYTES, find};

/// Bytes between the ends of a device that are read whole: two seconds at 500 MB/s.
const READ_BYTES_MAX: u64 = 1 << 30;
/// Bytes that are read at a time.
const CHUNK_BYTES: u64 = 1 << 20;
/// Samples of what is beyond [`READ_BYTES_MAX`], and the bytes of each.
const SAMPLES: u64 = 1024;
const SAMPLE_BYTES: u64 = 64 << 10;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Occupant {
    /// The format, if it is known.
    pub(crate) format: Option<&'static str>,
    /// The byte where its signature begins, or the first that was found not to be zero.
    at: u64,
}

impl fmt::Display for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.format {
            Some(format) => write!(f, "{format} (signature at byte {})", self.at),
            None => write!(f, "data of an unknown kind (byte {} is not zero)", self.at),
        }
    }
}

/// The content of a file or device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// All of it reads as zeros.
    Empty,
    /// Its ends and samples read as zeros; the rest was not read.
    NoneInSamples,
    /// Something else than zeros.
    Data(Occupant),
}

/// Examines the file or device at `path`.
///
/// # Errors
/// What the kernel answered: what cannot be read may be anything.
pub(crate) fn content(path: &Path) -> io::Result<Content> {
    let file = File::open(path)?;
    let most = if file.metadata()?.is_file() { u64::MAX } else { READ_BYTES_MAX };
    content_of(file, most)
}

/// Examines a file, and reads up to `most` bytes between its ends before it takes samples.
fn content_of(file: File, most: u64) -> io::Result<Content> {
    let bytes = seek(&file, SeekFrom::End(0))?;
    let disk = Disk { file, bytes };
    let ends = [0..END_BYTES.min(bytes), bytes.saturating_sub(END_BYTES)..bytes];
    let mut first = None;
    for end in ends {
        first = first.or(disk.first_byte_of_data(end.start, end.end, u64::MAX)?.0);
    }
    // Each signature is in one of the ends, and none is of zeros.
    if let Some(at) = first {
        let read = |at: u64, length: usize| {
            let mut bytes = vec![0; length];
            disk.file.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
        };
        let known = find(disk.bytes, read);
        let found = known.map(|(format, at)| Occupant { format: Some(format), at });
        return Ok(Content::Data(found.unwrap_or(Occupant { format: None, at })));
    }
    disk.content_between_ends(most)
}

struct Disk {
    file: File,
    bytes: u64,
}

impl Disk {
    fn content_between_ends(&self, most: u64) -> io::Result<Content> {
        let data = |at| Content::Data(Occupant { format: None, at });
        let end = self.bytes.saturating_sub(END_BYTES);
        let (found, read_to) = self.first_byte_of_data(END_BYTES.min(end), end, most)?;
        if let Some(at) = found {
            return Ok(data(at));
        }
        let distance = (end.saturating_sub(read_to) / SAMPLES).max(SAMPLE_BYTES);
        let mut from = read_to;
        while from < end {
            // A sample that would lie in a hole is taken of the data after it.
            let Some(at) = self.next_data(from)?.filter(|at| *at < end) else { break };
            if let (Some(found), _) = self.first_byte_of_data(at, end.min(at + SAMPLE_BYTES), u64::MAX)? {
                return Ok(data(found));
            }
            from = at + distance;
        }
        Ok(if read_to < end { Content::NoneInSamples } else { Content::Empty })
    }

    /// The first byte of a range that is not zero, and the end of what was read: `most` bytes of data at most, but for a
    /// chunk.
    fn first_byte_of_data(&self, start: u64, end: u64, most: u64) -> io::Result<(Option<u64>, u64)> {
        let mut chunk = vec![0; CHUNK_BYTES.min(end - start) as usize];
        let (mut from, mut read) = (start, 0);
        while from < end && read < most {
            let Some(at) = self.next_data(from)?.filter(|at| *at < end) else { return Ok((None, end)) };
            let length = CHUNK_BYTES.min(end - at) as usize;
            self.file.read_exact_at(&mut chunk[..length], at)?;
            if let Some(nth) = chunk[..length].iter().position(|byte| *byte != 0) {
                return Ok((Some(at + nth as u64), at));
            }
            from = at + length as u64;
            read += length as u64;
        }
        Ok((None, from))
    }

    /// The first byte from `from` on that is in no hole; a block device has none.
    fn next_data(&self, from: u64) -> io::Result<Option<u64>> {
        match seek(&self.file, SeekFrom::Data(from)) {
            Ok(at) => Ok(Some(at)),
            Err(Errno::NXIO) => Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok((from < self.bytes).then_some(from)),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 64 << 20;

    fn file(write: impl FnOnce(&File)) -> Content {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(SIZE).unwrap();
        write(file.as_file());
        content(file.path()).unwrap()
    }

    #[test]
    fn a_file_of_holes_or_zeros_is_empty() {
        assert_eq!(file(|_| ()), Content::Empty);
        assert_eq!(file(|file| file.write_all_at(&[0; SIZE as usize], 0).unwrap()), Content::Empty);
        assert_eq!(file(|file| file.set_len(0).unwrap()), Content::Empty);
        assert_eq!(file(|file| file.set_len(SIZE + 100).unwrap()), Content::Empty);
    }

    #[test]
    fn what_was_sampled_is_not_known_to_be_empty() {
        let sampled = |write: &dyn Fn(&File)| {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&vec![0; SIZE as usize], 0).unwrap();
            write(&file);
            content_of(file, 2 * CHUNK_BYTES).unwrap()
        };
        assert_eq!(sampled(&|_| ()), Content::NoneInSamples);
        let at = SIZE - END_BYTES - 1;
        let found = sampled(&|file| file.write_all_at(&[1], at).unwrap());
        assert_eq!(found, Content::Data(Occupant { format: None, at }));
    }

    #[test]
    fn one_byte_anywhere_is_found() {
        for at in [0, 1, 65536, END_BYTES - 1, END_BYTES, SIZE / 2 + 12345, SIZE - END_BYTES - 1, SIZE - 1] {
            let found = file(|file| file.write_all_at(&[1], at).unwrap());
            assert_eq!(found, Content::Data(Occupant { format: None, at }));
        }
    }

    #[test]
    fn a_signature_gives_a_name_also_behind_the_last_whole_block() {
        let found = file(|file| {
            file.set_len(SIZE + 1024).unwrap();
            file.write_all_at(b"EFI PART", SIZE + 512).unwrap();
        });
        let expected = format!("the copy of a GPT partition table (signature at byte {})", SIZE + 512);
        let Content::Data(found) = found else { panic!("{found:?}") };
        assert_eq!(found.to_string(), expected);
    }
}
