//! Files that are to be in an object store when `fsync` returns: it waits, it fails where the store has nothing, and only the owner says
//! so (R12).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use weir_ext4::{Mkfs, ROOT_INODE};
use weir_format::{BLOCK_BYTES, FileType};
use weir_fs::BarrierFs;
use weir_fuse::control::{SET_SYNC, SYNC_GROUP};
use weir_fuse::{Asked, RemoteSync, SyncMode};
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, Image, Lba};
use weir_vfs::NewNode;

use crate::support::in_memory::mount;
use crate::support::trial::run;

/// Blocks of the filesystem.
const BLOCKS: u64 = 2048;
const OWNER: u32 = 1000;
const OTHER: u32 = 1001;

const DIRECT_AND_SYNCHRONOUS: i32 = libc::O_DIRECT | libc::O_DSYNC;
const WRITE: u32 = 16;
const OPEN: u32 = 14;
const FSYNC: u32 = 20;
const SET_EXTENDED: u32 = 21;
const GET_EXTENDED: u32 = 22;
const IOCTL: u32 = 39;

/// A store of which is known how often it was waited for, and which has everything, or nothing.
#[derive(Clone)]
struct Store {
    waits: Rc<Cell<u32>>,
    answers: Rc<Cell<bool>>,
}

impl Store {
    fn new() -> Store {
        Store { waits: Rc::default(), answers: Rc::new(Cell::new(true)) }
    }

    fn remote_sync(&self, clock: &Handle) -> RemoteSync {
        let (store, clock) = (self.clone(), clock.clone());
        RemoteSync::new(async move || {
            clock.sleep(Duration::from_millis(30)).await;
            store.waits.set(store.waits.get() + 1);
            store.answers.get()
        })
    }
}

/// A caller, and the node that it asks for.
struct Asking<'a>(&'a Asked, u32, u64);

impl Asking<'_> {
    /// What comes back, without its header.
    async fn ask(&self, operation: u32, body: &[u8]) -> Result<Vec<u8>, Errno> {
        let Asking(asked, user, node) = *self;
        let mut request = (40 + body.len() as u32).to_ne_bytes().to_vec();
        request.extend(operation.to_ne_bytes());
        request.extend(77_u64.to_ne_bytes());
        request.extend(node.to_ne_bytes());
        request.extend([user, user, 4321, 0].map(u32::to_ne_bytes).concat());
        request.extend(body);
        let answer = asked.answer(&request).await.expect("an answer");
        match i32::from_ne_bytes(answer[4..8].try_into().expect("four bytes")) {
            0 => Ok(answer[16..].to_vec()),
            error => Err(Errno::from_raw_os_error(-error)),
        }
    }

    async fn set(&self, mode: &[u8]) -> Result<(), Errno> {
        let arguments = [mode.len() as u32, 0, 0, 0].map(u32::to_ne_bytes).concat();
        self.ask(SET_EXTENDED, &[&arguments[..], b"user.weir.sync\0", mode].concat()).await.map(drop)
    }

    async fn get(&self) -> Result<Vec<u8>, Errno> {
        self.ask(GET_EXTENDED, &[&[64, 0, 0, 0, 0, 0, 0, 0][..], b"user.weir.sync\0"].concat()).await
    }

    async fn fsync(&self) -> Result<(), Errno> {
        self.ask(FSYNC, &[0; 16]).await.map(drop)
    }

    async fn open(&self, flags: i32) -> u64 {
        let opened = self.ask(OPEN, &[flags.cast_unsigned().to_ne_bytes(), [0; 4]].concat()).await;
        u64::from_ne_bytes(opened.expect("opened")[..8].try_into().expect("eight bytes"))
    }

    /// Writes past the kernel's cache, and waits.
    async fn write(&self, handle: u64) -> Result<(), Errno> {
        let place = [handle.to_ne_bytes(), 0_u64.to_ne_bytes()].concat();
        let rest = [4, 0, 0, 0, DIRECT_AND_SYNCHRONOUS.cast_unsigned(), 0].map(u32::to_ne_bytes).concat();
        self.ask(WRITE, &[&place[..], &rest, b"data"].concat()).await.map(drop)
    }

    async fn ioctl(&self, handle: u64, command: u32, argument: &[u8]) -> Result<(), Errno> {
        let mut body = handle.to_ne_bytes().to_vec();
        body.extend([0, command, 0, 0, argument.len() as u32, 0].map(u32::to_ne_bytes).concat());
        self.ask(IOCTL, &[&body, argument].concat()).await.map(drop)
    }
}

