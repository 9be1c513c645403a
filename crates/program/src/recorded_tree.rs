//! *Recorded tree*: the tree that a program works on, and the record of what it does to it.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_format::{FileTime, FileType};
use weir_storage::CommandKind;
use weir_vfs::{
    AttributeChanges, Attributes, Device, FsError, Holds, InodeNumber, NewNode, RenameFlags,
    check_name_length, check_ordinary_name, inherit_group,
};

use crate::acks::{ACK_NAME, PartialLines};
use crate::cut_point::{CutMoment, CutTrigger};
use crate::fault::{FaultKind, Faults, device_error};
use crate::operation::{Call, NewInode, Place};
use crate::paths::Paths;
use crate::record::{Process, Record};
use crate::tree::{Content, FILE_BYTES_MAX, Name, Node, ROOT, Tree};

/// The file that takes acknowledgements.
pub(crate) const ACK: InodeNumber = 2;
/// Bytes that the files of the tree may take.
const BLOCKS_MAX: u64 = (2 << 30) / crate::tree::BLOCK_BYTES as u64;
/// Inodes that are made at most, of all that a run makes: a cookie has room for so many.
const INODES_MAX: InodeNumber = 1 << 31;

/// What the tree does not have of an inode.
#[derive(Clone, Copy, Debug, Default)]
struct InodeState {
    links: u32,
    opened: u32,
    /// The directory that a directory is in.
    parent: InodeNumber,
    accessed: FileTime,
    changed: FileTime,
    modified: FileTime,
    created: FileTime,
}

/// The tree, what else is known of its inodes, and the record.
pub(crate) struct RecordedTree {
    pub(crate) tree: Tree,
    pub(crate) record: Record,
    pub(crate) holds: Holds,
    states: BTreeMap<InodeNumber, InodeState>,
    next: InodeNumber,
    /// The thread that calls now, and its process in the record.
    caller: (u32, usize),
    lines: PartialLines,
    blocks: u64,
    paths: Paths,
    /// What goes wrong, once the setup has ended.
    faults: Option<Faults>,
    /// The read that was struck last: its file and offset.
    struck_read: Option<(InodeNumber, u64)>,
    /// When the power is cut, once the setup has ended.
    cut: Option<CutTrigger>,
}

impl RecordedTree {
    /// An empty tree.
    pub(crate) fn new(record: Record, now: FileTime) -> RecordedTree {
        let (tree, holds) = (Tree::new(record.owner), Holds::default());
        let of_root =
            InodeState { links: 1, parent: ROOT, changed: now, modified: now, ..InodeState::default() };
        let states = BTreeMap::from([(ROOT, of_root)]);
        let lines = PartialLines::default();
        let (next, caller, paths) = (ACK + 1, (0, 0), Paths::default());
        RecordedTree {
            tree,
            record,
            holds,
            states,
            next,
            caller,
            lines,
            blocks: 0,
            paths,
            faults: None,
            struck_read: None,
            cut: None,
        }
    }

    /// The calls that follow are those of a thread; 0 for pages that the kernel writes back.
    pub(crate) fn set_caller(&mut self, thread: u32) {
        if self.caller.0 == thread {
            return;
        }
        let command = std::fs::read_to_string(format!("/proc/{thread}/comm")).unwrap_or_default();
        let process = Process { id: thread, command: command.trim_end().to_owned() };
        let known = self.record.processes.iter().rposition(|other| *other == process);
        let nth = known.unwrap_or(if thread == 0 { 0 } else { self.record.processes.len() });
        if nth == self.record.processes.len() {
            self.record.processes.push(process);
        }
        self.caller = (thread, nth);
    }

    /// Records a call, and does it.
    fn perform(&mut self, call: Call, data: &[u8]) -> Result<(), FsError> {
        if !self.record.is_open() {
            return Err(FsError::NoSpace);
        }
        let is_last = self.meet_cut(&call)?;
        call.apply(&mut self.tree, data);
        self.paths.follow(&call);
        let is_recorded = self.record.push(self.caller.1, call);
        self.cut.iter().filter(|_| is_last).for_each(CutTrigger::cut);
        if is_recorded { Ok(()) } else { Err(FsError::NoSpace) }
    }

