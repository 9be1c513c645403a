//! A memory for next to no nodes: they are read again all the time.

use weir_f2fs::NodeId;
use weir_lfs::F2fsOptions;
use weir_storage::AdversaryOptions;
use weir_vfs::SyncCall;

use crate::support::{BLOCKS, mounted_on, options, play, regular, unmount_and_judge};

const ROOT: u32 = NodeId::ROOT.0;
/// The first page that a direct node leads to, and a little more.
const FAR: u64 = 1_000 * 4096;
const FILES: usize = 24;

/// Each file has an inode and a direct node, which `call` puts on their way; they are wanted before they are there.
fn read_what_is_on_its_way(call: SyncCall, of_directory: bool) {
    play(3, async |clock| {
        let slow = AdversaryOptions { latency_ns_max: 1_000_000, ..options(BLOCKS, true) };
        let mount = F2fsOptions { cache_inodes: 1, cache_bytes: 0, ..F2fsOptions::default() };
        let (disk, fs) = mounted_on(&clock, slow, mount).await;
        let mut files = Vec::new();
        for nth in 0..FILES {
            files.push(fs.create(ROOT, format!("{nth}").as_bytes(), &regular()).await.unwrap());
        }
        for round in 0..4 {
            for file in &files {
                fs.write(*file, FAR, &[round + 1; 4096]).await.unwrap();
                if !of_directory {
                    fs.synchronise(*file, call).await.unwrap();
                }
            }
            if of_directory {
                fs.synchronise(ROOT, call).await.unwrap();
            }
            for file in &files {
                let mut bytes = [0; 4096];
                fs.read(*file, FAR, &mut bytes).await.unwrap();
                assert_eq!(bytes, [round + 1; 4096]);
            }
        }
        unmount_and_judge(&disk, fs).await;
    });
}

#[test]
fn nodes_of_a_checkpoint_stay_until_they_are_on_the_disk() {
    read_what_is_on_its_way(SyncCall::Fbarrier, true);
}

#[test]
fn nodes_of_a_call_stay_until_they_are_on_the_disk() {
    read_what_is_on_its_way(SyncCall::Fdatabarrier, false);
}
