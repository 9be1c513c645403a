//! Names in directories: put in, taken out, and given another target. The caller has the directory's lock.

use std::rc::Rc;

use weir_f2fs::{BlockAddress, FileReader, FoundName, NameArea, NodeId, buckets, hash_name, inline_flags};
use weir_format::{BLOCK_BYTES, Cookie, FileType, FormatError, Place, Structure};
use weir_vfs::{FsError, InodeNumber};

use crate::file::File;
use crate::mounted::Mounted;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameTarget {
    pub(crate) inode: NodeId,
    pub(crate) kind: FileType,
}

impl Mounted {
    /// A directory that has a name.
    pub(crate) async fn directory(&self, number: InodeNumber) -> Result<Rc<File>, FsError> {
        let directory = self.files.get(NodeId(number)).await?;
        if !directory.is_directory() {
            return Err(FsError::NotDirectory);
        }
        if directory.links() == 0 { Err(FsError::NotFound) } else { Ok(directory) }
    }

    /// What a name in a directory stands for, and where it is.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`]; [`FsError::Format`] for damage; what reading fails by.
    pub(crate) async fn find(&self, directory: &File, name: &[u8]) -> Result<Option<FoundName>, FsError> {
        if !directory.is_directory() {
            return Err(FsError::NotDirectory);
        }
        let inode = *directory.inode.borrow();
        self.find_name(&inode, name).await
    }

    /// Puts a name into a directory that does not have it.
    ///
    /// # Errors
    /// [`FsError::NoSpace`]; as [`find`](Self::find).
    pub(crate) async fn insert_name(
        &self,
        directory: &Rc<File>,
        name: &[u8],
        target: NameTarget,
    ) -> Result<(), FsError> {
        if directory.has_inline(inline_flags::NAMES) {
            let inserted = directory.change(|inode| insert_inline(inode.inline_area_mut(), name, target))?;
            if inserted {
                return Ok(());
            }
            self.move_names_out(directory).await?;
        }
        let base = directory.inode.borrow().directory_level;
        let hash = hash_name(name);
        for level in 0..buckets::LEVELS_MAX {
            for page in buckets::blocks_of(level, base, hash) {
                let inode = *directory.inode.borrow();
                let mut names = self.page(&inode, page).await?;
                let Some(slot) = NameArea::BLOCK.find_room(&names[..], name.len()) else { continue };
                NameArea::BLOCK.insert(&mut names[..], slot, (name, target.inode, target.kind))?;
                self.write_page(directory, page, 0, &names[..]).await?;
                let end = (page + 1) * BLOCK_BYTES as u64;
                directory.change(|inode| {
                    inode.size = inode.size.get().max(end).into();
                    inode.depth = inode.depth.get().max(level + 1).into();
                });
                return Ok(());
            }
        }
        Err(FsError::NoSpace)
    }

    /// Moves the names of a small directory out of its inode.
    async fn move_names_out(&self, directory: &Rc<File>) -> Result<(), FsError> {
        let inode = *directory.inode.borrow();
        let (area, place) = (inode.inline_area(), Place::Inode(directory.number.0));
        let mut names = Box::new([0; BLOCK_BYTES]);
        for found in NameArea::of_inline(area.len()).names(area, place) {
            let found = found?;
            let kind = found
                .kind
                .ok_or_else(|| FormatError::corrupt(Structure::Directory, place, "the type of a name"))?;
            // Where it was: a caller that reads the directory goes on behind the same slot.
            NameArea::BLOCK.insert(&mut names[..], found.slot, (found.name, found.inode, kind))?;
        }
        // A full filesystem leaves the names where they are.
        self.placement.space.borrow().require_room(1)?;
        directory.change(|inode| {
            inode.set_inline(inline_flags::NAMES, false);
            (0..inode.addresses()).for_each(|word| inode.set_address(word, BlockAddress::NULL));
            inode.size = (BLOCK_BYTES as u64).into();
            inode.depth = 1.into();
            // All names are in the one block of the first level.
            inode.directory_level = 0;
        });
        self.write_page(directory, 0, 0, &names[..]).await
    }

    /// Takes a name out of a directory, where it was found.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) async fn remove_name(
        &self,
        directory: &Rc<File>,
        name: &[u8],
        found: &FoundName,
    ) -> Result<(), FsError> {
        self.change_names(directory, found, |form, area| form.remove(area, found.slot, name.len())).await?;
        directory.lost_names.borrow_mut().insert(name.to_vec());
        Ok(())
    }

    /// Lets a name stand for another inode, where it was found.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) async fn set_target(
        &self,
        directory: &Rc<File>,
        name: &[u8],
        found: &FoundName,
        target: NameTarget,
    ) -> Result<(), FsError> {
        let NameTarget { inode, kind } = target;
        self.change_names(directory, found, |form, area| form.set_target(area, found.slot, inode, kind))
            .await?;
        directory.lost_names.borrow_mut().insert(name.to_vec());
        Ok(())
    }

    async fn change_names(
        &self,
        directory: &Rc<File>,
        found: &FoundName,
        change: impl FnOnce(NameArea, &mut [u8]),
    ) -> Result<(), FsError> {
        let Some(page) = found.page else {
            directory.change(|inode| {
                let area = inode.inline_area_mut();
                change(NameArea::of_inline(area.len()), area);
            });
            return Ok(());
        };
        let inode = *directory.inode.borrow();
        let mut names = self.page(&inode, page).await?;
        change(NameArea::BLOCK, &mut names[..]);
        self.write_page(directory, page, 0, &names[..]).await
    }

    /// Whether a directory has no names but its own two.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) async fn is_empty(&self, directory: &File) -> Result<bool, FsError> {
        let inode = *directory.inode.borrow();
        let mut after = Cookie::START;
        loop {
            let names = self.read_names(&inode, after, 3).await?;
            if names.iter().any(|entry| entry.name != b"." && entry.name != b"..") {
                return Ok(false);
            }
            match names.last() {
                Some(last) => after = last.cookie,
                None => return Ok(true),
            }
        }
    }
}

/// Puts a name into the area of an inode; whether it has room.
fn insert_inline(area: &mut [u8], name: &[u8], target: NameTarget) -> Result<bool, FormatError> {
    let form = NameArea::of_inline(area.len());
    let Some(slot) = form.find_room(area, name.len()) else { return Ok(false) };
    form.insert(area, slot, (name, target.inode, target.kind))?;
    Ok(true)
}
