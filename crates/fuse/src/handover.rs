//! A *handover*: the server of a mount passes it to the next one, and programs that use it do not notice.
//!
//! The first server stops reading requests, which then wait with the kernel ([`Gate`](crate::gate::Gate)), answers those that it has
//! read, and says in a [`MountState`] what the kernel has been told. The next server gets that and the descriptor of
//! `/dev/fuse`, and goes on. What is in a file or an attribute is no part of it: the filesystem has that.

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use weir_vfs::{FsError, HandoverRefusal, HeldInode, InodeNumber};

use crate::calls::Calls;
use crate::control::SyncMode;
use crate::directories::{DIRECTORIES_MAX, DirectoryState};
use crate::files::OpenFile;
use crate::protocol::{Header, REQUEST_BYTES, TRANSFER_BYTES};
use crate::serve::UNDER_WAY_MAX;
use crate::server::ServerOptions;

/// What the kernel has been told of a mount, and keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountState {
    agreed: Agreed,
    /// Inodes, and how often the kernel has been told of each.
    holds: Vec<(InodeNumber, u32)>,
    /// Those of them that were made without a name, and may get their first.
    first_names: Vec<InodeNumber>,
    /// The handle that was given out last.
    last_handle: u64,
    files: Vec<FileState>,
    /// What `fsync` of an open inode promises, where a program has said so.
    promises: Vec<(InodeNumber, SyncMode)>,
    /// Without requests for opens: the inode, the process and the handle of each claim.
    claims: Vec<(InodeNumber, u32, u64)>,
    /// Without requests for opens: inodes that were written directly.
    direct: Vec<InodeNumber>,
    /// Inodes with direct writes that the kernel has read into its cache since.
    cached: Vec<InodeNumber>,
    directories: Vec<DirectoryState>,
    /// Requests that were read, and not begun.
    parked: Vec<Vec<u8>>,
}

/// What the kernel and the server have agreed on for the life of the mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Agreed {
    transfer_bytes: u32,
    writeback_cache: bool,
    open_requests: bool,
    file_handles: bool,
    allow_other: bool,
    read_only: bool,
    no_exec: bool,
    access_times: bool,
}

/// An open file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileState {
    handle: u64,
    inode: InodeNumber,
    direct: bool,
    writable: bool,
    mappable: bool,
    quiet: bool,
    is_synchronous: bool,
    orders_writes: bool,
    promise: Option<SyncMode>,
}

/// What a server gets of the one before.
pub struct Inherited {
    /// The descriptor of `/dev/fuse` that belongs to the mount.
    pub device: OwnedFd,
    /// What the kernel has been told.
    pub state: MountState,
}