    /// Fails if the power is cut, or is cut before a call; whether it is cut behind that call.
    fn meet_cut(&mut self, call: &Call) -> Result<bool, FsError> {
        let Some(cut) = &mut self.cut else { return Ok(false) };
        let moment = if cut.is_cut() { None } else { cut.meet(call, &self.paths) };
        if moment == Some(CutMoment::Before) {
            cut.cut();
        }
        if cut.is_cut() {
            return Err(device_error(CommandKind::Write));
        }
        Ok(moment == Some(CutMoment::Behind))
    }

    /// Records an acknowledgement, unless the power is cut.
    fn acknowledge_by(&mut self, process: usize, line: Vec<u8>) -> Result<(), FsError> {
        let call = Call::Acknowledge(self.record.lines.len());
        let is_last = self.meet_cut(&call)?;
        self.record.acknowledge(process, line);
        self.cut.iter().filter(|_| is_last).for_each(CutTrigger::cut);
        if self.record.is_open() { Ok(()) } else { Err(FsError::NoSpace) }
    }

    fn node(&self, inode: InodeNumber) -> Result<&Node, FsError> {
        self.tree.node(inode).ok_or(FsError::NotFound)
    }

    pub(crate) fn names(&self, directory: InodeNumber) -> Result<&BTreeMap<Name, InodeNumber>, FsError> {
        self.node(directory)?.names().ok_or(FsError::NotDirectory)
    }

    /// The directory that a directory is in.
    pub(crate) fn parent(&self, directory: InodeNumber) -> InodeNumber {
        self.states.get(&directory).map_or(ROOT, |state| state.parent)
    }

    pub(crate) fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Result<InodeNumber, FsError> {
        check_name_length(name)?;
        let names = self.names(directory)?;
        match name {
            b"." => Ok(directory),
            b".." => Ok(self.parent(directory)),
            name if directory == ROOT && name == ACK_NAME.as_bytes() => Ok(ACK),
            name => names.get(name).copied().ok_or(FsError::NotFound),
        }
    }

    pub(crate) fn is_there(&self, inode: InodeNumber) -> bool {
        inode == ACK || self.tree.node(inode).is_some()
    }

    pub(crate) fn attributes(&self, inode: InodeNumber) -> Result<Attributes, FsError> {
        let ack = Node::new(Content::File(crate::tree::FileContent::default()), 0o666, self.record.owner);
        let node = if inode == ACK { &ack } else { self.node(inode)? };
        let state =
            self.states.get(&inode).copied().unwrap_or(InodeState { links: 1, ..InodeState::default() });
        let (mut sectors, mut device) = (0, Device::default());
        match &node.content {
            Content::File(file) => sectors = file.blocks() * 8,
            Content::Special(_, (major, minor)) => device = Device { major: *major, minor: *minor },
            Content::Directory(_) | Content::Symlink(_) => {}
        }
        Ok(Attributes {
            inode,
            generation: 1,
            kind: node.kind(),
            permissions: node.permissions,
            links: if node.kind() == FileType::Directory { 1 } else { state.links },
            takes_first_name: state.links == 0,
            uid: node.uid,
            gid: node.gid,
            size: node.size(),
            sectors,
            accessed: state.accessed,
            changed: state.changed,
            modified: state.modified,
            created: state.created,
            device,
        })
    }

    fn touch(&mut self, inode: InodeNumber, now: FileTime, is_content: bool) {
        if let Some(state) = self.states.get_mut(&inode) {
            state.changed = now;
            if is_content {
                state.modified = now;
            }
        }
    }

    /// A place where nothing is, in a directory that is there.
    fn free_place(&self, directory: InodeNumber, name: &[u8]) -> Result<Place, FsError> {
        check_ordinary_name(name)?;
        match self.lookup(directory, name) {
            Err(FsError::NotFound) => Ok(Place { directory, name: name.to_vec() }),
            Ok(_) => Err(FsError::Exists),
            Err(error) => Err(error),
        }
    }

    /// A place where something is, and what that is.
    fn taken_place(&self, directory: InodeNumber, name: &[u8]) -> Result<(Place, InodeNumber), FsError> {
        check_ordinary_name(name)?;
        match self.lookup(directory, name)? {
            ACK => Err(FsError::NotPermitted("acknowledgements go there")),
            inode => Ok((Place { directory, name: name.to_vec() }, inode)),
        }
    }

