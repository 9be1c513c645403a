//! The rules L1 to L8: for each mutant a script, and power cuts after which a filesystem that keeps the rule is right, and one that
//! drops it is wrong in the way that the rule is about.

use std::rc::Rc;
use std::time::Duration;

use weir_f2fs::NodeId;
use weir_f2fs::check::check;
use weir_lfs::{Cleaner, F2fs, F2fsOptions, LfsMutant};
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, AdversaryOptions, Fault, Faults, Image, Rules, Storage};
use weir_vfs::{FsError, InodeNumber, StorageImage, SyncCall};

use crate::support::{PAGE, content, mounted_on, options, page, play, regular};

const ROOT: u32 = NodeId::ROOT.0;
/// Blocks of the disk: 64 MiB.
const BLOCKS: u64 = 16_384;
/// A page that a direct node leads to.
const FAR: u64 = 2_000;
/// States that are judged after a script.
const STATES: u64 = 60;
/// Rounds of cleaning that are judged.
const ROUNDS: u64 = 3;

/// A power cut that leaves what it must not.
type Wrong = String;

/// Runs a script with the rule, and without: the mutant leaves `what`.
fn kill(mutant: LfsMutant, what: &str, script: impl Fn(F2fsOptions) -> Result<(), Wrong>) {
    let mount = F2fsOptions {
        in_place_pages: 0,
        // Nothing but the script calls for checkpoints.
        checkpoint_interval: Duration::from_secs(1 << 30),
        ..F2fsOptions::default()
    };
    assert_eq!(script(mount), Ok(()), "without the mutant");
    let found = script(F2fsOptions { rules: Rules::but(Some(mutant)), ..mount });
    let wrong = found.expect_err("the mutant survives");
    assert!(wrong.contains(what), "{mutant:?} is found by another cause: {wrong}");
}

/// A disk on which what was submitted stays on its way for a while.
fn slow() -> AdversaryOptions {
    AdversaryOptions { latency_ns_max: 1_000_000, ..options(BLOCKS, true) }
}

/// Which page of which version some bytes are; `None` for what was never written.
fn version_of(place: u64, bytes: &[u8]) -> Option<u64> {
    let version = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
    (bytes == page(place, version)).then_some(version)
}

async fn write(fs: &F2fs, file: InodeNumber, place: u64, version: u64) {
    fs.write(file, place * PAGE as u64, &page(place, version)).await.expect("written");
}

async fn read(fs: &F2fs, file: InodeNumber, place: u64) -> Result<Option<u64>, Wrong> {
    let mut bytes = vec![0; PAGE];
    fs.read(file, place * PAGE as u64, &mut bytes).await.map_err(|error| format!("reading: {error}"))?;
    Ok(version_of(place, &bytes))
}

/// The versions of some pages of the file that scripts write to.
async fn read_versions(fs: &F2fs, places: [u64; 3]) -> Result<Vec<Option<u64>>, Wrong> {
    let file = find(fs, b"file").await?.ok_or("the file is gone")?;
    let mut versions = Vec::new();
    for place in places {
        versions.push(read(fs, file, place).await?);
    }
    Ok(versions)
}

/// A file by its name; `None` if there is none.
async fn find(fs: &F2fs, name: &[u8]) -> Result<Option<InodeNumber>, Wrong> {
    match fs.lookup(ROOT, name).await {
        Ok(file) => Ok(Some(file)),
        Err(FsError::NotFound) => Ok(None),
        Err(error) => Err(format!("finding a name: {error}")),
    }
}

/// What a judge says of the filesystem that is found after a power cut.
trait Judge: AsyncFn(&F2fs) -> Result<(), Wrong> {}
impl<T: AsyncFn(&F2fs) -> Result<(), Wrong>> Judge for T {}

