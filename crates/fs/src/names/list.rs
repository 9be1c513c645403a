//! Reading directories.

use weir_ext4::directory::{Cookie, DirectoryEntry};

use crate::error::FsError;
use crate::filesystem::{Filesystem, InodeNumber};

/// Names that one call returns, unless more of them share a hash.
const ENTRIES_A_CALL: usize = 1024;

impl Filesystem {
    /// What a name in a directory stands for; "." and ".." too.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDirectory`], [`FsError::NameLength`], and what reading may fail by.
    pub async fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Result<InodeNumber, FsError> {
        super::check_length(name)?;
        let directory = self.0.directory_node(directory).await?;
        let _locked = directory.alone().await;
        let found = self.0.find(&directory, name).await?;
        found.map(|target| target.inode).ok_or(FsError::NotFound)
    }

    /// Names of a directory behind `after`, in the order of their cookies, "." and ".." first; none at the end.
    /// A cookie stays valid while names come and go: a name that is there all the time is read exactly once.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDirectory`], and what reading may fail by.
    pub async fn read_directory(
        &self,
        directory: InodeNumber,
        after: Cookie,
    ) -> Result<Vec<DirectoryEntry>, FsError> {
        let fs = &self.0;
        let directory = fs.directory_node(directory).await?;
        let _locked = directory.alone().await;
        if directory.links() == 0 {
            // It was removed while it was open: not even "." is there.
            return Ok(Vec::new());
        }
        fs.in_directory(&directory, None, async |entries| entries.read(after, ENTRIES_A_CALL).await).await
    }
}
