//! *Claims*: what a process says of a file that it has open, where the kernel tells neither of open nor of close.
//!
//! The answer ENOSYS to OPEN ends both requests for the mount (`FUSE_NO_OPEN_SUPPORT`), and to CREATE that one: a file that is
//! in the kernel's cache is opened, read and closed without a request. What was said by way of an open file then belongs to the process,
//! and ends with it:
//!
//! 1. A request that says something of a file (what `fsync` promises, that writes are ordered, the begin of an update), or changes an
//!    atomic file, makes a claim of its process on the inode: an [`OpenFile`], open with the filesystem as other open files are.
//! 2. A process with claims is watched by a descriptor (`pidfd_open(2)`). When it ends, its claims are closed, as open files
//!    are: an update that was begun is taken back, and what is left of an atomic file's goes into the journal.
//! 3. When the kernel has forgotten an inode, no process has it open any more, so its claims are closed, too: that of a file that was
//!    deleted keeps no space.
//! 4. What a claim says of `fsync` holds for its process. Ordered writes and an update that was begun hold for all processes.
//!
//! A process outside the server's process namespace cannot be watched, and gets EOPNOTSUPP.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use weir_runtime::{Event, Handle};
use weir_vfs::InodeNumber;

use crate::calls::Calls;
use crate::errno::errno;
use crate::files::OpenFile;
use crate::gate::Gate;
use crate::privileges::Caller;

/// Processes that have claims, at most: each takes a descriptor, and a place in the ring, of which it has 256.
const PROCESSES_MAX: usize = 32;

/// All of them.
pub(crate) struct Claims {
    handle: Handle,
    gate: Rc<Gate>,
    calls: Weak<Calls>,
    /// The open file of an inode and a process.
    files: RefCell<BTreeMap<(InodeNumber, u32), u64>>,
    /// The inodes that a process has claims on.
    processes: RefCell<BTreeMap<u32, Vec<InodeNumber>>>,
}

impl Claims {
    pub(crate) fn new(handle: &Handle, gate: &Rc<Gate>, calls: Weak<Calls>) -> Claims {
        let (handle, gate) = (handle.clone(), Rc::clone(gate));
        Claims { handle, gate, calls, files: RefCell::default(), processes: RefCell::default() }
    }

    /// The handles of all claims on an inode.
    fn on(&self, inode: InodeNumber) -> Vec<u64> {
        let files = self.files.borrow();
        files.range((inode, 0)..=(inode, u32::MAX)).map(|(_, handle)| *handle).collect()
    }

    /// The inode, the process and the handle of each.
    pub(crate) fn list(&self) -> Vec<(InodeNumber, u32, u64)> {
        let files = self.files.borrow();
        files.iter().map(|((inode, process), handle)| (*inode, *process, *handle)).collect()
    }

    fn handle_of(&self, inode: InodeNumber, process: u32) -> Option<u64> {
        self.files.borrow().get(&(inode, process)).copied()
    }

    /// Takes in an open file as a claim; the process has no other one on the inode.
    fn insert(&self, inode: InodeNumber, process: u32, file: u64) {
        self.files.borrow_mut().insert((inode, process), file);
        self.processes.borrow_mut().entry(process).or_default().push(inode);
    }

    /// Takes out those on an inode.
    fn remove_inode(&self, inode: InodeNumber) -> Vec<u64> {
        let mut files = self.files.borrow_mut();
        let processes: Vec<u32> =
            files.range((inode, 0)..=(inode, u32::MAX)).map(|((_, process), _)| *process).collect();
        processes
            .into_iter()
            .filter_map(|process| {
                if let Some(inodes) = self.processes.borrow_mut().get_mut(&process) {
                    inodes.retain(|other| *other != inode);
                }
                files.remove(&(inode, process))
            })
            .collect()
    }

    /// Takes out those of a process that has ended.
    fn remove_process(&self, process: u32) -> Vec<u64> {
        let inodes = self.processes.borrow_mut().remove(&process).unwrap_or_default();
        let mut files = self.files.borrow_mut();
        inodes.into_iter().filter_map(|inode| files.remove(&(inode, process))).collect()
    }