    /// Makes an inode in a directory, with a name or without one.
    pub(crate) fn make(
        &mut self,
        directory: InodeNumber,
        name: Option<&[u8]>,
        new: &NewNode,
        target: &[u8],
        now: FileTime,
    ) -> Result<InodeNumber, FsError> {
        let at = name.map(|name| self.free_place(directory, name)).transpose()?;
        let parent = self.node(directory)?;
        let (gid, bits) = inherit_group((parent.permissions, parent.gid), Some(new.kind), new.gid);
        let umask = if new.kind == FileType::Symlink { 0 } else { new.umask };
        let inode = self.next;
        self.next = inode.checked_add(1).filter(|next| *next < INODES_MAX).ok_or(FsError::NoSpace)?;
        let new_inode = NewInode {
            mode: new.kind.mode_bits() | new.permissions & !umask | bits,
            uid: new.uid,
            gid,
            target: target.to_vec(),
            device: (new.device.major, new.device.minor),
        };
        let links = u32::from(at.is_some());
        self.perform(Call::Make { inode, new: new_inode, at }, &[])?;
        let state = InodeState {
            links,
            parent: directory,
            opened: 0,
            accessed: now,
            changed: now,
            modified: now,
            created: now,
        };
        self.states.insert(inode, state);
        if links > 0 {
            self.touch(directory, now, true);
        }
        Ok(inode)
    }

    pub(crate) fn link(
        &mut self,
        inode: InodeNumber,
        directory: InodeNumber,
        name: &[u8],
        now: FileTime,
    ) -> Result<(), FsError> {
        if inode == ACK || self.node(inode)?.kind() == FileType::Directory {
            return Err(FsError::NotPermitted("another name of a directory"));
        }
        let at = self.free_place(directory, name)?;
        self.perform(Call::Link { inode, at }, &[])?;
        self.states.entry(inode).or_default().links += 1;
        self.touch(inode, now, false);
        self.touch(directory, now, true);
        Ok(())
    }

    /// Takes a name, of a directory or of something else.
    pub(crate) fn remove(
        &mut self,
        directory: InodeNumber,
        name: &[u8],
        is_directory: bool,
        now: FileTime,
    ) -> Result<(), FsError> {
        let (at, inode) = self.taken_place(directory, name)?;
        match (self.node(inode)?.names(), is_directory) {
            (None, true) => return Err(FsError::NotDirectory),
            (Some(_), false) => return Err(FsError::IsDirectory),
            (Some(names), true) if !names.is_empty() => return Err(FsError::NotEmpty),
            _ => {}
        }
        self.perform(Call::Remove { inode, at }, &[])?;
        self.touch(directory, now, true);
        self.lose_name(inode, now);
        Ok(())
    }

    fn lose_name(&mut self, inode: InodeNumber, now: FileTime) {
        self.touch(inode, now, false);
        if let Some(state) = self.states.get_mut(&inode) {
            state.links = state.links.saturating_sub(1);
        }
        self.delete_unused(inode);
    }

    /// Deletes an inode that has no name, and that nothing keeps.
    fn delete_unused(&mut self, inode: InodeNumber) {
        let is_used = self.states.get(&inode).is_none_or(|state| state.links > 0 || state.opened > 0);
        if is_used || inode == ROOT || self.holds.contains(inode) {
            return;
        }
        if let Some(Content::File(file)) = self.tree.node(inode).map(|node| &node.content) {
            self.blocks -= file.blocks();
        }
        self.tree.remove(inode);
        self.states.remove(&inode);
    }