/// Mounts what is left, looks, unmounts, and checks.
async fn judge_state(
    clock: &Handle,
    left: &Image,
    mount: F2fsOptions,
    look: &impl Judge,
) -> Result<(), Wrong> {
    let disk = AdversaryDisk::from_image(clock, options(BLOCKS, true), left);
    let fs = F2fs::mount(clock, Rc::clone(&disk) as Rc<dyn Storage>, mount).await;
    let fs = fs.map_err(|error| format!("mounting: {error}"))?;
    look(&fs).await?;
    fs.unmount().await.map_err(|error| format!("unmounting: {error}"))?;
    let report = check(&StorageImage(disk as Rc<dyn Storage>)).await.map_err(|error| error.to_string())?;
    report.findings.first().map_or(Ok(()), |finding| Err(format!("the check: {finding}")))
}

/// Judges some of the states that a power cut may leave now.
async fn judge_cuts(
    clock: &Handle,
    disk: &AdversaryDisk,
    mount: F2fsOptions,
    look: impl Judge,
) -> Result<(), Wrong> {
    let mut random = clock.random("cuts");
    for _ in 0..STATES {
        let left = disk.crash_states().sample(&mut random);
        judge_state(clock, &left, mount, &look).await?;
    }
    Ok(())
}

/// Files whose pages are all of one version.
const FILES: u64 = 30;

/// Changes all files, and puts a checkpoint behind that: durable, or only ordered.
fn write_a_checkpoint(mount: F2fsOptions, barriers: bool) -> Result<(), Wrong> {
    play(1, async |clock| {
        let (disk, fs) = mounted_on(&clock, options(BLOCKS, barriers), mount).await;
        let mut files = Vec::new();
        for version in 1..3 {
            for nth in 0..FILES {
                if version == 1 {
                    files.push(fs.create(ROOT, format!("{nth}").as_bytes(), &regular()).await.expect("made"));
                }
                write(&fs, files[nth as usize], FAR, version).await;
            }
            // A directory that has changed takes a checkpoint.
            fs.create(ROOT, format!("name-{version}").as_bytes(), &regular()).await.expect("made");
            let call = if barriers { SyncCall::Fbarrier } else { SyncCall::Fsync };
            fs.synchronise(ROOT, call).await.expect("called");
        }
        judge_cuts(&clock, &disk, mount, async |fs| {
            let mut versions = Vec::new();
            for nth in 0..FILES {
                versions.push(match find(fs, format!("{nth}").as_bytes()).await? {
                    None => Some(0),
                    Some(file) => read(fs, file, FAR).await?,
                });
            }
            let is_one = versions.iter().all(|version| version.is_some() && *version == versions[0]);
            let is_kept = barriers || versions[0] == Some(2);
            if is_one && is_kept { Ok(()) } else { Err(format!("not one checkpoint: {versions:?}")) }
        })
        .await
    })
}

/// Overwrites a file that takes most of the room, so that the log comes to where it began, with no call that makes anything durable.
fn go_round_the_log(mount: F2fsOptions) -> Result<(), Wrong> {
    play(2, async |clock| {
        let mount = F2fsOptions { dirty_background_bytes: 1 << 16, dirty_bytes: 1 << 20, ..mount };
        let (disk, fs) = mounted_on(&clock, options(4 * BLOCKS, true), mount).await;
        let file = fs.create(ROOT, b"file", &regular()).await.expect("made");
        let pages = fs.statfs().await.available_blocks * 8 / 10;
        for version in 1..3 {
            for place in 0..pages {
                write(&fs, file, place, version).await;
            }
            if version == 1 {
                fs.sync().await.expect("durable");
            }
        }
        judge_cuts(&clock, &disk, mount, async |fs| {
            let file = find(fs, b"file").await?.ok_or("the file is gone")?;
            for place in (0..pages).step_by(67) {
                if read(fs, file, place).await?.is_none() {
                    return Err(format!("page {place} is another one"));
                }
            }
            Ok(())
        })
        .await
    })
}

