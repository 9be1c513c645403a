//! Requests that no kernel sends: bytes make up a session of them, and what comes of it is looked at.
//!
//! It needs nothing of its crate, so that the fuzz target (fuzz/) compiles it too.

#![allow(dead_code, reason = "each caller uses a part of it")]

#[path = "../../../fs/tests/support/in_memory.rs"]
pub mod in_memory;
#[path = "../../../storage/tests/support/trial.rs"]
pub mod trial;

use std::cell::RefCell;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use weir_ext4::check::check;
use weir_ext4::{Mkfs, ROOT_INODE};
use weir_format::{BLOCK_BYTES, FileType, acl::DEFAULT};
use weir_fuse::{Asked, FuseMutant, SyncMode};
use weir_runtime::Handle;
use weir_storage::{Image, Lba, Rules};
use weir_vfs::{Expect, FsError, NewNode};

use in_memory::{InMemory, LIST, mount};
use trial::{run, within_memory};
use weir_fs::BarrierFs;

/// The kernel's number of the root.
const ROOT: u64 = 1;
/// Bytes of a request's header, and of an answer's.
const HEADER: usize = 40;
const ANSWER: usize = 16;
/// An answer has no more bytes behind its header.
const ANSWER_MAX: usize = 1 << 20;
/// The longest session.
const REQUESTS_MAX: usize = 64;
/// Nodes that a session knows, at most.
const NODES_MAX: usize = 200;
/// Bytes that a request is given of what it says that it brings, at most.
const BROUGHT_MAX: usize = 1 << 17;
/// Blocks of the filesystem: little enough to become full.
const BLOCKS: u64 = 2048;

/// Operations that answer with a node, and those that take another one.
const GIVES_NODE: [u32; 7] = [1, 6, 8, 9, 13, 35, 51];
const TAKES_NODE: [u32; 3] = [12, 13, 45];
const WRITE: u32 = 16;
const SET_EXTENDED: u32 = 21;

/// What came of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Requests that did something.
    pub done: u32,
    /// Those that were refused.
    pub refused: u32,
}

/// A small filesystem, and the nodes in it.
pub struct Sessions {
    image: Image,
    nodes: Vec<u64>,
}

impl Sessions {
    pub fn new() -> Sessions {
        let plan = Mkfs { zeroed: true, ..Mkfs::new(BLOCKS, [7; 16], [8; 16], 1_700_000_000) };
        let mut image = Image::zeroed(BLOCKS, BLOCK_BYTES as u32);
        for (block, bytes) in plan.plan().expect("options in range").writes() {
            image.write(Lba(block), &bytes);
        }
        run(async |clock| {
            let (fs, disk) = mount(&clock, &image).await.expect("mounted");
            let inodes = fill(&fs).await.expect("filled");
            let mut nodes = vec![ROOT];
            for inode in inodes {
                let generation = fs.attributes(inode).await.expect("an inode").generation;
                nodes.push(u64::from(generation) << 32 | u64::from(inode));
            }
            fs.unmount().await.expect("unmounted");
            Sessions { image: disk.image(), nodes }
        })
    }

    /// The notices that the kernel gets in a session, by these rules: their bytes.
    pub fn notices(&self, data: &[u8], rules: Rules<FuseMutant>) -> Vec<u8> {
        let (mut notices, writer) = std::io::pipe().expect("a pipe");
        let writer = File::from(OwnedFd::from(writer));
        run(async |clock| self.session(&clock, data, (Some(writer), rules)).await);
        let mut told = Vec::new();
        notices.read_to_end(&mut told).expect("a pipe");
        told
    }

    /// One case of the fuzz target: the first byte says how it is mounted, and [`next`] how requests follow.
    ///
    /// # Panics
    /// If an answer makes no sense, the session does not end, or what it leaves is not whole.
    pub fn play(&self, data: &[u8]) -> Told {
        let told = run(async |clock| self.session(&clock, data, (None, Rules::all())).await);
        within_memory();
        told
    }

    /// How often the root's attribute of this name, set to this value, has everything made durable as before an unmount.
    pub fn handovers(&self, name: &[u8], value: &[u8]) -> u32 {
        run(async |clock| {
            let (fs, _) = mount(&clock, &self.image).await.expect("mounted");
            let asked = Asked::new(&clock, fs.clone().into(), (SyncMode::Durable, None), false).await;
            let body = [&(value.len() as u32).to_ne_bytes()[..], &[0; 12], name, &[0], value].concat();
            let mut request = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
            request.extend(SET_EXTENDED.to_ne_bytes());
            request.extend([77, ROOT].map(u64::to_ne_bytes).concat());
            request.extend([0; 16]);
            request.extend(body);
            assert!(asked.answer(&request).await.is_some());
            asked.handovers()
        })
    }

