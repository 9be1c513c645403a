//! A file as redb's storage, whose eventual syncs only order.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use redb::StorageBackend;
use weir_order::{make_durable, order_data};

/// A file that no other database has open.
#[derive(Debug)]
pub struct OrderedFile(File);

impl OrderedFile {
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if another database has the file.
    pub fn lock(file: File) -> io::Result<OrderedFile> {
        file.try_lock()?;
        Ok(OrderedFile(file))
    }
}

impl StorageBackend for OrderedFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.0.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    /// With `eventual`, all writes before this call are before all that come later. Otherwise they are durable when it returns.
    fn sync_data(&self, eventual: bool) -> io::Result<()> {
        if eventual {
            order_data(&self.0).map(drop)
        } else {
            make_durable(&self.0)
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}