/// Deletes a file, and makes another durable before the deletion is.
fn delete_and_make(mount: F2fsOptions) -> Result<(), Wrong> {
    play(3, async |clock| {
        let (disk, fs) = mounted_on(&clock, options(BLOCKS, true), mount).await;
        let first = fs.create(ROOT, b"first", &regular()).await.expect("made");
        write(&fs, first, 0, 1).await;
        fs.sync().await.expect("durable");
        fs.unlink(ROOT, b"first").await.expect("deleted");
        let second = fs.create(ROOT, b"second", &regular()).await.expect("made");
        write(&fs, second, 0, 2).await;
        fs.fsync(second).await.expect("durable");
        judge_cuts(&clock, &disk, mount, async |fs| {
            let mut found = Vec::new();
            for name in [b"first".as_slice(), b"second"] {
                found.push(match find(fs, name).await? {
                    Some(file) => Some(read(fs, file, 0).await?),
                    None => None,
                });
            }
            match found[..] {
                [None | Some(Some(1)), Some(Some(2))] => Ok(()),
                _ => Err(format!("the node of the second file is taken for the first's: {found:?}")),
            }
        })
        .await
    })
}

/// Overwrites pages of a file that several nodes lead to, and does these calls; then power cuts.
fn overwrite(
    mount: F2fsOptions,
    calls: &[SyncCall],
    judge: fn(&[Option<u64>]) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    play(4, async |clock| {
        let (disk, fs) = mounted_on(&clock, options(BLOCKS, true), mount).await;
        let file = fs.create(ROOT, b"file", &regular()).await.expect("made");
        let places = [FAR, 2 * FAR, 3 * FAR];
        for version in 1..3 {
            for place in places {
                write(&fs, file, place, version).await;
            }
            match version {
                1 => fs.sync().await.expect("durable"),
                _ => {
                    // Writeback has submitted them, if it is to, and they are transferred.
                    clock.sleep(Duration::from_secs(1)).await;
                    for call in calls {
                        fs.synchronise(file, *call).await.expect("called");
                    }
                }
            }
        }
        judge_cuts(&clock, &disk, mount, async |fs| judge(&read_versions(fs, places).await?)).await
    })
}

/// Overwrites pages of a file as one update, which nodes lead to at their places.
fn overwrite_as_update(mount: F2fsOptions) -> Result<(), Wrong> {
    play(10, async |clock| {
        let mount = F2fsOptions { in_place_pages: 8, ..mount };
        let (disk, fs) = mounted_on(&clock, slow(), mount).await;
        let file = fs.create(ROOT, b"file", &regular()).await.expect("made");
        let places = [FAR, 2 * FAR, 3 * FAR];
        for version in 1..3 {
            fs.begin_update(file).await.expect("begun");
            for place in places {
                write(&fs, file, place, version).await;
            }
            fs.end_updates(&[file]).await.expect("ended");
            match version {
                1 => fs.sync().await.expect("durable"),
                _ => fs.synchronise(file, SyncCall::Fdatabarrier).await.expect("ordered"),
            }
        }
        judge_cuts(&clock, &disk, mount, async |fs| is_call_whole(&read_versions(fs, places).await?)).await
    })
}

/// A page is one of those that were written.
fn are_pages_whole(versions: &[Option<u64>]) -> Result<(), Wrong> {
    match versions.iter().all(Option::is_some) {
        true => Ok(()),
        false => Err(format!("a node leads to what was never written: {versions:?}")),
    }
}

/// All pages of one call are there, or none.
fn is_call_whole(versions: &[Option<u64>]) -> Result<(), Wrong> {
    match versions.iter().all(|version| *version == versions[0]) {
        true => are_pages_whole(versions),
        false => Err(format!("a part of a call: {versions:?}")),
    }
}

fn is_call_durable(versions: &[Option<u64>]) -> Result<(), Wrong> {
    match versions.iter().all(|version| *version == Some(2)) {
        true => Ok(()),
        false => Err(format!("a call that was durable is gone: {versions:?}")),
    }
}

/// Makes a file durable, cuts the power, and does so again with another file in the next mount.
fn roll_forward_twice(mount: F2fsOptions) -> Result<(), Wrong> {
    play(5, async |clock| {
        let (disk, fs) = mounted_on(&clock, options(BLOCKS, true), mount).await;
        let make = async |fs: &F2fs, name: &[u8]| {
            let file = fs.create(ROOT, name, &regular()).await.expect("made");
            write(fs, file, 0, 1).await;
            fs.fsync(file).await.expect("durable");
        };
        make(&fs, b"first").await;
        let left = disk.crash_states().sample(&mut clock.random("first cut"));
        let disk = AdversaryDisk::from_image(&clock, options(BLOCKS, true), &left);
        let fs = F2fs::mount(&clock, Rc::clone(&disk) as Rc<dyn Storage>, mount).await;
        make(&fs.map_err(|error| error.to_string())?, b"second").await;
        judge_cuts(&clock, &disk, mount, async |fs| {
            for name in [b"first".as_slice(), b"second"] {
                let file = find(fs, name).await?.ok_or("a call that was durable is gone")?;
                if read(fs, file, 0).await? != Some(1) {
                    return Err("a file has lost its page".to_owned());
                }
            }
            Ok(())
        })
        .await
    })
}

