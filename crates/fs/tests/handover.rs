//! A filesystem that is handed over: what is open or held without a name is as it was for the next server, and nothing else stays.

use weir_ext4::ROOT_INODE;
use weir_format::FileType;
use weir_fs::{BarrierFs, FsMutant, MountOptions};
use weir_runtime::Handle;
use weir_storage::Rules;
use weir_vfs::{FsError, HandoverRefusal, HeldInode, InodeNumber, NewNode, ReadOnlyReason};

use crate::support::{BLOCKS, disk, judge, mount, new_image, simulated};

const FILE: NewNode = NewNode {
    kind: FileType::Regular,
    permissions: 0o644,
    umask: 0,
    uid: 0,
    gid: 0,
    device: weir_vfs::Device { major: 0, minor: 0 },
};
const TAKEN_OVER: fn() -> MountOptions = || MountOptions { keeps_orphans: true, ..MountOptions::default() };

/// Makes a file that is held and has no name any more.
async fn make_nameless(fs: &BarrierFs, content: &[u8]) -> InodeNumber {
    let inode = fs.create_held(ROOT_INODE, b"name", &FILE).await.expect("made").keep();
    fs.write(inode, 0, content).await.expect("written");
    fs.unlink(ROOT_INODE, b"name").await.expect("removed");
    inode
}

async fn content(fs: &BarrierFs, inode: InodeNumber) -> Result<Vec<u8>, FsError> {
    let mut bytes = vec![0; 100];
    let read = fs.read(inode, 0, &mut bytes).await?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Hands a filesystem over, and looks at what the next server finds of a file without a name.
fn a_nameless_file_is_handed_over(mutant: Option<FsMutant>) -> bool {
    simulated(async |clock: Handle| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let options = MountOptions { rules: Rules::but(mutant), ..MountOptions::default() };
        let fs = mount(&clock, &disk, options).await.expect("mounted");
        let nameless = make_nameless(&fs, b"nameless").await;
        let held = fs.list_holds();
        fs.unmount_for_handover().await.expect("handed over");
        let fs = mount(&clock, &disk, TAKEN_OVER()).await.expect("mounted");
        let restored = fs.restore_holds(&held).await;
        let found = restored.is_ok() && content(&fs, nameless).await == Ok(b"nameless".to_vec());
        fs.unmount().await.expect("unmounted");
        judge(&disk.image());
        found
    })
}

#[test]
fn what_has_no_name_and_is_held_is_handed_over() {
    assert!(a_nameless_file_is_handed_over(None));
    assert!(
        !a_nameless_file_is_handed_over(Some(FsMutant::HandoverDeletesHeld)),
        "the mutant was not noticed"
    );
}

#[test]
fn holds_and_first_names_go_on_in_the_next_server() {
    simulated(async |clock: Handle| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        let free = fs.statfs().await;
        let named = fs.create_held(ROOT_INODE, b"named", &FILE).await.expect("made").keep();
        let unnamed = fs.create_unnamed_held(ROOT_INODE, &FILE).await.expect("made").keep();
        fs.release(unnamed).await.expect("closed");
        // Two that go in turn, so that each place in the chain of orphans is left once.
        let nameless = [make_nameless(&fs, b"first").await, make_nameless(&fs, b"second").await];
        fs.open(nameless[0]).await.expect("opened");
        let held = fs.list_holds();
        let hold = |inode, takes_first_name| HeldInode { inode, holds: 1, takes_first_name };
        assert_eq!(
            held,
            [hold(named, false), hold(unnamed, true), hold(nameless[0], false), hold(nameless[1], false)]
        );
        fs.unmount_for_handover().await.expect("handed over");
        assert_eq!(fs.check_handover(), Err(HandoverRefusal::Stopped(ReadOnlyReason::Unmounted)));

        let fs = mount(&clock, &disk, TAKEN_OVER()).await.expect("mounted");
        fs.restore_holds(&held).await.expect("restored");
        fs.open(nameless[0]).await.expect("opened again");
        assert_eq!(fs.list_holds(), held);
        assert_eq!(content(&fs, nameless[1]).await, Ok(b"second".to_vec()));
        fs.link(unnamed, ROOT_INODE, b"first name").await.expect("named");
        held.iter().for_each(|held| fs.let_go(held.inode, 1));
        fs.statfs().await;
        assert_eq!(content(&fs, nameless[1]).await, Err(FsError::NotFound));
        assert_eq!(content(&fs, nameless[0]).await, Ok(b"first".to_vec()));
        fs.release(nameless[0]).await.expect("closed");
        for name in [&b"named"[..], b"first name"] {
            fs.unlink(ROOT_INODE, name).await.expect("removed");
        }
        assert_eq!(fs.statfs().await, free);
        fs.unmount().await.expect("unmounted");
        judge(&disk.image());
    });
}

/// A server that does not come to take the holds up, and one that is told of other holds.
#[test]
fn what_nobody_takes_up_is_deleted() {
    for next in [None, Some(vec![]), Some(vec![HeldInode { inode: 9999, holds: 7, takes_first_name: false }])]
    {
        simulated(async |clock: Handle| {
            let disk = disk(&clock, &new_image(BLOCKS), true);
            let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
            let free = fs.statfs().await;
            let nameless = make_nameless(&fs, b"nameless").await;
            fs.unmount_for_handover().await.expect("handed over");
            let fs = match &next {
                None => mount(&clock, &disk, MountOptions::default()).await.expect("mounted"),
                Some(held) => {
                    let fs = mount(&clock, &disk, TAKEN_OVER()).await.expect("mounted");
                    fs.restore_holds(held).await.expect("restored");
                    fs
                }
            };
            assert_eq!(content(&fs, nameless).await, Err(FsError::NotFound));
            assert_eq!(fs.statfs().await, free);
            fs.unmount().await.expect("unmounted");
            judge(&disk.image());
        });
    }
}

#[test]
fn holds_that_cannot_be_are_refused() {
    simulated(async |clock: Handle| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, TAKEN_OVER()).await.expect("mounted");
        let named = fs.create(ROOT_INODE, b"named", &FILE).await.expect("made");
        for (inode, takes_first_name) in [(0, false), (1, false), (u32::MAX, false), (named, true)] {
            let refused = fs.restore_holds(&[HeldInode { inode, holds: 1, takes_first_name }]).await;
            assert!(matches!(refused, Err(FsError::Invalid(_))), "{inode}: {refused:?}");
        }
        fs.unmount().await.expect("unmounted");
    });
}

#[test]
fn an_update_that_is_not_in_the_journal_is_not_handed_over() {
    simulated(async |clock: Handle| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        let file = fs.create(ROOT_INODE, b"atomic", &FILE).await.expect("made");
        fs.set_atomic(file, true).await.expect("atomic");
        assert_eq!(fs.check_handover(), Ok(()));
        fs.open(file).await.expect("opened");
        fs.write(file, 0, b"half").await.expect("written");
        assert_eq!(fs.check_handover(), Err(HandoverRefusal::UpdateOpen(file)));
        fs.fsync(file).await.expect("durable");
        assert_eq!(fs.check_handover(), Ok(()));
        fs.begin_update(file).await.expect("begun");
        assert_eq!(fs.check_handover(), Err(HandoverRefusal::UpdateOpen(file)));
        fs.abandon_update(file).await.expect("abandoned");
        assert_eq!(fs.check_handover(), Ok(()));
        fs.unmount().await.expect("unmounted");
    });
}
