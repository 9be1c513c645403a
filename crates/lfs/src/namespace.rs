//! Changes of names: made, given, taken, moved. One such call at a time changes directories; what needs space comes before what cannot
//! be taken back.

use std::future::ready;
use std::ops::Deref;
use std::rc::Rc;

use weir_f2fs::{BlockAddress, FoundName, Inode, NameArea, NodeId, inline_flags, write_dots};
use weir_format::{BLOCK_BYTES, FileType, FormatError, Place, Stamp, Structure};
use weir_runtime::Permit;
use weir_vfs::{Caller, FsError, InodeNumber, NewNode, RenameFlags, check_ordinary_name, inherit_group};

use crate::changes::CALL_BLOCKS;
use crate::checkpoint::Durability;
use crate::directory::NameTarget;
use crate::file::File;
use crate::mounted::Mounted;

/// Links that an inode can have.
const LINKS_MAX: u32 = 65_000;
/// The longest target of a symbolic link.
const TARGET_MAX: usize = BLOCK_BYTES - 1;

/// A directory, and a name in it.
#[derive(Clone, Copy)]
struct End<'a> {
    directory: &'a Rc<File>,
    name: &'a [u8],
}

/// The names of a mounted filesystem.
pub(crate) struct Namespace<'a>(pub(crate) &'a Mounted);

impl Deref for Namespace<'_> {
    type Target = Mounted;

    fn deref(&self) -> &Mounted {
        self.0
    }
}