/// Makes a file durable that the checkpoint does not have.
fn make_a_name_durable(mount: F2fsOptions) -> Result<(), Wrong> {
    play(6, async |clock| {
        let (disk, fs) = mounted_on(&clock, options(BLOCKS, true), mount).await;
        let file = fs.create(ROOT, b"file", &regular()).await.expect("made");
        write(&fs, file, 0, 1).await;
        fs.fsync(file).await.expect("durable");
        judge_cuts(&clock, &disk, mount, async |fs| match find(fs, b"file").await? {
            Some(_) => Ok(()),
            None => Err("the name of a durable file is gone".to_owned()),
        })
        .await
    })
}

/// Deletes a file that a program has open.
fn delete_an_open_file(mount: F2fsOptions) -> Result<(), Wrong> {
    play(7, async |clock| {
        let (disk, fs) = mounted_on(&clock, options(BLOCKS, true), mount).await;
        let file = fs.create(ROOT, b"file", &regular()).await.expect("made");
        fs.open(file).await.expect("open");
        write(&fs, file, 0, 1).await;
        fs.unlink(ROOT, b"file").await.expect("deleted");
        fs.sync().await.expect("durable");
        judge_cuts(&clock, &disk, mount, async |_| Ok(())).await
    })
}

/// Writes a page, and unmounts.
fn write_a_page(mount: F2fsOptions) -> Result<(), Wrong> {
    play(8, async |clock| {
        let (disk, fs) = mounted_on(&clock, options(BLOCKS, true), mount).await;
        let file = fs.create(ROOT, b"file", &regular()).await.expect("made");
        write(&fs, file, FAR, 1).await;
        fs.unmount().await.expect("unmounted");
        judge_cuts(&clock, &disk, mount, async |fs| {
            let file = find(fs, b"file").await?.ok_or("the file is gone")?;
            content(fs, file).await.map(drop).map_err(|error| error.to_string())
        })
        .await
    })
}

/// Overwrites pages at random, and cuts the power behind each call that cleaned segments.
fn clean_segments(mount: F2fsOptions) -> Result<(), Wrong> {
    play(9, async |clock| {
        let mount = F2fsOptions { cleaner: Cleaner::Share, ..mount };
        // Many commands, which a barrier may overtake, and of which some take long.
        let faults = Faults { delay: Fault::PerMillion(5_000), delay_ns: 20_000_000, ..Faults::default() };
        let mut disk = AdversaryOptions { faults, ..options(BLOCKS, true) };
        (disk.capabilities.max_share_blocks, disk.capabilities.ordered_service) = (1, false);
        let (disk, fs) = mounted_on(&clock, disk, mount).await;
        let mut random = clock.random("pages");
        let file = fs.create(ROOT, b"file", &regular()).await.expect("made");
        let pages = fs.statfs().await.available_blocks * 7 / 10;
        for place in 0..pages {
            write(&fs, file, place, 1).await;
        }
        let (mut judged, mut moved, mut nth) = (0, 0, 0);
        while judged < ROUNDS {
            nth += 1;
            write(&fs, file, random.below(pages), 2).await;
            if nth % 64 == 0 {
                fs.fdatasync(file).await.expect("durable");
            }
            if fs.statistics().cleaned.pages == moved {
                continue;
            }
            (judged, moved) = (judged + 1, fs.statistics().cleaned.pages);
            // The checkpoint comes to the disk.
            for _ in 0..STATES / 2 {
                clock.sleep(Duration::from_micros(500)).await;
                let left = disk.crash_states().sample(&mut random);
                judge_state(&clock, &left, mount, &async |fs: &F2fs| {
                    let file = find(fs, b"file").await?.ok_or("the file is gone")?;
                    for place in (judged..pages).step_by(37) {
                        if read(fs, file, place).await?.is_none() {
                            return Err(format!("page {place} was moved to where nothing is"));
                        }
                    }
                    Ok(())
                })
                .await?;
            }
        }
        Ok(())
    })
}