/// Why a mount cannot be handed over now, or not taken over.
#[derive(Debug, Error)]
pub enum HandoverError {
    /// It is no mount of a filesystem.
    #[error("only the mount of a filesystem can be handed over")]
    NoFilesystem,
    /// The filesystem refuses.
    #[error(transparent)]
    Filesystem(#[from] HandoverRefusal),
    /// What some files lack is not handed over.
    #[error("{0} files lack data that could not be written: write them again or delete them, or unmount")]
    LostWrites(u64),
    /// A request takes too long.
    #[error("a request waits for the disk or for the kernel, and was not answered in time")]
    Busy,
    /// The state is not one of this mount.
    #[error("the state of the server before cannot be used: {0}")]
    State(&'static str),
    /// The kernel has agreed on something else with the server before.
    #[error("an option is not the one that it was mounted with: unmount it, and mount it again")]
    OtherOptions,
    /// The filesystem does not have a file or inode that the kernel holds.
    #[error("what the kernel has open cannot be opened again: {0}")]
    Restore(FsError),
}

impl Agreed {
    fn of_options(options: &ServerOptions) -> Agreed {
        Agreed {
            transfer_bytes: TRANSFER_BYTES,
            writeback_cache: options.writeback_cache,
            open_requests: options.open_requests || options.writeback_cache,
            file_handles: options.file_handles,
            allow_other: options.allow_other,
            read_only: options.read_only,
            no_exec: options.no_exec,
            access_times: options.access_times,
        }
    }
}

impl FileState {
    fn new(handle: u64, file: &OpenFile) -> FileState {
        FileState {
            handle,
            inode: file.inode,
            direct: file.direct,
            writable: file.writable,
            mappable: file.mappable,
            quiet: file.quiet,
            is_synchronous: file.is_synchronous,
            orders_writes: file.orders_writes.get(),
            promise: file.promise.get(),
        }
    }

    fn open_file(&self) -> OpenFile {
        let mut file = OpenFile::new(self.inode, self.direct, self.writable);
        file.mappable = self.mappable;
        file.quiet = self.quiet;
        file.is_synchronous = self.is_synchronous;
        file.orders_writes.set(self.orders_writes);
        file.promise.set(self.promise);
        file
    }
}

impl MountState {
    /// Whether a server with these options can go on with it.
    ///
    /// # Errors
    /// [`HandoverError::State`] for what no server writes, and [`HandoverError::OtherOptions`].
    pub fn check(&self, options: &ServerOptions) -> Result<(), HandoverError> {
        let require = |holds: bool, what| if holds { Ok(()) } else { Err(HandoverError::State(what)) };
        // Ascending, so each is there once.
        require(self.holds.is_sorted_by(|one, next| one.0 < next.0), "its inodes are not in order")?;
        require(self.holds.iter().all(|(_, count)| *count > 0), "an inode is held no times")?;
        let is_held = |inode: &InodeNumber| self.holds.binary_search_by_key(inode, |held| held.0).is_ok();
        require(self.first_names.is_sorted(), "its files without a name are not in order")?;
        require(self.first_names.iter().all(is_held), "a file without a name is not held")?;
        require(
            self.files.is_sorted_by(|one, next| one.handle < next.handle),
            "its handles are not in order",
        )?;
        let in_range = |handle: u64| (1..=self.last_handle).contains(&handle);
        require(self.files.iter().all(|file| in_range(file.handle)), "a handle was never given out")?;
        let has_file = |handle: u64, inode: InodeNumber| {
            let found = self.files.binary_search_by_key(&handle, |file| file.handle);
            found.is_ok_and(|nth| self.files[nth].inode == inode)
        };
        let is_claim = |(inode, _, handle): &(InodeNumber, u32, u64)| has_file(*handle, *inode);
        require(self.claims.iter().all(is_claim), "a claim is on no open file")?;
        require(self.directories.len() <= DIRECTORIES_MAX, "it has too many directories")?;
        require(
            self.directories.iter().all(DirectoryState::is_bounded),
            "a directory has too many positions",
        )?;
        require(self.parked.len() as u64 <= UNDER_WAY_MAX, "it has too many requests")?;
        let is_request =
            |request: &Vec<u8>| request.len() <= REQUEST_BYTES && Header::split(request).is_some();
        require(self.parked.iter().all(is_request), "a request is none")?;
        if self.agreed == Agreed::of_options(options) { Ok(()) } else { Err(HandoverError::OtherOptions) }
    }

    /// The requests that were read, and not begun.
    pub(crate) fn take_parked(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.parked)
    }

    /// What the next server has to know. No request is being answered.
    ///
    /// # Errors
    /// [`HandoverError::Filesystem`] and [`HandoverError::LostWrites`].
    pub(crate) async fn of_calls(
        calls: &Calls,
        options: &ServerOptions,
        parked: Vec<Vec<u8>>,
    ) -> Result<MountState, HandoverError> {
        let lost = calls.lost.found(&calls.filesystem).await.files;
        if lost > 0 {
            return Err(HandoverError::LostWrites(lost));
        }
        calls.filesystem.check_handover()?;
        let held = calls.filesystem.list_holds();
        let first = held.iter().filter(|held| held.takes_first_name);
        let files = calls.files.list_open();
        Ok(MountState {
            agreed: Agreed::of_options(options),
            first_names: first.map(|held| held.inode).collect(),
            holds: held.iter().map(|held| (held.inode, held.holds)).collect(),
            last_handle: calls.files.last_handle(),
            files: files.iter().map(|(handle, file)| FileState::new(*handle, file)).collect(),
            promises: calls.files.list_promises(),
            claims: calls.claims.list(),
            direct: calls.files.list_direct(),
            cached: calls.files.list_cached(),
            directories: calls.directories.list(),
            parked,
        })
    }

    /// Goes on with what the server before has told the kernel.
    ///
    /// # Errors
    /// [`HandoverError::Restore`].
    pub(crate) async fn restore(&self, calls: &Calls) -> Result<(), HandoverError> {
        let held = self.holds.iter().map(|(inode, holds)| {
            let takes_first_name = self.first_names.binary_search(inode).is_ok();
            HeldInode { inode: *inode, holds: *holds, takes_first_name }
        });
        let held: Vec<HeldInode> = held.collect();
        // The kernel knows each inode that is open, so what is deleted here is not.
        calls.filesystem.restore_holds(&held).await.map_err(HandoverError::Restore)?;
        for file in &self.files {
            calls.filesystem.open(file.inode).await.map_err(HandoverError::Restore)?;
            calls.files.insert_as(file.handle, file.open_file());
        }
        calls.files.begin_behind(self.last_handle);
        for (inode, mode) in &self.promises {
            calls.files.set_promise(*inode, *mode);
        }
        calls.files.restore_direct(&self.direct, &self.cached);
        calls.directories.restore(&self.directories);
        for (inode, process, handle) in &self.claims {
            calls.restore_claim(*inode, *process, *handle).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> ServerOptions {
        ServerOptions {
            name: String::new(),
            allow_other: true,
            read_only: false,
            no_exec: false,
            access_times: true,
            sync: SyncMode::Durable,
            store: None,
            writeback_cache: false,
            open_requests: true,
            file_handles: true,
            awake: false,
            request_bytes_max: 1 << 20,
        }
    }

    fn file(handle: u64) -> FileState {
        let mut file = OpenFile::new(20, true, true);
        file.mappable = true;
        file.is_synchronous = true;
        file.orders_writes.set(true);
        file.promise.set(Some(SyncMode::Order));
        FileState::new(handle, &file)
    }

    fn state() -> MountState {
        MountState {
            agreed: Agreed::of_options(&options()),
            holds: vec![(2, 1), (20, 3)],
            first_names: vec![20],
            last_handle: 9,
            files: vec![file(4), file(9)],
            promises: vec![(20, SyncMode::Order)],
            claims: vec![(20, 1000, 9)],
            direct: vec![20],
            cached: vec![20],
            directories: vec![DirectoryState::new(2, [vec![(7, 70)], vec![]])],
            parked: vec![vec![0; 40]],
        }
    }

    #[test]
    fn what_a_server_writes_the_next_one_reads() {
        let written = serde_json::to_vec(&state()).unwrap();
        let read: MountState = serde_json::from_slice(&written).unwrap();
        assert_eq!(read, state());
        assert!(read.check(&options()).is_ok());
        let again = FileState::new(4, &read.files[0].open_file());
        assert_eq!(again, read.files[0]);
    }

    /// Each field with a value that no server writes: it is refused for that.
    #[test]
    fn what_no_server_writes_is_refused() {
        let refused = |change: &dyn Fn(&mut MountState)| {
            let mut state = state();
            change(&mut state);
            match state.check(&options()) {
                Err(HandoverError::State(what)) => what,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(refused(&|state| state.holds.swap(0, 1)), "its inodes are not in order");
        assert_eq!(refused(&|state| state.holds.push((20, 1))), "its inodes are not in order");
        assert_eq!(refused(&|state| state.holds[0].1 = 0), "an inode is held no times");
        assert_eq!(
            refused(&|state| state.first_names = vec![20, 2]),
            "its files without a name are not in order"
        );
        assert_eq!(refused(&|state| state.first_names.push(21)), "a file without a name is not held");
        assert_eq!(refused(&|state| state.files.swap(0, 1)), "its handles are not in order");
        assert_eq!(refused(&|state| state.files[0].handle = 0), "a handle was never given out");
        assert_eq!(refused(&|state| state.last_handle = 8), "a handle was never given out");
        assert_eq!(refused(&|state| state.claims[0].2 = 5), "a claim is on no open file");
        assert_eq!(refused(&|state| state.claims[0].0 = 2), "a claim is on no open file");
        let directory = DirectoryState::new(2, [vec![], vec![]]);
        let many = vec![directory; DIRECTORIES_MAX + 1];
        assert_eq!(refused(&|state| state.directories = many.clone()), "it has too many directories");
        let long = DirectoryState::new(2, [vec![], vec![(1, 1); 65]]);
        assert_eq!(
            refused(&|state| state.directories[0] = long.clone()),
            "a directory has too many positions"
        );
        assert_eq!(refused(&|state| state.parked = vec![vec![0; 40]; 513]), "it has too many requests");
        assert_eq!(refused(&|state| state.parked[0].truncate(39)), "a request is none");
        assert_eq!(refused(&|state| state.parked[0] = vec![0; REQUEST_BYTES + 1]), "a request is none");
    }

    #[test]
    fn a_server_with_other_options_does_not_go_on() {
        let changes: [fn(&mut ServerOptions); 7] = [
            |options| options.allow_other = false,
            |options| options.read_only = true,
            |options| options.no_exec = true,
            |options| options.access_times = false,
            |options| options.writeback_cache = true,
            |options| options.open_requests = false,
            |options| options.file_handles = false,
        ];
        for change in changes {
            let mut other = options();
            change(&mut other);
            assert!(matches!(state().check(&other), Err(HandoverError::OtherOptions)), "{other:?}");
        }
        // What only the server keeps may be another one.
        let other = ServerOptions { sync: SyncMode::Order, awake: true, ..options() };
        assert!(state().check(&other).is_ok());
    }

    #[test]
    fn what_is_no_state_is_an_error() {
        let written = serde_json::to_string(&state()).unwrap();
        for cut in 0..written.len() {
            assert!(serde_json::from_str::<MountState>(&written[..cut]).is_err(), "{cut}");
        }
        for (from, to) in
            [("\"holds\"", "\"hold\""), ("\"order\"", "\"maybe\""), ("[2,1]", "[-2,1]"), ("[2,1]", "[2]")]
        {
            let changed = written.replacen(from, to, 1);
            assert!(changed != written && serde_json::from_str::<MountState>(&changed).is_err(), "{from}");
        }
    }
}