impl Namespace<'_> {
    /// Runs a call that changes names, alone.
    async fn change_names<T>(
        &self,
        change: impl AsyncFnOnce(Permit) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let turn = async { Ok(self.names.acquire(1).await) };
        Durability(self.0).run_change(CALL_BLOCKS, turn, change).await
    }

    /// The type that a name has for a file.
    fn target_of(&self, file: &File) -> Result<NameTarget, FsError> {
        let kind = file.kind().ok_or(FsError::Invalid("no such type"))?;
        Ok(NameTarget { inode: file.number, kind })
    }

    /// Makes a file with a name; `target` is that of a symbolic link.
    pub(crate) async fn create_file(
        &self,
        (parent, name): (InodeNumber, &[u8]),
        new: &NewNode,
        target: &[u8],
    ) -> Result<Rc<File>, FsError> {
        check_ordinary_name(name)?;
        let change = async |_names: Permit| {
            let parent = self.directory(parent).await?;
            if self.find(&parent, name).await?.is_some() {
                return Err(FsError::Exists);
            }
            let is_directory = new.kind == FileType::Directory;
            if is_directory && parent.links() >= LINKS_MAX {
                return Err(FsError::TooManyLinks);
            }
            let file = self.new_file(&parent, new).await?;
            file.change(|inode| inode.set_name(parent.number, name));
            let entered = async {
                self.fill(&file, &parent, target).await?;
                self.insert_name(&parent, name, self.target_of(&file)?).await
            };
            if let Err(error) = entered.await {
                self.delete_unentered(&file).await?;
                return Err(error);
            }
            if is_directory {
                parent.change(|inode| inode.links = (inode.links.get() + 1).into());
            }
            self.placement.space.borrow_mut().expect_name();
            parent.stamp(self.timer.now());
            Ok(file)
        };
        self.change_names(change).await
    }

    /// Makes a file without a name, which is open.
    pub(crate) async fn create_unnamed_file(
        &self,
        parent: InodeNumber,
        new: &NewNode,
    ) -> Result<Rc<File>, FsError> {
        if new.kind != FileType::Regular {
            return Err(FsError::Invalid("only a regular file can be without a name from the start"));
        }
        let change = async |()| {
            let parent = self.directory(parent).await?;
            let file = self.new_file(&parent, new).await?;
            file.change(|inode| inode.links = 0.into());
            file.opens.set(1);
            file.takes_first_name.set(true);
            Ok(file)
        };
        Durability(self.0).run_change(CALL_BLOCKS, ready(Ok(())), change).await
    }

    /// A new inode, with what it has of its directory.
    async fn new_file(&self, parent: &File, new: &NewNode) -> Result<Rc<File>, FsError> {
        let inherited = self.inherit(parent, (new.kind, new.permissions), new.umask).await?;
        self.placement.space.borrow_mut().promise(1)?;
        let taken = self.placement.table.take_number(None).await;
        let (number, entry) =
            taken.inspect_err(|_| self.placement.space.borrow_mut().give_back(BlockAddress::NEW))?;
        let permissions = inherited.permissions_of(new.permissions);
        let mut inode = Inode::new(number, new.kind, permissions, self.extra_bytes());
        inode.inline |= inline_flags::ATTRIBUTES;
        match new.kind {
            FileType::Regular | FileType::Symlink => inode.set_inline(inline_flags::DATA, true),
            FileType::Directory => inode.set_inline(inline_flags::NAMES, true),
            FileType::CharacterDevice | FileType::BlockDevice => {
                let [small, spread] = new.device.to_words()?;
                inode.set_address(0, BlockAddress(small));
                inode.set_address(1, BlockAddress(spread));
            }
            FileType::Fifo | FileType::Socket => {}
        }
        let of_parent = {
            let above = parent.inode.borrow();
            (above.mode.get(), above.gid.get())
        };
        let (gid, bits) = inherit_group(of_parent, Some(new.kind), new.gid);
        (inode.uid, inode.gid) = (new.uid.into(), gid.into());
        inode.mode = (inode.mode.get() | bits).into();
        inode.links = if new.kind == FileType::Directory { 2 } else { 1 }.into();
        inode.blocks = 1.into();
        inode.generation = self.take_generation().into();
        let now = self.timer.now();
        for stamp in [Stamp::Accessed, Stamp::Changed, Stamp::Modified, Stamp::Created] {
            inode.set_time(stamp, now);
        }
        let file = self.files.insert(number, inode, entry);
        file.change(|_| ());
        file.is_new.set(true);
        if let Some(lists) = &inherited.attributes
            && let Err(error) = self.store_extended(&file, lists).await
        {
            self.delete_unentered(&file).await?;
            return Err(error);
        }
        Ok(file)
    }

    /// Deletes a new file that got no name.
    async fn delete_unentered(&self, file: &Rc<File>) -> Result<(), FsError> {
        file.change(|inode| inode.links = 0.into());
        self.delete_if_unused(file).await
    }

    /// Gives a new file what it has from the start: a directory its two names, a symbolic link its target.
    async fn fill(&self, file: &Rc<File>, parent: &File, target: &[u8]) -> Result<(), FsError> {
        if file.is_directory() {
            return Ok(file.change(|inode| {
                let area = inode.inline_area_mut();
                let (form, bytes) = (NameArea::of_inline(area.len()), area.len() as u64);
                inode.size = bytes.into();
                write_dots(inode.inline_area_mut(), form, file.number, parent.number)
            })?);
        }
        if target.is_empty() {
            return Ok(());
        }
        let is_short = file.change(|inode| {
            inode.size = (target.len() as u64).into();
            let room = inode.inline_area_mut().get_mut(..target.len());
            room.map(|room| room.copy_from_slice(target)).is_some()
        });
        file.change(|inode| {
            inode.set_inline(inline_flags::DATA, is_short);
            inode.set_inline(inline_flags::DATA_EXISTS, is_short);
        });
        if is_short { Ok(()) } else { self.write_page(file, 0, 0, target).await }
    }

    /// Makes a symbolic link.
    pub(crate) async fn create_link(
        &self,
        end: (InodeNumber, &[u8]),
        target: &[u8],
        (uid, gid): (u32, u32),
    ) -> Result<Rc<File>, FsError> {
        if target.is_empty() || target.len() > TARGET_MAX || target.contains(&0) {
            return Err(FsError::Invalid("the target of a symbolic link has 1 to 4,095 bytes, none zero"));
        }
        let new = NewNode { uid, gid, ..NewNode::new(FileType::Symlink, 0o777) };
        self.create_file(end, &new, target).await
    }

    /// Gives a file a further name.
    pub(crate) async fn add_name(
        &self,
        inode: InodeNumber,
        (directory, name): (InodeNumber, &[u8]),
    ) -> Result<Rc<File>, FsError> {
        check_ordinary_name(name)?;
        let change = async |_names: Permit| {
            let directory = self.directory(directory).await?;
            let file = self.files.get(NodeId(inode)).await?;
            if file.is_directory() {
                return Err(FsError::NotPermitted("a directory has one name only"));
            }
            if self.find(&directory, name).await?.is_some() {
                return Err(FsError::Exists);
            }
            // No other task deletes it, if it has no name.
            let _locked = file.lock_exclusive().await?;
            match file.links() {
                0 if !file.takes_first_name.get() || !self.files.is_in_use(&file) => {
                    return Err(FsError::NotFound);
                }
                LINKS_MAX.. => return Err(FsError::TooManyLinks),
                _ => {}
            }
            self.insert_name(&directory, name, self.target_of(&file)?).await?;
            file.takes_first_name.set(false);
            file.change(|inode| {
                inode.links = (inode.links.get() + 1).into();
                inode.set_name(directory.number, name);
                inode.set_time(Stamp::Changed, self.timer.now());
            });
            file.needs_checkpoint.set(true);
            directory.stamp(self.timer.now());
            Ok(file)
        };
        self.change_names(change).await
    }

    /// Takes a name from a file, which is deleted if it was the last and no program has it open. `is_directory` says what it has to be.
    pub(crate) async fn take_name(
        &self,
        directory: InodeNumber,
        name: &[u8],
        is_directory: bool,
    ) -> Result<(), FsError> {
        check_ordinary_name(name)?;
        let change = async |names: Permit| {
            let directory = self.directory(directory).await?;
            let found = self.find(&directory, name).await?.ok_or(FsError::NotFound)?;
            let file = self.named_file(&directory, &found).await?;
            match (file.is_directory(), is_directory) {
                (true, false) => return Err(FsError::IsDirectory),
                (false, true) => return Err(FsError::NotDirectory),
                (true, true) if !self.is_empty(&file).await? => return Err(FsError::NotEmpty),
                _ => {}
            }
            self.remove_name(&directory, name, &found).await?;
            if is_directory {
                lose_subdirectory(&directory);
            }
            directory.stamp(self.timer.now());
            self.lose_name(&file);
            drop(names);
            self.delete_if_unused(&file).await
        };
        self.change_names(change).await
    }

    /// The file that a name was found to stand for.
    async fn named_file(&self, directory: &File, found: &FoundName) -> Result<Rc<File>, FsError> {
        self.files.get(found.inode).await.map_err(|error| match error {
            FsError::NotFound => {
                let place = Place::Inode(directory.number.0);
                FormatError::corrupt(Structure::Directory, place, "a name of no inode in use").into()
            }
            error => error,
        })
    }

    /// A file has a name less.
    fn lose_name(&self, file: &File) {
        let left = if file.is_directory() { 0 } else { file.links().saturating_sub(1) };
        file.change(|inode| {
            inode.links = left.into();
            inode.set_time(Stamp::Changed, self.timer.now());
        });
        file.needs_checkpoint.set(true);
    }

    /// Moves a name, over one that is there or not; or exchanges two.
    pub(crate) async fn rename_file(
        &self,
        caller: Caller,
        (from, old): (InodeNumber, &[u8]),
        (to, new): (InodeNumber, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), FsError> {
        check_ordinary_name(old)?;
        check_ordinary_name(new)?;
        if flags.exchange && (flags.no_replace || flags.whiteout) {
            return Err(FsError::Invalid("a rename that exchanges replaces nothing, and leaves no whiteout"));
        }
        let change = async |names: Permit| {
            let (from, to) = (self.directory(from).await?, self.directory(to).await?);
            let (from, to) = (End { directory: &from, name: old }, End { directory: &to, name: new });
            let source = self.find(from.directory, old).await?.ok_or(FsError::NotFound)?;
            let source_file = self.named_file(from.directory, &source).await?;
            let target = self.find(to.directory, new).await?;
            let target_file = match &target {
                Some(target) => Some(self.named_file(to.directory, target).await?),
                None => None,
            };
            self.check_move(from, to, &source_file).await?;
            match target.zip(target_file) {
                Some(_) if flags.no_replace => Err(FsError::Exists),
                Some((target, _)) if target.inode == source.inode => Ok(()),
                Some((target, file)) if flags.exchange => {
                    self.check_move(to, from, &file).await?;
                    self.exchange(from, to, (&source, &source_file), (&target, &file)).await
                }
                None if flags.exchange => Err(FsError::NotFound),
                replaced => {
                    if let Some((_, file)) = &replaced {
                        self.check_replaceable(&source_file, file).await?;
                    }
                    let whiteout = match flags.whiteout {
                        true => Some(self.new_whiteout(from.directory, caller).await?),
                        false => None,
                    };
                    let ends = (&source, &source_file);
                    self.move_name(from, to, ends, replaced.as_ref(), whiteout.as_ref()).await?;
                    drop(names);
                    match replaced {
                        Some((_, file)) => self.delete_if_unused(&file).await,
                        None => Ok(()),
                    }
                }
            }
        };
        self.change_names(change).await
    }

    async fn new_whiteout(&self, directory: &File, Caller { uid, gid }: Caller) -> Result<Rc<File>, FsError> {
        let new = NewNode { uid, gid, ..NewNode::new(FileType::CharacterDevice, 0) };
        self.new_file(directory, &new).await
    }

    /// Moves a name. An error before anything has changed is one of the call; later, half of the move is in memory.
    async fn move_name(
        &self,
        from: End<'_>,
        to: End<'_>,
        (source, file): (&FoundName, &Rc<File>),
        replaced: Option<&(FoundName, Rc<File>)>,
        whiteout: Option<&Rc<File>>,
    ) -> Result<(), FsError> {
        let target = self.target_of(file)?;
        let entered = match replaced {
            Some((found, _)) => self.set_target(to.directory, to.name, found, target).await,
            None => self.insert_name(to.directory, to.name, target).await,
        };
        if let Err(error) = entered {
            if let Some(whiteout) = whiteout {
                self.delete_unentered(whiteout).await?;
            }
            return Err(error);
        }
        if let Some((_, old)) = replaced {
            if old.is_directory() {
                lose_subdirectory(to.directory);
            }
            self.lose_name(old);
        }
        let left = self.leave_name(from, to, (source, file), whiteout).await;
        left.inspect_err(|error| self.operations.stop_after(error))
    }

    /// The second half of a move: a file that has the name `to` loses the name `from`.
    async fn leave_name(
        &self,
        from: End<'_>,
        to: End<'_>,
        (source, file): (&FoundName, &Rc<File>),
        whiteout: Option<&Rc<File>>,
    ) -> Result<(), FsError> {
        // The insertion may have moved the names out of the inode, or to another block.
        let source = match from.directory.number == to.directory.number {
            true => self.find(from.directory, from.name).await?.ok_or(FsError::NotFound)?,
            false => *source,
        };
        match whiteout {
            Some(whiteout) => {
                whiteout.change(|inode| inode.set_name(from.directory.number, from.name));
                self.set_target(from.directory, from.name, &source, self.target_of(whiteout)?).await?;
            }
            None => self.remove_name(from.directory, from.name, &source).await?,
        }
        self.finish_move(from.directory, to, file).await
    }

    /// A file has the name `to` now, and was in another directory or in the same.
    async fn finish_move(&self, from: &Rc<File>, to: End<'_>, file: &Rc<File>) -> Result<(), FsError> {
        let now = self.timer.now();
        if file.is_directory() && from.number != to.directory.number {
            lose_subdirectory(from);
            to.directory.change(|inode| inode.links = (inode.links.get() + 1).into());
            let dots = self.find(file, b"..").await?.ok_or_else(|| {
                let place = Place::Inode(file.number.0);
                FormatError::corrupt(Structure::Directory, place, "it has no name \"..\"")
            })?;
            let parent = NameTarget { inode: to.directory.number, kind: FileType::Directory };
            self.set_target(file, b"..", &dots, parent).await?;
        }
        file.change(|inode| {
            inode.set_name(to.directory.number, to.name);
            inode.set_time(Stamp::Changed, now);
        });
        file.needs_checkpoint.set(true);
        from.stamp(now);
        to.directory.stamp(now);
        Ok(())
    }

    async fn exchange(
        &self,
        from: End<'_>,
        to: End<'_>,
        (source, file): (&FoundName, &Rc<File>),
        (target, other): (&FoundName, &Rc<File>),
    ) -> Result<(), FsError> {
        let (one, two) = (self.target_of(file)?, self.target_of(other)?);
        self.set_target(to.directory, to.name, target, one).await?;
        let rest = async {
            self.set_target(from.directory, from.name, source, two).await?;
            self.finish_move(from.directory, to, file).await?;
            self.finish_move(to.directory, from, other).await
        };
        rest.await.inspect_err(|error| self.operations.stop_after(error))
    }

    /// That a file may move from one end to another.
    async fn check_move(&self, from: End<'_>, to: End<'_>, file: &File) -> Result<(), FsError> {
        if !file.is_directory() || from.directory.number == to.directory.number {
            return Ok(());
        }
        if to.directory.links() >= LINKS_MAX {
            return Err(FsError::TooManyLinks);
        }
        let mut at = Rc::clone(to.directory);
        // A way upwards that is damaged may lead into itself: it is no longer than there are inodes.
        for _ in 0..=self.placement.table.counts().1 {
            if at.number == file.number {
                return Err(FsError::Invalid("a directory cannot move into itself or below"));
            }
            if at.number == NodeId::ROOT {
                return Ok(());
            }
            let dots = self.find(&at, b"..").await?.ok_or(FsError::NotFound)?;
            at = self.files.get(dots.inode).await?;
        }
        let place = Place::Inode(to.directory.number.0);
        Err(FormatError::corrupt(Structure::Directory, place, "it lies below itself").into())
    }

    async fn check_replaceable(&self, source: &File, target: &File) -> Result<(), FsError> {
        match (source.is_directory(), target.is_directory()) {
            (true, false) => Err(FsError::NotDirectory),
            (false, true) => Err(FsError::IsDirectory),
            (true, true) if !self.is_empty(target).await? => Err(FsError::NotEmpty),
            _ => Ok(()),
        }
    }
}

/// A directory has a subdirectory less.
pub(crate) fn lose_subdirectory(directory: &File) {
    directory.change(|inode| inode.links = inode.links.get().saturating_sub(1).max(2).into());
}