    pub(crate) fn rename(
        &mut self,
        from: (InodeNumber, &[u8]),
        to: (InodeNumber, &[u8]),
        flags: RenameFlags,
        now: FileTime,
    ) -> Result<(), FsError> {
        if flags.whiteout {
            return Err(FsError::Unsupported("whiteouts"));
        }
        let (from, inode) = self.taken_place(from.0, from.1)?;
        let there = match self.lookup(to.0, to.1) {
            Ok(there) => Some(there),
            Err(FsError::NotFound) => None,
            Err(error) => return Err(error),
        };
        check_ordinary_name(to.1)?;
        match there {
            Some(_) if flags.no_replace => return Err(FsError::Exists),
            Some(ACK) => return Err(FsError::NotPermitted("acknowledgements go there")),
            None if flags.exchange => return Err(FsError::NotFound),
            Some(there) if there == inode => return Ok(()),
            _ => {}
        }
        let is_directory = self.node(inode)?.kind() == FileType::Directory;
        if let Some(there) = there.filter(|_| !flags.exchange) {
            match (self.node(there)?.names(), is_directory) {
                (Some(_), false) => return Err(FsError::IsDirectory),
                (None, true) => return Err(FsError::NotDirectory),
                (Some(names), true) if !names.is_empty() => return Err(FsError::NotEmpty),
                _ => {}
            }
        }
        if self.is_below(to.0, inode)
            || there.is_some_and(|there| flags.exchange && self.is_below(from.directory, there))
        {
            return Err(FsError::Invalid("a directory does not go into itself"));
        }
        let to = Place { directory: to.0, name: to.1.to_vec() };
        let (replaced, exchanged) = (there, flags.exchange);
        let is_directory = is_directory
            || exchanged
                && there
                    .is_some_and(|there| self.tree.node(there).is_some_and(|node| node.names().is_some()));
        let call =
            Call::Rename { inode, from: from.clone(), to: to.clone(), replaced, exchanged, is_directory };
        self.perform(call, &[])?;
        if let Some(state) = self.states.get_mut(&inode) {
            state.parent = to.directory;
        }
        [from.directory, to.directory].into_iter().for_each(|directory| self.touch(directory, now, true));
        self.touch(inode, now, false);
        match there {
            Some(there) if exchanged => {
                if let Some(state) = self.states.get_mut(&there) {
                    state.parent = from.directory;
                }
            }
            Some(there) => self.lose_name(there, now),
            None => {}
        }
        Ok(())
    }

    /// Whether a directory is, or is below, another one.
    fn is_below(&self, mut directory: InodeNumber, above: InodeNumber) -> bool {
        while directory != above && directory != ROOT {
            directory = self.parent(directory);
        }
        directory == above
    }

    fn file_size(&self, inode: InodeNumber) -> Result<u64, FsError> {
        match &self.node(inode)?.content {
            Content::File(file) => Ok(file.size()),
            Content::Directory(_) => Err(FsError::IsDirectory),
            Content::Symlink(_) | Content::Special(..) => Err(FsError::Invalid("it has no content")),
        }
    }

    /// Does what changes the blocks of a file, and counts them.
    fn perform_on_file(
        &mut self,
        inode: InodeNumber,
        call: Call,
        data: &[u8],
        now: FileTime,
    ) -> Result<(), FsError> {
        let blocks = |tree: &Tree| match tree.node(inode).map(|node| &node.content) {
            Some(Content::File(file)) => file.blocks(),
            _ => 0,
        };
        let before = blocks(&self.tree);
        self.perform(call, data)?;
        self.blocks = self.blocks + blocks(&self.tree) - before;
        self.touch(inode, now, true);
        Ok(())
    }

    pub(crate) fn write(
        &mut self,
        inode: InodeNumber,
        offset: u64,
        bytes: &[u8],
        now: FileTime,
    ) -> Result<usize, FsError> {
        if inode == ACK {
            for line in self.lines.push(self.caller.0, bytes) {
                self.acknowledge_by(self.caller.1, line)?;
            }
            return Ok(bytes.len());
        }
        let size = self.file_size(inode)?;
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        end.ok_or(FsError::TooLarge)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        if self.blocks >= BLOCKS_MAX {
            return Err(FsError::NoSpace);
        }
        let taken = match &mut self.faults {
            Some(faults) => faults.take_write(bytes.len() as u64, || self.paths.of_inode(inode))?,
            None => bytes.len() as u64,
        };
        let (bytes, end) = (&bytes[..taken as usize], offset + taken);
        let data = self.record.push_data(bytes).ok_or(FsError::NoSpace)?;
        let grown = (end > size).then_some(end);
        self.perform_on_file(inode, Call::Write { inode, offset, data, grown }, bytes, now)?;
        Ok(bytes.len())
    }

    pub(crate) fn set_size(&mut self, inode: InodeNumber, size: u64, now: FileTime) -> Result<(), FsError> {
        if inode == ACK {
            return Ok(());
        }
        let before = self.file_size(inode)?;
        match size {
            size if size > FILE_BYTES_MAX => Err(FsError::TooLarge),
            size if size == before => Ok(()),
            size => self.perform_on_file(inode, Call::SetSize { inode, size, before }, &[], now),
        }
    }

