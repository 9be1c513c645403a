//! `weir fsck`: check a filesystem without changing it, unless its journal is to be replayed first. Like `e2fsck`, it
//! reads no file data.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Args;
use serde::Serialize;
use weir_ext4::Feature;
use weir_ext4::check::Report;
use weir_format::{FormatError, ImageReader};
use weir_fs::{BarrierFs, MountOptions};
use weir_runtime::Handle;
use weir_storage::{BLOCK_BYTES, Extent, Lba, Storage};
use weir_vfs::FsError;

use crate::error::{CliError, FsckError};
use crate::plain::counted;
use crate::stack::{Stack, foreign};
use crate::{Verdict, in_wall_time, print};

/// Arguments of `weir fsck`.
#[derive(Debug, Args)]
pub(crate) struct FsckArguments {
    /// The file or block device
    path: PathBuf,
    /// Replay the journal first, as a mount and an unmount do, so that other programs can read the filesystem
    #[arg(long)]
    replay: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// An image on a disk.
struct DiskImage {
    disk: Rc<dyn Storage>,
}

impl ImageReader for DiskImage {
    type Error = FsckError;

    fn blocks(&self) -> u64 {
        self.disk.blocks()
    }

    async fn read(&self, block: u64, bytes: &mut [u8]) -> Result<(), FsckError> {
        let most = self.disk.capabilities().max_transfer_blocks;
        let mut first = block;
        for part in bytes.chunks_mut(most as usize * BLOCK_BYTES) {
            let blocks = (part.len() / BLOCK_BYTES) as u32;
            let last = first + u64::from(blocks) - 1;
            let data = weir_storage::read(&*self.disk, Extent::new(Lba(first), blocks)).await;
            let data = data.map_err(|source| FsckError::Read { first, last, source })?;
            part.copy_from_slice(&data);
            first += u64::from(blocks);
        }
        Ok(())
    }
}

/// The document for machines.
#[derive(Debug, Serialize)]
struct Document {
    clean: bool,
    findings: Vec<Line>,
    findings_total: u64,
    /// The block of the copy that stands for a damaged superblock.
    superblock_copy: Option<u64>,
    transactions: u32,
    orphans: u32,
    inodes: u32,
    directories: u32,
    blocks: u64,
}

/// A finding: where, and what.
#[derive(Debug, Serialize)]
struct Line {
    place: String,
    problem: String,
}

/// Runs the command. It reports itself what cannot be checked, since that has an exit code of its own.
pub(crate) fn run(arguments: &FsckArguments) -> Result<Verdict, CliError> {
    match check(&arguments.path, arguments.replay) {
        Ok(report) => {
            print(&if arguments.json { document(&report)? } else { lines(&report) })?;
            Ok(if report.is_clean() { Verdict::Good } else { Verdict::Unclean })
        }
        Err(error) => {
            // Where standard error is closed, too, the exit code still says it.
            let _ = writeln!(std::io::stderr(), "weir: {error}");
            Ok(Verdict::Unreadable)
        }
    }
}

/// Mounts and unmounts it: the journal is empty then, and so is the list of orphans.
async fn unmounted(handle: &Handle, stack: &Stack, path: &Path) -> Result<(), CliError> {
    let failed = |source| CliError::Image { path: path.to_owned(), source };
    match BarrierFs::mount(handle, stack.storage(), MountOptions::default()).await {
        Ok(mounted) => mounted.unmount().await.map_err(failed),
        // There is nothing to replay.
        Err(FsError::Format(FormatError::MissingFeature { name })) if name == Feature::HAS_JOURNAL.name() => {
            Ok(())
        }
        Err(FsError::Format(FormatError::Foreign { .. })) => Ok(()),
        Err(source) => Err(failed(source)),
    }
}

fn check(path: &Path, replay: bool) -> Result<Report, CliError> {
    in_wall_time(0, async |handle| {
        let stack = Stack::open(&handle, path, !replay).await?;
        if replay && let Err(refused) = unmounted(&handle, &stack, path).await {
            stack.close(path).await?;
            return Err(refused);
        }
        let report = weir_ext4::check::check(&DiskImage { disk: stack.storage() }).await;
        stack.close(path).await?;
        let source = match report {
            Ok(report) => return Ok(report),
            Err(source) => source,
        };
        Err(match (stack.is_plain_file(), source) {
            (true, FsckError::Format(FormatError::Foreign { .. })) => foreign(path),
            (_, source) => CliError::Fsck { path: path.to_owned(), source },
        })
    })
}

fn lines(report: &Report) -> String {
    let mut lines: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    let more = report.total - report.findings.len() as u64;
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    if let Some(block) = report.superblock_copy {
        lines.push(format!("the superblock is damaged; its copy in block {block} was used"));
    }
    if report.transactions > 0 {
        let transactions = counted(report.transactions.into(), "transaction", "transactions");
        lines.push(format!(
            "the journal has {transactions} to replay: a mount does it, or weir fsck --replay"
        ));
    }
    if report.orphans > 0 {
        let orphans = counted(report.orphans.into(), "inode", "inodes");
        lines.push(format!("{orphans} to be deleted or cut at the next mount"));
    }
    let verdict = match report.total {
        0 => "clean".to_owned(),
        total => counted(total, "finding", "findings"),
    };
    lines.push(format!(
        "{verdict}: {} in use, {} of them {}; {} in use",
        counted(report.inodes.into(), "inode", "inodes"),
        report.directories,
        if report.directories == 1 { "a directory" } else { "directories" },
        counted(report.blocks, "block", "blocks"),
    ));
    lines.join("\n")
}

fn document(report: &Report) -> Result<String, CliError> {
    let findings = report
        .findings
        .iter()
        .map(|finding| Line { place: finding.place.to_string(), problem: finding.problem.to_string() });
    let document = Document {
        clean: report.is_clean(),
        findings: findings.collect(),
        findings_total: report.total,
        superblock_copy: report.superblock_copy,
        transactions: report.transactions,
        orphans: report.orphans,
        inodes: report.inodes,
        directories: report.directories,
        blocks: report.blocks,
    };
    Ok(serde_json::to_string_pretty(&document)?)
}
