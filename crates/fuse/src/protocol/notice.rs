//! What the kernel is told without having asked: to forget what it has of a node, or to take bytes into its pages.

use std::io::{self, IoSlice};

use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

/// What a notice says, by its code.
const INVALIDATE_NODE: i32 = 2;
const STORE: i32 = 4;

/// What every notice begins with: an answer to no request.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Header {
    bytes: u32,
    code: i32,
    unique: u64,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct InvalidateNode {
    node: u64,
    offset: i64,
    length: i64,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Store {
    node: u64,
    offset: u64,
    bytes: u32,
    padding: u32,
}

/// Forget the attributes of a node, and of its pages so many bytes from an offset on: all behind it for 0, none from a
/// negative offset on. It is sent by this, and the kernel hands over before that what is dirty.
///
/// # Errors
/// ENOENT for a node that the kernel does not know, and what it says else.
pub(crate) fn invalidate_node(
    send: impl FnOnce(&[IoSlice<'_>]) -> Result<usize, Errno>,
    (node, offset, length): (u64, i64, i64),
) -> io::Result<()> {
    send_notice(send, INVALIDATE_NODE, InvalidateNode { node, offset, length }.as_bytes(), &[])
}

/// Take these bytes into the pages of a node. It is sent by this.
///
/// # Errors
/// As [`invalidate_node`], and InvalidInput for 4 GiB or more.
pub(crate) fn store(
    send: impl FnOnce(&[IoSlice<'_>]) -> Result<usize, Errno>,
    (node, offset): (u64, u64),
    content: &[u8],
) -> io::Result<()> {
    let bytes = u32::try_from(content.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    send_notice(send, STORE, Store { node, offset, bytes, padding: 0 }.as_bytes(), content)
}

fn send_notice(
    send: impl FnOnce(&[IoSlice<'_>]) -> Result<usize, Errno>,
    code: i32,
    body: &[u8],
    content: &[u8],
) -> io::Result<()> {
    let bytes = size_of::<Header>() + body.len() + content.len();
    let bytes = u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    let header = Header { bytes, code, unique: 0 };
    let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(body), IoSlice::new(content)];
    Ok(send(&parts).map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(notify: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut sent = Vec::new();
        notify(&mut sent);
        sent
    }

    fn gather(into: &mut Vec<u8>) -> impl FnOnce(&[IoSlice<'_>]) -> Result<usize, Errno> {
        |parts| {
            parts.iter().for_each(|part| into.extend_from_slice(part));
            Ok(into.len())
        }
    }

    /// As the kernel's `fuse.h` has them, on a little-endian machine.
    #[test]
    fn notices_have_the_bytes_that_the_kernel_reads() {
        let invalidate = sent(|into| invalidate_node(gather(into), (0x42, -1, 200)).unwrap());
        let words = |bytes: &[u8]| -> Vec<u64> {
            bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
        };
        assert_eq!(words(&invalidate), [2 << 32 | 40, 0, 0x42, u64::MAX, 200]);
        let stored = sent(|into| store(gather(into), (0x42, 50), &[7; 8]).unwrap());
        assert_eq!(words(&stored), [4 << 32 | 48, 0, 0x42, 50, 8, 0x0707_0707_0707_0707]);
    }

    #[test]
    fn what_the_kernel_refuses_is_told() {
        let refused = invalidate_node(|_| Err(Errno::NOENT), (1, 0, 0)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
    }
}
