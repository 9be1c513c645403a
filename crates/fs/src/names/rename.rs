//! Moving names: within a directory or between two, over what is there or not, or two of them at once.

use std::rc::Rc;

use weir_ext4::ROOT_INODE;
use weir_format::{FileType, FormatError, Place, Stamp, Structure};
use weir_journal::TxHandle;
use weir_runtime::Permit;
use weir_vfs::{Caller, FsError, InodeNumber, NewNode, RenameFlags, check_ordinary_name};

use super::{LOOKS_MAX, Namespace, dangling};
use crate::space::GROUP_CREDITS;
use crate::{inodes::Node, inodes::lock};

/// Blocks that a whiteout changes beside those of the rename: a bitmap, a descriptor, and two of an inode table, one of
/// which was never used.
const WHITEOUT_CREDITS: u32 = GROUP_CREDITS + 2;

/// One end of a rename.
#[derive(Clone, Copy)]
struct End<'a> {
    directory: &'a Rc<Node>,
    name: &'a [u8],
}

/// What a rename found, under all its locks.
struct LockedNames {
    source: Rc<Node>,
    target: Option<Rc<Node>>,
    _locks: Vec<Permit>,
}

impl Namespace {
    /// Gives what one name stands for another name instead, in one atomic group. What the new name stood for
    /// loses it: a file gives way to files, an empty directory to directories. Nothing happens if both names
    /// stand for one inode already.
    pub(crate) async fn rename(
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
        let done = self.changes.changing(self.rename_checked(caller, (from, old), (to, new), flags)).await;
        self.deletion.keep_up().await;
        done
    }

