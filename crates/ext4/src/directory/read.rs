//! Reading all names of a directory, in an order that insertions and splits do not disturb: by hash.

use weir_format::{Cookie, DirectoryEntry, FileType, Target};

use super::entry::Record;
use super::{Directory, DirectoryFile, corrupt_index};
use crate::blocks::Blocks;
use crate::dirhash::{NameHash, NameHasher};

/// More leaves than this with one hash are damage, or an attack on readers of the directory.
const LEAVES_OF_ONE_HASH_MAX: usize = 1024;

/// The cookie of a name: the lowest bit of a major hash is always clear, and the highest value is never used.
fn cookie_of(hash: NameHash) -> Cookie {
    Cookie(u64::from((hash.major >> 1) + 1) << 32 | u64::from(hash.minor))
}

/// The lowest major hash that names behind this cookie may have.
fn major_of(cookie: Cookie) -> u32 {
    cookie.group().saturating_sub(1) << 1
}

impl<B: Blocks, F: DirectoryFile<Error = B::Error>> Directory<'_, B, F> {
    /// The names behind `after`, in order, "." and ".." first: at least `limit` if there are so many. The names
    /// of one group come together, so that none of those with one cookie is lost between two calls. An empty
    /// answer is the end.
    ///
    /// # Errors
    ///
    /// [`FormatError::Corrupt`](weir_format::FormatError::Corrupt) for damage, and those from below.
    pub async fn read(&self, after: Cookie, limit: usize) -> Result<Vec<DirectoryEntry>, B::Error> {
        let mut batch = Batch { after, limit: limit.max(1), entries: Vec::new() };
        if after < Cookie::DOT_DOT {
            self.read_dots(&mut batch).await?;
        }
        if self.file.is_indexed() {
            self.read_indexed(&mut batch).await?;
        } else {
            for block in 0..self.file.blocks() {
                let place = self.file.place(block).await?;
                self.read_block(place, block == 0, self.format.hasher, &mut batch).await?;
            }
        }
        batch.cut();
        Ok(batch.entries)
    }

    async fn read_dots(&self, batch: &mut Batch) -> Result<(), B::Error> {
        let names: [&[u8]; 2] = [b".", b".."];
        let cookies = [Cookie::DOT, Cookie::DOT_DOT];
        for ((inode, name), cookie) in self.dots().await?.into_iter().zip(names).zip(cookies) {
            batch.push(cookie, name, Target { inode, kind: Some(FileType::Directory) });
        }
        Ok(())
    }

    /// Reads leaves until there are enough names, and until the hash of the last ones does not go on.
    async fn read_indexed(&self, batch: &mut Batch) -> Result<(), B::Error> {
        let hasher = self.hasher().await?;
        let mut path = self.probe(major_of(batch.after)).await?;
        let mut leaves = 0;
        loop {
            self.read_block(path.leaf, false, hasher, batch).await?;
            let Some(hash) = self.advance(&mut path).await? else { return Ok(()) };
            if hash & 1 == 0 {
                leaves = 0;
                if batch.entries.len() >= batch.limit {
                    return Ok(());
                }
            }
            leaves += 1;
            if leaves > LEAVES_OF_ONE_HASH_MAX {
                return Err(corrupt_index(path.last().place, "too many leaves of one hash").into());
            }
        }
    }

    async fn read_block(
        &self,
        place: u64,
        is_first: bool,
        hasher: NameHasher,
        batch: &mut Batch,
    ) -> Result<(), B::Error> {
        let look = |records: &[Record<'_>]| {
            let dots = if is_first { 2 } else { 0 };
            for record in records.iter().skip(dots).filter(|record| record.is_live()) {
                let target = Target { inode: record.inode, kind: record.kind };
                batch.push(cookie_of(hasher.hash(record.name)), record.name, target);
            }
            Ok(())
        };
        self.records(place, is_first, look).await
    }
}

/// The first names behind a cookie, out of all that were seen.
struct Batch {
    after: Cookie,
    limit: usize,
    entries: Vec<DirectoryEntry>,
}

impl Batch {
    fn push(&mut self, cookie: Cookie, name: &[u8], target: Target) {
        if cookie > self.after {
            self.entries.push(DirectoryEntry { cookie, name: name.to_vec(), target });
        }
        // Memory stays bounded in a large directory without an index.
        if self.entries.len() > 4 * self.limit + LEAVES_OF_ONE_HASH_MAX {
            self.cut();
        }
    }

    /// Keeps the first names, up to the limit and to the end of the last one's group.
    fn cut(&mut self) {
        self.entries.sort_by(|one, other| (one.cookie, &one.name).cmp(&(other.cookie, &other.name)));
        if let Some(last) = self.entries.get(self.limit - 1).map(|entry| entry.cookie.group()) {
            let end = self.entries.partition_point(|entry| entry.cookie.group() <= last);
            self.entries.truncate(end);
        }
    }
}