fn empty() -> Image {
    let plan = Mkfs { zeroed: true, ..Mkfs::new(BLOCKS, [7; 16], [8; 16], 1_700_000_000) };
    let mut image = Image::zeroed(BLOCKS, BLOCK_BYTES as u32);
    for (block, bytes) in plan.plan().expect("options in range").writes() {
        image.write(Lba(block), &bytes);
    }
    image
}

/// Two files of the owner's that others may write, by the numbers that the kernel knows.
async fn filled(clock: &Handle) -> (BarrierFs, Rc<AdversaryDisk>, [u64; 2]) {
    let (fs, disk) = mount(clock, &empty()).await.expect("mounted");
    let mut nodes = [0; 2];
    for (node, name) in nodes.iter_mut().zip([b"a", b"b"]) {
        let file = NewNode { uid: OWNER, gid: OWNER, ..NewNode::new(FileType::Regular, 0o666) };
        let inode = fs.create(ROOT_INODE, name, &file).await.expect("created");
        let generation = fs.attributes(inode).await.expect("an inode").generation;
        *node = u64::from(generation) << 32 | u64::from(inode);
    }
    (fs, disk, nodes)
}

fn group(mode: u32, other: u64) -> Vec<u8> {
    let mut argument = [mode, 1].map(u32::to_ne_bytes).concat();
    argument.extend((other & 0xFFFF_FFFF).to_ne_bytes());
    argument.resize(8 + 126 * 8, 0);
    argument
}

#[test]
fn fsync_of_a_file_that_is_to_be_in_the_store_waits_for_it_and_fails_with_it() {
    run(async |clock| {
        let (fs, _, [a, b]) = filled(&clock).await;
        let store = Store::new();
        let promises = (SyncMode::Durable, Some(store.remote_sync(&clock)));
        let asked = Asked::new(&clock, fs.into(), promises, false).await;
        let (file, other) = (Asking(&asked, OWNER, a), Asking(&asked, OWNER, b));
        file.set(b"remote").await.expect("set");
        assert_eq!(file.get().await.as_deref(), Ok(&b"remote"[..]));
        file.fsync().await.expect("synchronised");
        assert_eq!(store.waits.get(), 1);
        other.fsync().await.expect("synchronised");
        assert_eq!(store.waits.get(), 1, "the other file is durable here");
        // O_DSYNC waits as well, and so does a group with the file in it.
        let handle = file.open(libc::O_RDWR | DIRECT_AND_SYNCHRONOUS).await;
        file.write(handle).await.expect("written");
        assert_eq!(store.waits.get(), 2);
        let at = other.open(libc::O_RDWR).await;
        other.ioctl(at, SYNC_GROUP, &group(0, a)).await.expect("synchronised");
        assert_eq!(store.waits.get(), 3);
        other.ioctl(at, SYNC_GROUP, &group(1, a)).await.expect("ordered");
        assert_eq!(store.waits.get(), 3);
        store.answers.set(false);
        assert_eq!(file.fsync().await, Err(Errno::IO));
        assert_eq!(file.write(handle).await, Err(Errno::IO));
        assert_eq!(other.ioctl(at, SYNC_GROUP, &group(0, a)).await, Err(Errno::IO));
        assert_eq!(other.ioctl(at, SYNC_GROUP, &group(2, a)).await, Err(Errno::IO));
        other.fsync().await.expect("synchronised");
        store.answers.set(true);
        file.fsync().await.expect("the store has it now");
    });
}