    async fn rename_checked(
        &self,
        caller: Caller,
        (from, old): (InodeNumber, &[u8]),
        (to, new): (InodeNumber, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), FsError> {
        let replaced = self
            .changes
            .with_space(async || {
                self.changes.journal()?;
                let from = self.directories.node(from).await?;
                let to = self.directories.node(to).await?;
                let _between =
                    if from.number == to.number { None } else { Some(self.renaming.acquire(1).await) };
                let (from, to) = (End { directory: &from, name: old }, End { directory: &to, name: new });
                let found = self.find_ends(from, to).await?;
                match &found.target {
                    Some(_) if flags.no_replace => Err(FsError::Exists),
                    Some(target) if target.number == found.source.number => Ok(None),
                    Some(target) if flags.exchange => {
                        self.exchange(from, to, &found.source, target).await?;
                        Ok(None)
                    }
                    None if flags.exchange => Err(FsError::NotFound),
                    target => {
                        let whiteout = flags.whiteout.then_some(caller);
                        self.move_name(caller, from, to, (&found.source, target.as_ref()), whiteout).await?;
                        Ok(target.clone())
                    }
                }
            })
            .await?;
        match replaced {
            Some(node) => self.deletion.delete_unused(&node).await,
            None => Ok(()),
        }
    }

    /// What two names stand for, with the locks of all.
    async fn find_ends(&self, from: End<'_>, to: End<'_>) -> Result<LockedNames, FsError> {
        for _ in 0..LOOKS_MAX {
            let directories = lock(&[from.directory, to.directory]).await;
            let source = self.directories.find(from.directory, from.name).await?.ok_or(FsError::NotFound)?;
            let target = self.directories.find(to.directory, to.name).await?;
            drop(directories);
            let Some(source) = self.directories.linked_node(source).await? else { continue };
            let target = match target {
                Some(target) => match self.directories.linked_node(target).await? {
                    Some(node) => Some(node),
                    None => continue,
                },
                None => None,
            };
            let mut nodes = vec![from.directory, to.directory, &source];
            nodes.extend(&target);
            let locks = lock(&nodes).await;
            let source_is = self.directories.find(from.directory, from.name).await?.map(|found| found.inode);
            let target_is = self.directories.find(to.directory, to.name).await?.map(|found| found.inode);
            if source_is == Some(source.number) && target_is == target.as_ref().map(|node| node.number) {
                return Ok(LockedNames { source, target, _locks: locks });
            }
        }
        Err(dangling(from.directory))
    }

    /// Moves a name, and leaves a whiteout of this caller in its old place, if there is one.
    async fn move_name(
        &self,
        caller: Caller,
        from: End<'_>,
        to: End<'_>,
        (source, target): (&Rc<Node>, Option<&Rc<Node>>),
        whiteout: Option<Caller>,
    ) -> Result<(), FsError> {
        self.check_move(from, to, source, target).await?;
        let credits = super::CREDITS + if whiteout.is_some() { WHITEOUT_CREDITS } else { 0 };
        let handle = self.changes.start_for(caller, credits).await?;
        // The only steps that may lack space come first.
        let whiteout = match whiteout {
            Some(owner) => Some(self.new_whiteout(&handle, from.directory, owner).await?),
            None => None,
        };
        if target.is_none()
            && let Err(error) = self.directories.enter(&handle, to.directory, to.name, source).await
        {
            self.changes.all_or_abort(to.directory.log(&handle)).await?;
            if let Some(whiteout) = whiteout {
                self.unmake(&handle, from.directory, &whiteout).await?;
            }
            return Err(error);
        }
        self.changes
            .all_or_abort(self.finish_move(&handle, from, to, (source, target), whiteout.as_ref()))
            .await?;
        self.directories.remember(
            from.directory,
            from.name,
            whiteout.map(|whiteout| self.directories.entry_of(&whiteout)),
        );
        self.directories.remember(to.directory, to.name, Some(self.directories.entry_of(source)));
        Ok(())
    }

    /// Whether a name may move.
    async fn check_move(
        &self,
        from: End<'_>,
        to: End<'_>,
        source: &Rc<Node>,
        target: Option<&Rc<Node>>,
    ) -> Result<(), FsError> {
        let between = from.directory.number != to.directory.number;
        if source.is_directory() && between {
            self.check_not_below(to.directory, source).await?;
        }
        if let Some(target) = target {
            self.check_replaceable(source, target).await?;
        } else if source.is_directory()
            && between
            && !to.directory.takes_subdirectory(self.directories.has_uncounted_links())
        {
            return Err(FsError::TooManyLinks);
        }
        Ok(())
    }

    /// A whiteout without a name: the name that moves away becomes its own, in the same transaction.
    async fn new_whiteout(
        &self,
        handle: &TxHandle,
        directory: &Rc<Node>,
        Caller { uid, gid }: Caller,
    ) -> Result<Rc<Node>, FsError> {
        let new = NewNode { uid, gid, ..NewNode::new(FileType::CharacterDevice, 0) };
        self.allocate_node(handle, directory, self.inode_of(&new)?).await
    }

    /// A file gives way to files, and an empty directory to directories.
    async fn check_replaceable(&self, source: &Rc<Node>, target: &Rc<Node>) -> Result<(), FsError> {
        match (source.is_directory(), target.is_directory()) {
            (true, false) => Err(FsError::NotDirectory),
            (false, true) => Err(FsError::IsDirectory),
            (true, true) => self.check_empty(target).await,
            (false, false) => Ok(()),
        }
    }

    /// All of a move but the new name, if that was not there before.
    async fn finish_move(
        &self,
        handle: &TxHandle,
        from: End<'_>,
        to: End<'_>,
        (source, target): (&Rc<Node>, Option<&Rc<Node>>),
        whiteout: Option<&Rc<Node>>,
    ) -> Result<(), FsError> {
        if let Some(target) = target {
            self.replace_name(handle, to, source).await?;
            self.lose_name(handle, target).await?;
        }
        match whiteout {
            Some(whiteout) => {
                self.replace_name(handle, from, whiteout).await?;
                whiteout.log(handle).await?;
            }
            None => {
                self.directories
                    .within(from.directory, Some(handle), async |entries| entries.remove(from.name).await)
                    .await?;
            }
        }
        if source.is_directory() {
            if target.is_some() {
                to.directory.remove_subdirectory();
            }
            self.change_parent(handle, source, from.directory, to.directory).await?;
        }
        self.ends_changed(handle, from, to).await?;
        self.renamed(handle, source).await
    }

    async fn exchange(
        &self,
        from: End<'_>,
        to: End<'_>,
        source: &Rc<Node>,
        target: &Rc<Node>,
    ) -> Result<(), FsError> {
        if from.directory.number != to.directory.number {
            self.check_exchangeable(from.directory, to.directory, source, target)?;
            if source.is_directory() {
                self.check_not_below(to.directory, source).await?;
            }
            if target.is_directory() {
                self.check_not_below(from.directory, target).await?;
            }
        }
        let handle = self.changes.start(super::CREDITS).await?;
        self.changes
            .all_or_abort(async {
                self.replace_name(&handle, to, source).await?;
                self.replace_name(&handle, from, target).await?;
                if source.is_directory() {
                    self.change_parent(&handle, source, from.directory, to.directory).await?;
                }
                if target.is_directory() {
                    self.change_parent(&handle, target, to.directory, from.directory).await?;
                }
                self.ends_changed(&handle, from, to).await?;
                self.renamed(&handle, source).await?;
                self.renamed(&handle, target).await
            })
            .await?;
        self.directories.remember(from.directory, from.name, Some(self.directories.entry_of(target)));
        self.directories.remember(to.directory, to.name, Some(self.directories.entry_of(source)));
        Ok(())
    }

    /// An exchange of a directory for a file gives one of the two parents a subdirectory more.
    fn check_exchangeable(
        &self,
        from: &Node,
        to: &Node,
        source: &Node,
        target: &Node,
    ) -> Result<(), FsError> {
        let gains = match (source.is_directory(), target.is_directory()) {
            (true, false) => to,
            (false, true) => from,
            _ => return Ok(()),
        };
        if gains.takes_subdirectory(self.directories.has_uncounted_links()) {
            Ok(())
        } else {
            Err(FsError::TooManyLinks)
        }
    }

    /// Fails if `directory` is `above`, or below it. Renames between directories come one at a time, so the way
    /// up does not change.
    async fn check_not_below(&self, directory: &Rc<Node>, above: &Node) -> Result<(), FsError> {
        let mut at = Rc::clone(directory);
        // Where ".." is damaged, the way may lead back into itself: it would come by the directory that is remembered,
        // a later one at each power of two.
        let mut remembered = directory.number;
        for steps in 1_u64.. {
            if at.number == above.number {
                return Err(FsError::Invalid("a directory cannot move into itself or below"));
            }
            if at.number == ROOT_INODE {
                break;
            }
            let parent = self.directories.within(&at, None, async |entries| entries.parent().await).await?;
            if parent == remembered {
                let place = Place::Inode(parent);
                return Err(FormatError::corrupt(Structure::Directory, place, "it lies below itself").into());
            }
            if steps.is_power_of_two() {
                remembered = parent;
            }
            at = self.directories.node(parent).await?;
        }
        Ok(())
    }

    async fn replace_name(&self, handle: &TxHandle, end: End<'_>, node: &Node) -> Result<(), FsError> {
        let target = self.directories.entry_of(node);
        node.last_changes.note_name(end.directory.number);
        self.directories
            .within(end.directory, Some(handle), async |entries| entries.replace(end.name, target).await)
            .await?
            .map(drop)
            .ok_or(FsError::NotFound)
    }

    /// Lets ".." of a directory that moved stand for its new parent, and counts it there.
    async fn change_parent(
        &self,
        handle: &TxHandle,
        moved: &Rc<Node>,
        from: &Node,
        to: &Node,
    ) -> Result<(), FsError> {
        if from.number == to.number {
            return Ok(());
        }
        from.remove_subdirectory();
        to.add_subdirectory();
        self.directories
            .within(moved, Some(handle), async |entries| entries.set_parent(to.number).await)
            .await
    }

    async fn ends_changed(&self, handle: &TxHandle, from: End<'_>, to: End<'_>) -> Result<(), FsError> {
        self.directories.changed(handle, from.directory).await?;
        if from.directory.number == to.directory.number {
            return Ok(());
        }
        self.directories.changed(handle, to.directory).await
    }

    async fn renamed(&self, handle: &TxHandle, node: &Rc<Node>) -> Result<(), FsError> {
        node.inode.borrow_mut().set_time(Stamp::Changed, self.timer.now());
        node.log(handle).await
    }
}
