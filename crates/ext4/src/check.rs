//! The check: is an image whole? What `weir fsck` runs.
//!
//! A check reads and never writes. It goes over an image in the order in which one thing can be judged by
//! another:
//!
//! | step | file | what is compared |
//! |---|---|---|
//! | journal | `log` | its superblock; what recovery would write is laid over the image in memory |
//! | groups | `groups` | the superblock and its copies, descriptors; groups' own blocks are claimed |
//! | orphans | `orphans` | the list of inodes to be deleted at the next mount, and the orphan file |
//! | inodes | `inodes`, `content` | every inode, its extents, size, attributes; its blocks are claimed |
//! | names | `names`, `hashed` | every directory block, every name, every index |
//! | links | `links` | that every inode is below the root, and as often as it says |
//! | totals | `totals` | bitmaps and counts against what was claimed and found |
//!
//! Each step is given the `subject`, and what is `known` by the steps before, to which it adds.
//!
//! Each block is *claimed* by its user; a second claim is a finding. What is damaged is not looked
//! into any further, and what could only be judged by it is left alone, so that one damage does not give a
//! thousand findings.
//!
//! Images are hostile: memory is bounded by the image's size (one bit a block, twelve bytes an inode in use
//! and its neighbours, a few words a directory), every tree by its order, every list by its members.

mod claims;
mod content;
mod extents;
mod finding;
mod groups;
mod hashed;
mod inodes;
mod known;
mod links;
mod log;
mod names;
mod orphans;
mod overlay;
mod subject;
mod table;
mod totals;

pub use finding::{Finding, Problem};

use weir_format::{ImageReader, Place};

use crate::layout::Layout;
use finding::Findings;
use known::Known;
use overlay::Overlay;
use subject::Subject;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is wrong, in the order in which it was found; at most the first 1,000.
    pub findings: Vec<Finding>,
    /// How many findings there are in all.
    pub total: u64,
    /// The block of the copy with which the check went on, where the superblock is damaged.
    pub superblock_copy: Option<u64>,
    /// Transactions that the journal holds and the next mount will replay. The check saw the image as it is
    /// after that.
    pub transactions: u32,
    /// Inodes that the next mount will delete or truncate. That is no damage.
    pub orphans: u32,
    /// Inodes in use: the root, and those that are not reserved.
    pub inodes: u32,
    /// Directories among them.
    pub directories: u32,
    /// Blocks in use, those of the filesystem itself included.
    pub blocks: u64,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.total == 0
    }
}

/// Checks a whole image.
///
/// # Errors
///
/// [`FormatError`](weir_format::FormatError) where the image is not ext4, or of a kind outside the subset; and those of the reader.
/// Damage is no error but a finding.
pub async fn check<R: ImageReader>(image: &R) -> Result<Report, R::Error> {
    let mut overlay = Overlay::new(image);
    let mut findings = Findings::default();
    let Some((superblock, copy)) = groups::read_superblock(&overlay, &mut findings).await? else {
        return Ok(findings.report());
    };
    if superblock.blocks() > image.blocks() {
        let problem = Problem::Truncated { blocks: superblock.blocks(), device: image.blocks() };
        findings.push(Place::Block(0), problem);
        return Ok(findings.report());
    }
    let replayed = log::recover(&mut overlay, &superblock, &mut findings).await?;
    // The journal may hold a newer superblock.
    let newer = if replayed.is_some() { groups::primary(&overlay).await?.ok() } else { None };
    let copy = if newer.is_some() { None } else { copy };
    let superblock = newer.unwrap_or(superblock);
    if superblock.blocks() > overlay.blocks() {
        let problem = Problem::Truncated { blocks: superblock.blocks(), device: overlay.blocks() };
        findings.push(Place::Block(0), problem);
        return Ok(findings.report());
    }
    let layout = match Layout::new(&superblock) {
        Ok(layout) => layout,
        Err(error) => {
            findings.format(&error);
            return Ok(findings.report());
        }
    };
    let (image, descriptors) = (&overlay, Vec::new());
    let mut known = Known::new(&layout, findings);
    let mut subject = Subject { image, superblock, layout, descriptors, replayed: replayed.is_some(), copy };
    groups::check(&mut subject, &mut known).await?;
    orphans::check(&subject, &mut known).await?;
    inodes::check(&subject, &mut known).await?;
    names::check(&subject, &mut known).await?;
    links::check(&subject, &mut known);
    totals::check(&subject, &mut known).await?;
    Ok(Report {
        transactions: replayed.unwrap_or(0),
        orphans: known.orphans.len() as u32,
        superblock_copy: copy,
        inodes: known.table.used(subject.superblock.first_inode.get()),
        directories: known.directories.len() as u32,
        blocks: known.claims.count(),
        ..known.findings.report()
    })
}
