//! *Copies* within the filesystem (`copy_file_range(2)`, as `cp` uses it): the bytes do not pass through the kernel.

use std::rc::Rc;

use rustix::io::Errno;
use weir_vfs::InodeNumber;

use crate::calls::Calls;
use crate::errno::errno;
use crate::files::OpenFile;
use crate::privileges::Caller;
use crate::protocol::{CopyRequest, TRANSFER_BYTES};

/// Bytes of one request, at most: the kernel asks again for the rest, and others have their turn.
const COPY_BYTES_MAX: u64 = 16 << 20;

/// Copies bytes of a file into another one, or elsewhere in the same one, as far as the first has some: how many.
///
/// # Errors
/// EOPNOTSUPP where the kernel is to read and write by itself: what a program wrote through a mapping of the first was lost, or
/// the writes to the second are ordered, or part of an update, or synchronous: the kernel then asks for `fsync` behind them.
/// Without requests for opens it is not known whether they are synchronous.
pub(crate) async fn copy_range(
    calls: &Calls,
    from: InodeNumber,
    copy: &CopyRequest,
    to: InodeNumber,
    caller: Caller,
) -> Result<u32, Errno> {
    let is_special =
        |file: Rc<OpenFile>| file.is_synchronous || file.orders_writes.get() || file.has_begun_update.get();
    let is_special = !calls.files.are_told || calls.open_files(to, copy.to_handle).any(is_special);
    if is_special || calls.fails_sync(from).await.is_err() {
        return Err(Errno::OPNOTSUPP);
    }
    let tail = calls.exposed_tail(to, copy.to_offset).await;
    let length = copy.length.min(COPY_BYTES_MAX);
    let mut done = 0;
    let mut failed = None;
    while done < length && failed.is_none() {
        let part = (length - done).min(TRANSFER_BYTES.into()) as u32;
        let to = (to, copy.to_offset + done);
        match copy_part(calls, (from, copy.offset + done), to, part, caller).await {
            Ok(0) => break,
            Ok(copied) => done += copied,
            Err(error) => failed = Some(error),
        }
    }
    calls.note_access(from, 0).await;
    match failed {
        Some(error) if done == 0 => Err(error),
        _ => {
            calls.clear_tail(to, tail).await;
            Ok(done as u32)
        }
    }
}

async fn copy_part(
    calls: &Calls,
    (from, offset): (InodeNumber, u64),
    (to, to_offset): (InodeNumber, u64),
    length: u32,
    caller: Caller,
) -> Result<u64, Errno> {
    let (buffer, bytes) = calls.read(from, offset, length).await?;
    if bytes == 0 {
        return Ok(0);
    }
    let written = caller.view_of(&calls.filesystem).write(to, to_offset, &buffer[..bytes]).await;
    let written = written.map_err(|error| errno(&error))? as u64;
    calls.lost.written(to, &(to_offset..to_offset + written));
    Ok(written)
}