#[test]
fn l1_a_footer_is_behind_its_checkpoint() {
    kill(LfsMutant::FooterNotBehind, "the check: ", |mount| write_a_checkpoint(mount, true));
    kill(LfsMutant::FooterNotFlushed, "not one checkpoint", |mount| write_a_checkpoint(mount, false));
}

#[test]
fn l2_segments_and_numbers_are_used_again_behind_a_checkpoint() {
    kill(LfsMutant::SegmentReusedEarly, "is another one", go_round_the_log);
    kill(LfsMutant::NumberReusedEarly, "is taken for the first's", delete_and_make);
}

#[test]
fn l3_nodes_are_behind_their_pages() {
    let script = |mount| overwrite(mount, &[SyncCall::Fdatabarrier], are_pages_whole);
    kill(LfsMutant::NodesWithPages, "leads to what was never written", script);
}

#[test]
fn l4_a_mount_begins_a_chain() {
    kill(LfsMutant::ChainGoesOn, "a call that was durable is gone", roll_forward_twice);
}

#[test]
fn l5_shares_are_durable_before_the_checkpoint() {
    kill(LfsMutant::ShareNotAwaited, "was moved to where nothing is", clean_segments);
}

#[test]
fn l6_roll_forward_brings_back_whole_calls() {
    let durable = |mount| overwrite(mount, &[SyncCall::Fdatasync], is_call_durable);
    kill(LfsMutant::AddressNotRolledForward, "a call that was durable is gone", durable);
    kill(LfsMutant::InodeWithoutName, "the name of a durable file is gone", make_a_name_durable);
    let whole = |mount| overwrite(mount, &[SyncCall::Fdatabarrier], is_call_whole);
    kill(LfsMutant::MarkOnEveryNode, "a part of a call", whole);
    kill(LfsMutant::UpdateInPlace, "a part of a call", overwrite_as_update);
}

#[test]
fn l7_a_checkpoint_lists_orphans() {
    kill(LfsMutant::OrphanKept, "no file leads to it", delete_an_open_file);
}

#[test]
fn l8_summaries_name_the_words_of_nodes() {
    kill(LfsMutant::SummaryLies, "the summary has word", write_a_page);
}

#[test]
fn nodes_are_behind_pages_that_writeback_has_transferred() {
    let mount = F2fsOptions { in_place_pages: 0, dirty_background_bytes: 1, ..F2fsOptions::default() };
    assert_eq!(overwrite(mount, &[SyncCall::Fdatabarrier], are_pages_whole), Ok(()));
}

#[test]
fn a_durable_call_covers_what_was_only_ordered() {
    let mount = F2fsOptions { in_place_pages: 0, ..F2fsOptions::default() };
    let calls = [SyncCall::Fdatabarrier, SyncCall::Fdatasync];
    assert_eq!(overwrite(mount, &calls, is_call_durable), Ok(()));
    // The order of the first is that of a checkpoint here, and the second finds nothing to write.
    let found = play(11, async |clock| {
        let (disk, fs) = mounted_on(&clock, slow(), mount).await;
        let file = fs.create(ROOT, b"file", &regular()).await.expect("made");
        write(&fs, file, 0, 1).await;
        fs.synchronise(ROOT, SyncCall::Fbarrier).await.expect("ordered");
        fs.synchronise(file, SyncCall::Fsync).await.expect("durable");
        judge_cuts(&clock, &disk, mount, async |fs| match find(fs, b"file").await? {
            Some(file) => is_call_durable(&[read(fs, file, 0).await?.map(|version| version + 1)]),
            None => Err("a file that was durable is gone".to_owned()),
        })
        .await
    });
    assert_eq!(found, Ok(()));
}
