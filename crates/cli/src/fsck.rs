//! `weir fsck`: check a filesystem without changing it, unless its journal is to be replayed first. Like `e2fsck`, it
//! reads no file data.

use std::fmt::Display;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Args;
use serde::Serialize;
use weir_ext4::Feature;
use weir_f2fs::check::Problem;
use weir_format::{FormatError, ImageReader};
use weir_fs::{BarrierFs, MountOptions};
use weir_lfs::{F2fs, F2fsOptions};
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
    /// Replay the journal first, or roll F2FS forward, as a mount and an unmount do, so that other programs can read the filesystem
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
    /// What is wrong with the checkpoint that was not used.
    damaged_checkpoint: Option<String>,
    transactions: u32,
    /// Files of F2FS that are durable, and that a mount rolls forward.
    #[serde(skip_serializing_if = "Option::is_none")]
    to_roll_forward: Option<u32>,
    orphans: u32,
    inodes: u32,
    /// None where they are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    directories: Option<u32>,
    blocks: u64,
}

/// A finding: where, and what.
#[derive(Debug, Serialize)]
struct Line {
    place: String,
    problem: String,
}

impl Line {
    fn new(place: &dyn Display, problem: &dyn Display) -> Line {
        Line { place: place.to_string(), problem: problem.to_string() }
    }
}

/// Runs the command. It reports itself what cannot be checked, since that has an exit code of its own.
pub(crate) fn run(arguments: &FsckArguments) -> Result<Verdict, CliError> {
    match check(&arguments.path, arguments.replay) {
        Ok(report) => {
            print(&if arguments.json { serde_json::to_string_pretty(&report)? } else { lines(&report) })?;
            Ok(if report.clean { Verdict::Good } else { Verdict::Unclean })
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
    if F2fs::is_on(&stack.storage()).await {
        let mounted = F2fs::mount(handle, stack.storage(), F2fsOptions::default()).await.map_err(failed)?;
        return mounted.unmount().await.map_err(failed);
    }
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

fn check(path: &Path, replay: bool) -> Result<Document, CliError> {
    in_wall_time(0, async |handle| {
        let stack = Stack::open(&handle, path, !replay).await?;
        if replay && let Err(refused) = unmounted(&handle, &stack, path).await {
            stack.close(path).await?;
            return Err(refused);
        }
        let image = DiskImage { disk: stack.storage() };
        let report = match F2fs::is_on(&stack.storage()).await {
            true => weir_f2fs::check::check(&image).await.map(Document::from),
            false => weir_ext4::check::check(&image).await.map(Document::from),
        };
        drop(image);
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

fn lines(report: &Document) -> String {
    let line = |finding: &Line| format!("{}: {}", finding.place, finding.problem);
    let mut lines: Vec<String> = report.findings.iter().map(line).collect();
    let more = report.findings_total - report.findings.len() as u64;
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    if let Some(block) = report.superblock_copy {
        lines.push(format!("the superblock is damaged; its copy in block {block} was used"));
    }
    if let Some(damage) = &report.damaged_checkpoint {
        lines.push(format!(
            "{damage}; the other one was used. A power cut while a checkpoint is written leaves that, and nothing durable is lost \
             then; if it is damage, changes that are newer than the other one are lost"
        ));
    }
    if report.transactions > 0 {
        let transactions = counted(report.transactions.into(), "transaction", "transactions");
        lines.push(format!(
            "the journal has {transactions} to replay: a mount does it, or weir fsck --replay"
        ));
    }
    if let Some(files) = report.to_roll_forward.filter(|files| *files > 0) {
        let files = counted(files.into(), "file is", "files are");
        lines.push(format!(
            "{files} durable in a newer state than the checkpoint has, to be rolled forward: a mount does it, or weir fsck --replay"
        ));
    }
    if report.orphans > 0 {
        let orphans = counted(report.orphans.into(), "inode", "inodes");
        lines.push(format!("{orphans} to be deleted or cut at the next mount"));
    }
    let verdict = match report.findings_total {
        0 => "clean".to_owned(),
        total => counted(total, "finding", "findings"),
    };
    let directories = match report.directories {
        None => String::new(),
        Some(1) => ", 1 of them a directory".to_owned(),
        Some(count) => format!(", {count} of them directories"),
    };
    lines.push(format!(
        "{verdict}: {} in use{directories}; {} in use",
        counted(report.inodes.into(), "inode", "inodes"),
        counted(report.blocks, "block", "blocks"),
    ));
    lines.join("\n")
}

impl From<weir_ext4::check::Report> for Document {
    fn from(report: weir_ext4::check::Report) -> Document {
        let line = |finding: &weir_ext4::check::Finding| Line::new(&finding.place, &finding.problem);
        Document {
            clean: report.is_clean(),
            findings: report.findings.iter().map(line).collect(),
            findings_total: report.total,
            superblock_copy: report.superblock_copy,
            damaged_checkpoint: None,
            transactions: report.transactions,
            to_roll_forward: None,
            orphans: report.orphans,
            inodes: report.inodes,
            directories: Some(report.directories),
            blocks: report.blocks,
        }
    }
}

impl From<weir_f2fs::check::Report> for Document {
    fn from(report: weir_f2fs::check::Report) -> Document {
        // The format's own errors name their place.
        let line = |finding: &weir_f2fs::check::Finding| match &finding.problem {
            Problem::Format(FormatError::Corrupt { structure, what, .. }) => {
                Line::new(&finding.place, &format!("the {structure} is damaged: {what}"))
            }
            Problem::Format(FormatError::Checksum { structure, .. }) => {
                Line::new(&finding.place, &format!("the checksum of the {structure} is wrong"))
            }
            problem => Line::new(&finding.place, problem),
        };
        Document {
            clean: report.is_clean(),
            findings: report.findings.iter().map(line).collect(),
            findings_total: report.total,
            superblock_copy: None,
            damaged_checkpoint: report.damaged_pack.as_ref().map(FormatError::to_string),
            transactions: 0,
            to_roll_forward: Some(report.to_roll_forward),
            orphans: report.orphans,
            inodes: report.inodes,
            directories: None,
            blocks: report.blocks,
        }
    }
}
