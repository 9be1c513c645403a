//! What is known of an inode that has left memory and comes back.

use std::rc::Rc;
use std::time::Duration;

use weir_ext4::{Mkfs, ROOT_INODE};
use weir_format::{BLOCK_BYTES, FileType};
use weir_runtime::{Handle as Clock, Runtime, Simulation};
use weir_storage::{AdversaryDisk, AdversaryOptions, Capabilities, Image, Ordering, Rules, Storage};
use weir_vfs::{AttributeChanges, NewNode};

use crate::filesystem::BarrierFs;
use crate::mutants::FsMutant;
use crate::options::MountOptions;

const BLOCKS: u64 = 16_384;
const PERMISSIONS: u16 = 0o600;

/// A disk in memory with this content.
fn disk(clock: &Clock, image: &Image) -> Rc<AdversaryDisk> {
    let legacy = Capabilities::legacy(32, 256, 4096);
    let capabilities = Capabilities { ordering: Ordering::Barrier, ordered_service: true, ..legacy };
    let options = AdversaryOptions { capabilities, latency_ns_max: 100_000, ..AdversaryOptions::default() };
    AdversaryDisk::from_image(clock, options, image)
}

/// One with a new filesystem.
async fn new_disk(clock: &Clock) -> Rc<AdversaryDisk> {
    let plan = Mkfs { zeroed: true, ..Mkfs::new(BLOCKS, [1; 16], [2; 16], 1_700_000_000) };
    let disk = disk(clock, &Image::zeroed(BLOCKS, BLOCK_BYTES as u32));
    BarrierFs::make(&*disk, &plan).await.expect("made");
    disk
}

async fn mount(clock: &Clock, disk: &Rc<AdversaryDisk>, options: MountOptions) -> BarrierFs {
    let storage = Rc::clone(disk) as Rc<dyn Storage>;
    BarrierFs::mount(clock, storage, options).await.expect("mounted")
}

/// The permissions that a power cut may leave right after `fsync` of a file whose node left memory before.
fn permissions_after_crash(seed: u64, mutant: Option<FsMutant>) -> Vec<u16> {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let clock = runtime.handle();
    let played = async {
        let first = new_disk(&clock).await;
        let fs = mount(&clock, &first, MountOptions { rules: Rules::but(mutant), ..MountOptions::default() })
            .await;
        let file = fs.create(ROOT_INODE, b"a", &NewNode::new(FileType::Regular, 0o644)).await.expect("made");
        fs.sync().await.expect("durable");
        let changes = AttributeChanges { permissions: Some(PERMISSIONS), ..AttributeChanges::default() };
        fs.set_attributes(file, &changes).await.expect("changed");
        // Dispatched and not transferred: that is when a node may leave.
        fs.fbarrier(file).await.expect("ordered");
        fs.0.nodes.forget(file);
        fs.fsync(file).await.expect("durable");
        let (states, mut random) = (first.crash_states(), clock.random("test.nodes"));
        let mut found = Vec::new();
        for _ in 0..4 {
            let left = disk(&clock, &states.sample(&mut random));
            let left = mount(&clock, &left, MountOptions::default()).await;
            found.push(left.attributes(file).await.expect("there").permissions);
        }
        found
    };
    runtime.block_on(played).expect("no stall")
}

#[test]
fn j3_an_inode_that_comes_back_waits_for_the_transaction_that_changed_it_last() {
    let holds = |mutant| {
        (0..8).all(|seed| permissions_after_crash(seed, mutant).iter().all(|found| *found == PERMISSIONS))
    };
    assert!(holds(None));
    assert!(!holds(Some(FsMutant::ReloadForgetsTransaction)), "the mutant was not noticed");
}

/// What a file holds in memory that was overwritten within a tick of the timer, so that no transaction keeps its node,
/// when others have taken the room of the cache.
fn overwritten_and_let_go(mutant: Option<FsMutant>) -> u8 {
    let runtime = Runtime::simulated(Simulation::default());
    let clock = runtime.handle();
    let played = async {
        let options = MountOptions {
            rules: Rules::but(mutant),
            timer_hz: 1,
            cache_inodes: 1,
            ..MountOptions::default()
        };
        let fs = mount(&clock, &new_disk(&clock).await, options).await;
        let regular = NewNode::new(FileType::Regular, 0o644);
        let file = fs.create(ROOT_INODE, b"a", &regular).await.expect("made");
        fs.write(file, 0, &[1; BLOCK_BYTES]).await.expect("written");
        fs.sync().await.expect("durable");
        fs.write(file, 0, &[2; BLOCK_BYTES]).await.expect("written");
        for other in 0..20 {
            let other = fs.create(ROOT_INODE, &[b'b' + other], &regular).await.expect("made");
            fs.write(other, 0, b"another").await.expect("written");
        }
        let mut found = [0; 1];
        fs.read(file, 0, &mut found).await.expect("read");
        found[0]
    };
    runtime.block_on(played).expect("no stall")
}

#[test]
fn a_node_with_dirty_pages_stays() {
    assert_eq!(overwritten_and_let_go(None), 2);
    let mutant = FsMutant::ForgetsDirtyNodes;
    assert_eq!(overwritten_and_let_go(Some(mutant)), 1, "{mutant:?} was not noticed");
}

/// Nodes in memory at most while many files are made, of which nothing is synchronised and no interval is over.
fn nodes_while_files_are_made(cache_inodes: usize) -> usize {
    let runtime = Runtime::simulated(Simulation::default());
    let clock = runtime.handle();
    let played = async {
        let options = MountOptions { cache_inodes, ..MountOptions::default() };
        let fs = mount(&clock, &new_disk(&clock).await, options).await;
        let mut most = 0;
        for nth in 0..600_u32 {
            let name = nth.to_string();
            let new = NewNode::new(FileType::Regular, 0o644);
            let file = fs.create(ROOT_INODE, name.as_bytes(), &new).await.expect("made");
            fs.write(file, 0, b"content").await.expect("written");
            // As a server does, which takes in other requests meanwhile.
            clock.sleep(Duration::from_micros(200)).await;
            most = most.max(fs.0.nodes.all().len());
        }
        most
    };
    runtime.block_on(played).expect("no stall")
}

#[test]
fn nodes_that_are_not_committed_do_not_pile_up() {
    assert!(nodes_while_files_are_made(10_000) > 600);
    let most = nodes_while_files_are_made(64);
    assert!(most <= 2 * 64, "{most}");
}