    /// Makes a range of a file zeros; what is behind its end stays so.
    pub(crate) fn zero(
        &mut self,
        inode: InodeNumber,
        offset: u64,
        length: u64,
        now: FileTime,
    ) -> Result<(), FsError> {
        let size = self.file_size(inode)?;
        let length = length.min(size.saturating_sub(offset));
        match length {
            0 => Ok(()),
            length => self.perform_on_file(inode, Call::Zero { inode, offset, length }, &[], now),
        }
    }

    pub(crate) fn set_attributes(
        &mut self,
        inode: InodeNumber,
        changes: &AttributeChanges,
        now: FileTime,
    ) -> Result<(), FsError> {
        if inode == ACK {
            return Ok(());
        }
        let node = self.node(inode)?;
        let old = (node.permissions, node.uid, node.gid);
        if let Some(size) = changes.size {
            self.set_size(inode, size, now)?;
        }
        let new = (
            changes.permissions.unwrap_or(old.0),
            changes.uid.unwrap_or(old.1),
            changes.gid.unwrap_or(old.2),
        );
        if new != old {
            let (permissions, uid, gid) = new;
            self.perform(Call::SetAttributes { inode, permissions, uid, gid }, &[])?;
        }
        if let Some(state) = self.states.get_mut(&inode) {
            state.accessed = changes.accessed.unwrap_or(state.accessed);
            state.modified = changes.modified.unwrap_or(state.modified);
            state.changed = changes.changed.unwrap_or(now);
        }
        Ok(())
    }

    pub(crate) fn extended(&self, inode: InodeNumber) -> Result<BTreeMap<Name, Vec<u8>>, FsError> {
        if inode == ACK {
            return Ok(BTreeMap::new());
        }
        Ok(self.node(inode)?.extended.clone())
    }

    pub(crate) fn set_extended(
        &mut self,
        inode: InodeNumber,
        name: &[u8],
        value: Option<&[u8]>,
        now: FileTime,
    ) -> Result<(), FsError> {
        if inode == ACK {
            return Err(FsError::NotPermitted("acknowledgements go there"));
        }
        self.node(inode)?;
        let (name, value) = (name.to_vec(), value.map(<[u8]>::to_vec));
        self.perform(Call::SetExtended { inode, name, value }, &[])?;
        self.touch(inode, now, false);
        Ok(())
    }

    pub(crate) fn synchronise(&mut self, inode: InodeNumber, data_only: bool) -> Result<(), FsError> {
        if inode == ACK {
            return Ok(());
        }
        self.node(inode)?;
        if self.is_struck(FaultKind::Sync, inode) {
            self.perform(Call::SyncFailed { inode }, &[])?;
            return Err(device_error(CommandKind::Flush));
        }
        self.perform(Call::Sync { inode, data_only }, &[])
    }

    /// How much longer a synchronisation of a file takes.
    pub(crate) fn delay_of_sync(&mut self, inode: InodeNumber) -> Option<Duration> {
        let paths = &self.paths;
        self.faults.as_mut().filter(|_| inode != ACK)?.delay_of_sync(|| paths.of_inode(inode))
    }

    /// Whether a call on a file goes wrong.
    fn is_struck(&mut self, kind: FaultKind, inode: InodeNumber) -> bool {
        let paths = &self.paths;
        self.faults.as_mut().is_some_and(|faults| faults.strikes(kind, || paths.of_inode(inode)))
    }