    /// Watches a process unless it is watched: has its claims closed when it ends.
    fn watch(&self, process: u32) -> Result<(), Errno> {
        if self.processes.borrow().contains_key(&process) {
            return Ok(());
        }
        if self.processes.borrow().len() >= PROCESSES_MAX {
            return Err(Errno::NFILE);
        }
        let ring = self.handle.ring().ok_or(Errno::OPNOTSUPP)?;
        let pid = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or(Errno::OPNOTSUPP)?;
        let descriptor = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| Errno::OPNOTSUPP)?;
        let descriptor = Arc::new(File::from(descriptor));
        let ended = Rc::<Event>::default();
        let (notified, listener) = (Rc::clone(&ended), ended.listen());
        ring.readable(&descriptor, move |_| {
            notified.notify(usize::MAX);
        })
        .map_err(|_| Errno::AGAIN)?;
        self.processes.borrow_mut().insert(process, Vec::new());
        let (calls, gate) = (Weak::clone(&self.calls), Rc::clone(&self.gate));
        drop(self.handle.spawn(async move {
            listener.await;
            drop(descriptor);
            // A server that takes over meanwhile finds that the process has ended.
            let _activity = gate.begin_when_open().await;
            if let Some(calls) = calls.upgrade() {
                calls.close_claims(process).await;
            }
        }));
        Ok(())
    }
}

impl Calls {
    /// The open file that a request has come by, if a program may write through it: that of the handle, or the claim of the
    /// caller's process.
    ///
    /// # Errors
    /// EBADF where a caller may not write, EOPNOTSUPP where its process cannot be watched.
    pub(crate) async fn writable_file(
        &self,
        inode: InodeNumber,
        handle: u64,
        caller: Caller,
    ) -> Result<Rc<OpenFile>, Errno> {
        if self.files.are_told {
            return self.files.get(handle).filter(|file| file.writable).ok_or(Errno::BADF);
        }
        let found = self.filesystem.attributes(inode).await.map_err(|error| errno(&error))?;
        if !caller.may_write(&found) {
            return Err(Errno::BADF);
        }
        self.claim(inode, caller).await
    }

    /// The claim of a caller's process on an inode, made if there is none.
    async fn claim(&self, inode: InodeNumber, caller: Caller) -> Result<Rc<OpenFile>, Errno> {
        let process = self.process_of(inode, caller).ok_or(Errno::OPNOTSUPP)?;
        let known = || self.claims.handle_of(inode, process).and_then(|handle| self.files.get(handle));
        if let Some(file) = known() {
            return Ok(file);
        }
        self.claims.watch(process)?;
        self.filesystem.open(inode).await.map_err(|error| errno(&error))?;
        if let Some(file) = known() {
            // Another thread of it was faster.
            self.filesystem.release(inode).await.map_err(|error| errno(&error))?;
            return Ok(file);
        }
        if self.claims.watch(process).is_err() {
            // It has ended meanwhile.
            self.filesystem.release(inode).await.map_err(|error| errno(&error))?;
            return Err(Errno::OPNOTSUPP);
        }
        let handle = self.files.insert(OpenFile::new(inode, false, true));
        self.claims.insert(inode, process, handle);
        self.files.get(handle).ok_or(Errno::BADF)
    }

    /// Goes on with a claim that the server before has made, on a file that is open again. It is closed if the process has ended.
    pub(crate) async fn restore_claim(&self, inode: InodeNumber, process: u32, handle: u64) {
        match self.claims.watch(process) {
            Ok(()) => self.claims.insert(inode, process, handle),
            Err(_) => self.close_all(vec![handle]).await,
        }
    }

    /// The process of a caller. A thread that has made a claim on the inode under its own number is the first of its process.
    fn process_of(&self, inode: InodeNumber, caller: Caller) -> Option<u32> {
        match self.claims.handle_of(inode, caller.thread()) {
            Some(_) => Some(caller.thread()),
            None => caller.process(),
        }
    }

    /// Makes a claim of the caller's process on an atomic file that it is about to change, where there are no requests for opens.
    pub(crate) async fn claim_atomic(&self, inode: InodeNumber, caller: Caller) {
        if !self.files.are_told && self.filesystem.is_atomic(inode).await.unwrap_or(false) {
            // A change of a process that cannot be watched goes into the journal when another claim ends, or a call synchronises it.
            let _ = self.claim(inode, caller).await;
        }
    }