    async fn session(
        &self,
        clock: &Handle,
        data: &[u8],
        (notices, rules): (Option<File>, Rules<FuseMutant>),
    ) -> Told {
        let (fs, disk) = mount(clock, &self.image).await.expect("mounted");
        let (how, requests) = data.split_first().unwrap_or((&0, &[]));
        let sync = if how & 1 == 0 { SyncMode::Durable } else { SyncMode::Order };
        let (mounted, kernel) = (fs.clone().into(), (how & 2 != 0, notices));
        let asked = Rc::new(Asked::new_with_notices(clock, mounted, (sync, None), kernel, rules).await);
        let (told, known) =
            (Rc::new(RefCell::new(Told::default())), Rc::new(RefCell::new(self.nodes.clone())));
        let (mut left, mut under_way) = (requests, Vec::new());
        for _ in 0..REQUESTS_MAX {
            let Some((request, waits)) = next(&mut left, &known.borrow()) else { break };
            let (asked, told, known) = (Rc::clone(&asked), Rc::clone(&told), Rc::clone(&known));
            under_way.push(clock.spawn(async move {
                let answer = asked.answer(&request).await;
                look(&request, answer, &mut told.borrow_mut(), &mut known.borrow_mut());
            }));
            if waits {
                for one in under_way.drain(..) {
                    one.await.expect("not cancelled");
                }
            }
        }
        for one in under_way {
            one.await.expect("not cancelled");
        }
        asked.close_all().await.expect("closed");
        assert_eq!(fs.read_only(), None, "the filesystem goes on");
        fs.unmount().await.expect("unmounted");
        let report = check(&InMemory(&disk.image())).await.expect("an image");
        assert!(report.is_clean(), "{:?}", report.findings);
        *told.borrow()
    }
}

/// The next request of a session, and whether it is waited for before the one behind it. Four bytes come first: what is
/// asked (6 bits, and 64: no caller waits; 128: what follows is the whole request), of which of the known nodes, how many
/// bytes follow, and who asks (the lowest bit: user 1000) and which other node is meant.
fn next(left: &mut &[u8], known: &[u64]) -> Option<(Vec<u8>, bool)> {
    let ([what, node, length, who], rest) = left.split_first_chunk()?;
    let (body, rest) = rest.split_at(usize::from(*length).min(rest.len()));
    *left = rest;
    let waits = what & 64 == 0;
    if what & 128 != 0 {
        return Some((body.to_vec(), waits));
    }
    let (operation, mut body) = (u32::from(what & 63), body.to_vec());
    if TAKES_NODE.contains(&operation) && body.len() >= 8 {
        body[..8].copy_from_slice(&known[usize::from(who >> 1) % known.len()].to_ne_bytes());
    }
    let brought = match operation {
        WRITE => body.get(16..20),
        SET_EXTENDED => body.get(..4),
        _ => None,
    };
    if let Some(Ok(brought)) = brought.map(<[u8; 4]>::try_from) {
        let brought = (u32::from_ne_bytes(brought) as usize).min(BROUGHT_MAX);
        body.resize(body.len() + brought, 0xA5);
    }
    let caller = u32::from(who & 1) * 1000;
    let mut request = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    request.extend(operation.to_ne_bytes());
    request.extend(77_u64.to_ne_bytes());
    request.extend(known[usize::from(*node) % known.len()].to_ne_bytes());
    request.extend([caller, caller, 4321, 0].map(u32::to_ne_bytes).concat());
    request.extend(body);
    Some((request, waits))
}

/// Looks at an answer, and takes the node in that it gives.
fn look(request: &[u8], answer: Option<Vec<u8>>, told: &mut Told, known: &mut Vec<u64>) {
    let Some(answer) = answer else { return };
    let word = |bytes: &[u8], at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
    assert_eq!(word(&answer, 0) as usize, answer.len());
    assert_eq!(answer[8..16], request[8..16], "the answer to another request");
    let error = word(&answer, 4).cast_signed();
    assert!((-4095..=0).contains(&error) && (error == 0 || answer.len() == ANSWER), "{error}");
    assert!(answer.len() <= ANSWER + ANSWER_MAX, "{} bytes", answer.len());
    if error != 0 {
        told.refused += 1;
        return;
    }
    told.done += 1;
    let node = answer[ANSWER..].first_chunk().map_or(0, |node| u64::from_ne_bytes(*node));
    if GIVES_NODE.contains(&word(request, 4))
        && node != 0
        && !known.contains(&node)
        && known.len() < NODES_MAX
    {
        known.push(node);
    }
}

/// Something of everything, and its inodes.
async fn fill(fs: &BarrierFs) -> Result<Vec<u32>, FsError> {
    let (file, directory) =
        (NewNode::new(FileType::Regular, 0o4755), NewNode::new(FileType::Directory, 0o755));
    let names = fs.mkdir(ROOT_INODE, b"d", &directory).await?;
    for number in 0..40 {
        fs.create(names, format!("{number:0200}").as_bytes(), &file).await?;
    }
    let bare = fs.mkdir(names, b"e", &directory).await?;
    fs.set_extended_attribute(bare, DEFAULT, &LIST, Expect::Anything).await?;
    let plain = fs.create(ROOT_INODE, b"f", &file).await?;
    fs.write(plain, 0, &[6; 10_000]).await?;
    fs.set_extended_attribute(plain, b"user.a", &[1; 80], Expect::Anything).await?;
    let sparse = fs.create(ROOT_INODE, b"s", &file).await?;
    for block in 0..12 {
        fs.write(sparse, block * 2 * BLOCK_BYTES as u64, &[3; 10]).await?;
    }
    let link = fs.symlink(ROOT_INODE, b"l", b"d/e", (0, 0)).await?;
    let fifo = fs.create(ROOT_INODE, b"p", &NewNode::new(FileType::Fifo, 0o644)).await?;
    Ok(vec![names, bare, plain, sparse, link, fifo])
}

/// A request of a session, as [`next`] reads it: the superuser asks, and waits.
pub fn request(operation: u8, node: u8, body: &[u8]) -> Vec<u8> {
    [&[operation, node, body.len() as u8, 0], body].concat()
}
