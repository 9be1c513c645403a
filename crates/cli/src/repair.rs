//! `weir volume repair`: says what can be saved of a damaged volume, by file, and saves it when it is told to.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Args;
use weir_image::Damaged;
use weir_runtime::Handle;
use weir_storage::{FileDisk, FileDiskOptions, Lba, Overlay};
use weir_vfs::FilesystemCalls;
use weir_volume::{Damage, RepairOptions, RepairReport, VolumeError, VolumeOptions};

use crate::error::CliError;
use crate::image::filesystem_in_memory;
use crate::open::open_disk;
use crate::plain::{self, counted};
use crate::stack::{Stack, overlay};
use crate::{Verdict, print};

/// Files and directories that are listed at most.
const LISTED: u64 = 1000;
/// Blocks that are listed at most, where their files cannot be named.
const BLOCKS_LISTED: usize = 64;

/// Arguments of `weir volume repair`.
#[derive(Debug, Args)]
pub(crate) struct RepairArguments {
    /// The file or block device; it must not be mounted
    path: PathBuf,
    /// Write what the report says; without this nothing is changed
    #[arg(long)]
    write: bool,
    /// Where a durable record is missing, go back to the state before it, and give up what was written later
    #[arg(long)]
    to_prefix: bool,
    /// If the table of snapshots and clones is damaged, give all of them up; the volume itself keeps what it has
    #[arg(long)]
    drop_snapshots: bool,
}

/// Runs the command: 0 if nothing is damaged any more, 1 if something is or is lost.
pub(crate) async fn run(handle: &Handle, arguments: &RepairArguments) -> Result<Verdict, CliError> {
    let RepairArguments { ref path, write, to_prefix, drop_snapshots } = *arguments;
    let options = RepairOptions { to_prefix, drop_snapshots, ..RepairOptions::default() };
    let disk =
        open_disk(handle, path, FileDiskOptions { read_only: true, ..FileDiskOptions::default() }).await?;
    let in_memory = Rc::new(overlay(handle, &disk));
    let report = match repair(handle, path, Rc::clone(&in_memory), options.clone()).await {
        Err(CliError::Volume { source: VolumeError::Damaged { what, at }, .. })
            if matches!(what, Damage::LostRecord | Damage::NewestCheckpoint) && !to_prefix =>
        {
            print(&format!(
                "damaged: {what}, at {at} of the disk: what was written later may be in any block. `--to-prefix` says what \
                 going back to the state before it loses; nothing was changed"
            ))?;
            return Ok(Verdict::Damaged);
        }
        Err(CliError::Volume {
            source: VolumeError::Damaged { what: what @ Damage::SnapshotTable, .. },
            ..
        }) => {
            print(&format!(
                "damaged: {what}. With `--write --drop-snapshots` the volume itself is kept, and all snapshots and clones \
                 are given up; nothing was changed"
            ))?;
            return Ok(Verdict::Damaged);
        }
        report => report?,
    };
    report.findings.iter().try_for_each(|finding| print(&finding.to_string()))?;
    if !report.lost.is_empty() {
        let lost = report.lost.len() as u64;
        tell_files(handle, path, Rc::clone(&in_memory), disk.clone(), (&report.lost, lost)).await?;
    }
    // The lock of a reader goes with them.
    drop((in_memory, disk));
    let is_sound = report.findings_total == 0;
    let is_whole = report.lost.is_empty() && !report.gives_up();
    if write && !is_sound {
        let disk = open_disk(handle, path, FileDiskOptions::default()).await?;
        repair(handle, path, disk, options).await?;
    }
    print(&format!(
        "{}: {}",
        verdict(&report, write),
        counted(report.live_blocks, "live block read", "live blocks read")
    ))?;
    Ok(if is_whole && (is_sound || write) { Verdict::Good } else { Verdict::Damaged })
}

fn verdict(report: &RepairReport, write: bool) -> String {
    let lost = match report.lost.len() as u64 {
        0 if report.gives_up() => "no block of the volume itself is lost".to_owned(),
        0 => "nothing is lost".to_owned(),
        lost => format!(
            "{} lost, reading them is an error until they are written again",
            counted(lost, "block is", "blocks are")
        ),
    };
    match (report.findings_total, write) {
        (0, _) if report.lost.is_empty() => "clean".to_owned(),
        (0, _) => format!("the volume's structures are whole; {lost}"),
        (_, true) => format!("repaired; {lost}"),
        (_, false) => format!("damaged; {lost}; nothing was changed, `--write` repairs it"),
    }
}

async fn repair<D: weir_storage::Storage + 'static>(
    handle: &Handle,
    path: &Path,
    disk: Rc<D>,
    options: RepairOptions,
) -> Result<RepairReport, CliError> {
    weir_volume::repair(handle, disk, options).await.map_err(|source| CliError::of_volume(path, source))
}

/// Says which files lost blocks are in, by the filesystem in the volume; if that cannot be read, which blocks these are: some of
/// `lost`, of so many in all.
pub(crate) async fn tell_files(
    handle: &Handle,
    path: &Path,
    in_memory: Rc<Overlay>,
    disk: Rc<FileDisk>,
    (lost, blocks): (&[Lba], u64),
) -> Result<(), CliError> {
    let filesystem = async {
        let stack = Stack::volume_on(handle, path, in_memory, disk, VolumeOptions::default()).await?;
        filesystem_in_memory(handle, path, &stack).await
    };
    match filesystem.await {
        Ok(filesystem) => tell_damaged(&*filesystem, blocks).await,
        Err(error) => {
            let listed: Vec<String> = lost.iter().take(BLOCKS_LISTED).map(|lba| lba.0.to_string()).collect();
            let more = if blocks > listed.len() as u64 { " and more" } else { "" };
            print(&format!(
                "logical blocks {}{more} are lost; their files cannot be named: {error}",
                listed.join(" ")
            ))
        }
    }
}

/// Says which files of a filesystem cannot be read, out of `lost` blocks.
async fn tell_damaged(filesystem: &dyn FilesystemCalls, lost: u64) -> Result<(), CliError> {
    let (mut files, mut in_files, mut outcome) = (0, 0, Ok(()));
    weir_image::find_damaged(filesystem, &mut |damaged: Damaged| {
        files += 1;
        in_files += damaged.content.map_or(0, |(_, blocks)| blocks);
        if files <= LISTED && outcome.is_ok() {
            outcome = print(&plain::of_text(&line(&damaged)));
        }
    })
    .await;
    outcome?;
    if files > LISTED {
        print(&format!("and {} files more", files - LISTED))?;
    }
    match lost.saturating_sub(in_files) {
        0 => Ok(()),
        others => print(&format!(
            "{} in no file's content: free space, the journal, or metadata; `weir fsck` says whether the filesystem is whole",
            counted(others, "lost block is", "lost blocks are")
        )),
    }
}

fn line(damaged: &Damaged) -> String {
    let Damaged { path, content, cause } = damaged;
    match content {
        Some((offset, blocks)) => {
            format!("lost in {path}: {}, the first one at byte {offset}", counted(*blocks, "block", "blocks"))
        }
        None => format!("lost: {path}: {cause}"),
    }
}