    /// The open files that a request may have come by: that of the handle, or all claims on the inode.
    pub(crate) fn open_files(&self, inode: InodeNumber, handle: u64) -> impl Iterator<Item = Rc<OpenFile>> {
        let handle = self.files.are_told.then_some(handle);
        let claims = if handle.is_some() { Vec::new() } else { self.claims.on(inode) };
        handle.into_iter().chain(claims).filter_map(|handle| self.files.get(handle))
    }

    /// What a program has said that `fsync` of a file promises: one that has it open, or the caller's.
    pub(crate) fn said_promise(&self, inode: InodeNumber, caller: Caller) -> Option<crate::SyncMode> {
        if self.files.are_told {
            return self.files.promise(inode);
        }
        let handles = self.claims.on(inode);
        if handles.is_empty() {
            return None;
        }
        let handle = self.claims.handle_of(inode, self.process_of(inode, caller)?)?;
        self.files.get(handle)?.promise.get()
    }

    /// Says that for a file.
    pub(crate) fn say_promise(&self, inode: InodeNumber, file: &OpenFile, mode: crate::SyncMode) {
        match self.files.are_told {
            true => self.files.set_promise(inode, mode),
            false => file.promise.set(Some(mode)),
        }
    }

    /// Takes back what was said.
    pub(crate) fn clear_promise(&self, inode: InodeNumber) {
        self.files.clear_promise(inode);
        let claims = self.claims.on(inode);
        claims
            .into_iter()
            .filter_map(|handle| self.files.get(handle))
            .for_each(|file| file.promise.set(None));
    }

    /// The kernel has forgotten an inode: the claims on it are closed.
    pub(crate) fn close_claims_on(&self, inode: InodeNumber) {
        let closed = self.claims.remove_inode(inode);
        if let (false, Some(calls)) = (closed.is_empty(), self.claims.calls.upgrade()) {
            let activity = self.claims.gate.begin();
            drop(self.claims.handle.spawn(async move {
                calls.close_all(closed).await;
                drop(activity);
            }));
        }
    }

    /// A process has ended: its claims are closed.
    async fn close_claims(&self, process: u32) {
        self.close_all(self.claims.remove_process(process)).await;
    }

    async fn close_all(&self, handles: Vec<u64>) {
        for handle in handles {
            self.abandon_with(handle).await;
            // The process that would see the error has closed the file, or has ended.
            let _ = self.release(handle).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_runtime::{Runtime, Wall};

    use super::*;

    #[test]
    fn claims_are_those_of_an_inode_and_end_with_their_process() {
        let runtime = Runtime::wall(Wall::default()).unwrap();
        let claims = Claims::new(&runtime.handle(), &Rc::default(), Weak::new());
        claims.insert(12, 100, 1);
        claims.insert(12, 101, 2);
        claims.insert(13, 100, 3);
        assert_eq!((claims.on(12), claims.on(13), claims.on(14)), (vec![1, 2], vec![3], vec![]));
        assert_eq!((claims.handle_of(12, 101), claims.handle_of(13, 101)), (Some(2), None));
        assert_eq!(claims.remove_process(100), [1, 3]);
        assert_eq!((claims.on(12), claims.on(13)), (vec![2], vec![]));
        claims.insert(13, 101, 4);
        assert_eq!(claims.remove_inode(12), [2]);
        assert_eq!((claims.remove_process(101), claims.on(12)), (vec![4], vec![]));
        assert!(claims.remove_process(100).is_empty());
    }

    #[test]
    fn a_process_that_is_not_there_cannot_be_watched() {
        let runtime = Runtime::wall(Wall::default()).unwrap();
        let claims = Claims::new(&runtime.handle(), &Rc::default(), Weak::new());
        // Greater than any: the system's largest is 2^22.
        assert_eq!([0, 1 << 23, u32::MAX].map(|process| claims.watch(process)), [Err(Errno::OPNOTSUPP); 3]);
        assert_eq!(claims.watch(std::process::id()), Ok(()));
        assert_eq!(claims.watch(std::process::id()), Ok(()));
        assert_eq!(claims.processes.borrow().len(), 1);
    }
}