    /// Reads from a file: how many bytes.
    pub(crate) fn read(
        &mut self,
        inode: InodeNumber,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize, FsError> {
        // The kernel reads ahead, and what fails of that it reads once more.
        let is_again = self.struck_read.take() == Some((inode, offset));
        if inode != ACK && (is_again || self.is_struck(FaultKind::Read, inode)) {
            self.struck_read = Some((inode, offset)).filter(|_| !is_again);
            return Err(device_error(CommandKind::Read));
        }
        match self.tree.node(inode).map(|node| &node.content) {
            Some(Content::File(file)) => Ok(file.read(offset, bytes)),
            Some(Content::Directory(_)) => Err(FsError::IsDirectory),
            Some(_) => Err(FsError::Invalid("it has no content")),
            None if inode == ACK => Ok(0),
            None => Err(FsError::NotFound),
        }
    }

    pub(crate) fn synchronise_all(&mut self) -> Result<(), FsError> {
        self.perform(Call::SyncAll, &[])
    }

    pub(crate) fn open(&mut self, inode: InodeNumber) -> Result<(), FsError> {
        if inode != ACK {
            self.node(inode)?;
            self.states.entry(inode).or_default().opened += 1;
        }
        Ok(())
    }

    pub(crate) fn release(&mut self, inode: InodeNumber) {
        if let Some(state) = self.states.get_mut(&inode) {
            state.opened = state.opened.saturating_sub(1);
        }
        self.delete_unused(inode);
    }

    pub(crate) fn let_go(&mut self, inode: InodeNumber, count: u64) {
        if self.holds.remove(inode, count) {
            self.delete_unused(inode);
        }
    }

    /// What was done so far is what the run begins with: it is durable, and its acknowledgements do not count.
    /// Lines that were acknowledged in an earlier round are the run's first.
    pub(crate) fn end_setup(&mut self, faults: Faults, cut: CutTrigger, lines: &[Vec<u8>]) {
        (self.faults, self.cut) = (Some(faults), Some(cut));
        self.lines.take_all();
        self.record.lines.clear();
        self.record.operations.retain(|operation| !matches!(operation.call, Call::Acknowledge(_)));
        self.record.setup = self.record.operations.len();
        lines.iter().for_each(|line| self.record.acknowledge(0, line.clone()));
    }

    /// Makes what a tree has, in an empty one.
    pub(crate) fn restore(&mut self, tree: &Tree, now: FileTime) -> Result<(), FsError> {
        let mut made: BTreeMap<InodeNumber, InodeNumber> = BTreeMap::new();
        let mut left: Vec<(InodeNumber, InodeNumber)> = vec![(ROOT, ROOT)];
        while let Some((old, new)) = left.pop() {
            for (name, inode) in tree.node(old).and_then(Node::names).into_iter().flatten() {
                let Some(node) = tree.node(*inode) else { continue };
                if let Some(there) = made.get(inode) {
                    // A directory has one name.
                    if node.names().is_none() {
                        self.link(*there, new, name, now)?;
                    }
                    continue;
                }
                let there = self.restore_node(node, new, name, now)?;
                made.insert(*inode, there);
                left.push((*inode, there));
            }
        }
        let root = tree.node(ROOT).cloned();
        root.map_or(Ok(()), |root| self.restore_attributes(&root, ROOT, now))
    }

    fn restore_node(
        &mut self,
        node: &Node,
        directory: InodeNumber,
        name: &[u8],
        now: FileTime,
    ) -> Result<InodeNumber, FsError> {
        let mut new = NewNode { uid: node.uid, gid: node.gid, ..NewNode::new(node.kind(), node.permissions) };
        let mut target: &[u8] = b"";
        match &node.content {
            Content::Symlink(path) => target = path,
            Content::Special(_, (major, minor)) => new.device = Device { major: *major, minor: *minor },
            Content::File(_) | Content::Directory(_) => {}
        }
        let inode = self.make(directory, Some(name), &new, target, now)?;
        if let Content::File(file) = &node.content {
            for (offset, bytes) in file.data() {
                self.write(inode, offset, bytes, now)?;
            }
            self.set_size(inode, file.size(), now)?;
        }
        self.restore_attributes(node, inode, now)?;
        Ok(inode)
    }

    fn restore_attributes(&mut self, node: &Node, inode: InodeNumber, now: FileTime) -> Result<(), FsError> {
        for (name, value) in &node.extended {
            self.set_extended(inode, name, Some(value), now)?;
        }
        let (permissions, uid, gid) = (Some(node.permissions), Some(node.uid), Some(node.gid));
        self.set_attributes(
            inode,
            &AttributeChanges { permissions, uid, gid, ..AttributeChanges::default() },
            now,
        )
    }

    /// The faults that were met, in words, and those that were not.
    pub(crate) fn take_met(&mut self) -> (Vec<String>, Vec<String>) {
        self.faults.as_mut().map(Faults::take_met).unwrap_or_default()
    }

    /// Adds a line that came by another way than the file.
    pub(crate) fn acknowledge(&mut self, line: Vec<u8>) {
        // What comes behind a cut is not acknowledged.
        let _ = self.acknowledge_by(0, line);
    }

    /// Ends the lines that have not ended.
    pub(crate) fn end_lines(&mut self) {
        for line in self.lines.take_all() {
            self.acknowledge(line);
        }
    }
}
