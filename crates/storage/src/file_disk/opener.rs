//! This process as an [`Opener`], and what the system knows of others.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use super::below::Place;
use crate::opener::{HOST_BYTES, Opener, Standing};

/// This process, with its disk at `place`; none if the system does not tell of its boot.
pub(super) fn this_process(place: Place) -> Option<Opener> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let boot = u128::from_str_radix(&boot.trim().replace('-', ""), 16).ok()?;
    let name = fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut host = [0; HOST_BYTES];
    host.iter_mut().zip(name.trim_ascii()).for_each(|(to, from)| *to = *from);
    let process = std::process::id();
    Some(Opener {
        boot,
        device: place.device,
        inode: place.inode,
        namespace: fs::metadata("/proc/self/ns/pid").ok()?.ino(),
        process,
        began: began(process)?,
        host,
    })
}

/// What is known of `other`, by one who has the lock of its own disk. The kernel gives the lock of one place to one
/// process, so an opener of the same place and the same boot has ended.
pub(super) fn standing(own: &Opener, other: &Opener) -> Standing {
    if own.boot != other.boot {
        return Standing::Unknown;
    }
    if (own.device, own.inode) == (other.device, other.inode) {
        return Standing::Ended;
    }
    if own.namespace != other.namespace {
        return Standing::Unknown;
    }
    if began(other.process) == Some(other.began) { Standing::Running } else { Standing::Ended }
}

/// When a process began, if it has not ended: the 22nd word of its line. The second word, its name, is in parentheses and
/// may hold any character; the third is its state, Z or X for one that has ended and whose parent was not told yet.
fn began(process: u32) -> Option<u64> {
    let line = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut words = line.rsplit_once(')')?.1.split_whitespace();
    let ended = matches!(words.next()?, "Z" | "X");
    words.nth(18)?.parse().ok().filter(|_| !ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Opener {
        this_process(Place { device: 1, inode: 2 }).expect("Linux tells")
    }

    #[test]
    fn what_is_known_of_an_opener() {
        let own = here();
        let elsewhere = Opener { inode: 3, ..own };
        let cases = [
            (own, Standing::Ended),
            (Opener { boot: own.boot ^ 1, ..own }, Standing::Unknown),
            (elsewhere, Standing::Running),
            (Opener { began: own.began + 1, ..elsewhere }, Standing::Ended),
            (Opener { namespace: own.namespace ^ 1, ..elsewhere }, Standing::Unknown),
        ];
        for (other, expected) in cases {
            assert_eq!(standing(&own, &other), expected, "{other:?}");
        }
    }
}
