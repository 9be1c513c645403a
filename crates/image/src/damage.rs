//! Finds damaged files of an image: reads everything, and reports what cannot be read by its path.

use std::collections::BTreeSet;

use futures_util::future::LocalBoxFuture;
use weir_format::{BLOCK_BYTES, FileType};
use weir_vfs::{FilesystemCalls, FsError, InodeNumber};

use crate::error::shown;
use crate::holes::CHUNK_BYTES;
use crate::list::{join, names};

/// Something of an image that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Its path, with control characters escaped.
    pub path: String,
    /// Of a file's content: the first byte that cannot be read, and how many blocks cannot. None if the whole of it cannot.
    pub content: Option<(u64, u64)>,
    /// What the first error was.
    pub cause: FsError,
}

/// Reads everything below the root, and `told` what cannot be read. A directory is entered once; of a file with several
/// names the first one met is told.
pub fn find_damaged<'a>(
    filesystem: &'a dyn FilesystemCalls,
    told: &'a mut dyn FnMut(Damaged),
) -> LocalBoxFuture<'a, ()> {
    Box::pin(async move {
        let mut pending = vec![(b"/".to_vec(), filesystem.root())];
        let mut seen = BTreeSet::from([filesystem.root()]);
        while let Some((path, directory)) = pending.pop() {
            let found = match names(filesystem, &path, directory).await {
                Ok(found) => found,
                Err(crate::ImageError::InImage { source, .. }) => {
                    told(Damaged { path: shown(&path), content: None, cause: source });
                    continue;
                }
                Err(_) => continue,
            };
            for (name, inode) in found {
                if !seen.insert(inode) {
                    continue;
                }
                let path = join(&path, &name);
                match filesystem.attributes(inode).await {
                    Ok(found) if found.kind == FileType::Directory => pending.push((path, inode)),
                    Ok(found) if found.kind == FileType::Regular => {
                        if let Some((content, cause)) = damaged_content(filesystem, inode).await {
                            told(Damaged { path: shown(&path), content, cause });
                        }
                    }
                    Ok(_) => {}
                    Err(cause) => told(Damaged { path: shown(&path), content: None, cause }),
                }
            }
        }
    })
}

/// The first byte of a file that cannot be read, how many blocks cannot, and why.
async fn damaged_content(
    filesystem: &dyn FilesystemCalls,
    inode: InodeNumber,
) -> Option<(Option<(u64, u64)>, FsError)> {
    let mut found: Option<((u64, u64), FsError)> = None;
    let mut bytes = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    loop {
        offset = match filesystem.seek_data(inode, offset).await {
            Ok(Some(data)) => data / BLOCK_BYTES as u64 * BLOCK_BYTES as u64,
            Ok(None) => break,
            Err(cause) => return Some((None, cause)),
        };
        let end = match filesystem.seek_hole(inode, offset).await {
            Ok(Some(end)) => end,
            Ok(None) => break,
            Err(cause) => return Some((None, cause)),
        };
        while offset < end {
            let wanted = usize::try_from(end - offset).unwrap_or(usize::MAX).min(bytes.len());
            if filesystem.read(inode, offset, &mut bytes[..wanted]).await.is_err() {
                for at in (offset..offset + wanted as u64).step_by(BLOCK_BYTES) {
                    if let Err(cause) = filesystem.read(inode, at, &mut bytes[..BLOCK_BYTES]).await {
                        found.get_or_insert(((at, 0), cause)).0.1 += 1;
                    }
                }
            }
            offset += wanted as u64;
        }
    }
    found.map(|(content, cause)| (Some(content), cause))
}