#[test]
fn only_the_owner_says_that_a_file_waits_for_the_store_or_need_not() {
    run(async |clock| {
        let (fs, _, [a, _]) = filled(&clock).await;
        let store = Store::new();
        let promises = (SyncMode::Durable, Some(store.remote_sync(&clock)));
        let asked = Asked::new(&clock, fs.into(), promises, false).await;
        let (owner, other) = (Asking(&asked, OWNER, a), Asking(&asked, OTHER, a));
        let handle = owner.open(libc::O_RDWR).await;
        let say = async |who: &Asking, mode: u32| who.ioctl(handle, SET_SYNC, &mode.to_ne_bytes()).await;
        // An outage of the store would be one of the file for all.
        assert_eq!(say(&other, 2).await, Err(Errno::PERM));
        assert_eq!(other.set(b"remote").await, Err(Errno::PERM));
        say(&other, 0).await.expect("said");
        say(&owner, 2).await.expect("said");
        other.fsync().await.expect("synchronised");
        assert_eq!(store.waits.get(), 1);
        for lower in [0, 1] {
            assert_eq!(say(&other, lower).await, Err(Errno::PERM));
        }
        assert_eq!(say(&owner, 3).await, Err(Errno::INVAL));
        say(&owner, 0).await.expect("said");
        other.fsync().await.expect("synchronised");
        assert_eq!(store.waits.get(), 1);
        owner.set(b"remote").await.expect("set");
        assert_eq!(say(&other, 0).await, Err(Errno::PERM));
        other.fsync().await.expect("synchronised");
        assert_eq!(store.waits.get(), 2);
    });
}

/// Programs ignore errors of `fsync` that say that it means nothing for a file, so it is EIO.
#[test]
fn without_a_store_the_promise_is_refused_and_one_that_was_given_is_not_kept() {
    run(async |clock| {
        let (fs, disk, [a, b]) = filled(&clock).await;
        let promises = (SyncMode::Durable, Some(Store::new().remote_sync(&clock)));
        let asked = Asked::new(&clock, fs.clone().into(), promises, false).await;
        Asking(&asked, OWNER, a).set(b"remote").await.expect("set");
        fs.unmount().await.expect("unmounted");
        let (fs, _) = mount(&clock, &disk.image()).await.expect("mounted");
        let asked = Asked::new(&clock, fs.into(), (SyncMode::Durable, None), false).await;
        let (file, other) = (Asking(&asked, OWNER, a), Asking(&asked, OWNER, b));
        for _ in 0..2 {
            assert_eq!(file.fsync().await, Err(Errno::IO));
            // Once all were counted.
            clock.sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(other.set(b"remote").await, Err(Errno::OPNOTSUPP));
        let at = other.open(libc::O_RDWR).await;
        assert_eq!(other.ioctl(at, SET_SYNC, &2_u32.to_ne_bytes()).await, Err(Errno::OPNOTSUPP));
        assert_eq!(other.ioctl(at, SYNC_GROUP, &group(2, a)).await, Err(Errno::OPNOTSUPP));
        assert_eq!(other.ioctl(at, SYNC_GROUP, &group(0, a)).await, Err(Errno::IO));
        other.fsync().await.expect("synchronised");
        file.set(b"durable").await.expect("set");
        file.fsync().await.expect("synchronised");
    });
}

/// That a file is durable is a promise as well, where the others only order: a mount that counts finds it.
#[test]
fn a_file_that_is_durable_stays_so_where_others_only_order() {
    run(async |clock| {
        let (fs, disk, [a, _]) = filled(&clock).await;
        let asked = Asked::new(&clock, fs.clone().into(), (SyncMode::Durable, None), false).await;
        Asking(&asked, OWNER, a).set(b"durable").await.expect("set");
        fs.unmount().await.expect("unmounted");
        let (fs, _) = mount(&clock, &disk.image()).await.expect("mounted");
        let asked = Asked::new(&clock, fs.clone().into(), (SyncMode::Order, None), false).await;
        clock.sleep(Duration::from_secs(1)).await;
        let file = Asking(&asked, OWNER, a);
        assert_eq!(file.get().await.as_deref(), Ok(&b"durable"[..]));
        let before = fs.statistics().answered.durable;
        file.fsync().await.expect("synchronised");
        assert_eq!(fs.statistics().answered.durable, before + 1);
    });
}
