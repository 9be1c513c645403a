//! The check: is an image whole? Do the checkpoint, both tables, the summaries, the files and their names agree?
//!
//! A check reads and never writes. It goes over an image in the order in which one thing can be judged by another:
//!
//! | step | file | what is compared |
//! |---|---|---|
//! | tables | `tables` | the superblock, the newer whole pack; both tables, with their journals laid over them |
//! | nodes | `nodes` | each node's address, the footer of its block, its owner in the summary; orphans |
//! | segments | `segments` | each block in use: that its owner is there; the checkpoint's counts |
//! | trees | `trees` | each file from the root and the orphans on: nodes, blocks, their owners in the summaries, names, links; nodes and blocks that no file leads to |
//!
//! Files are looked into only where all before them is whole.
//!
//! Images are hostile: memory is bounded by the image's size (74 bytes a segment, a bit a block, 16 bytes a node in use and 20
//! an inode, 256 summaries; 40 bytes for each node behind the checkpoint).

mod finding;
mod nodes;
mod segments;
mod tables;
mod trees;

pub use finding::{Finding, Problem};
pub use weir_format::ImageReader;

use finding::Findings;
use tables::Tables;
use weir_format::FormatError;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is wrong, in the order in which it was found; at most the first 1,000.
    pub findings: Vec<Finding>,
    /// How many findings there are in all.
    pub total: u64,
    /// Nodes in use.
    pub nodes: u32,
    /// Inodes among them.
    pub inodes: u32,
    /// What is wrong with the checkpoint pack that was not used. A power cut while the newer one was written leaves that, and so does
    /// damage, so it is no finding.
    pub damaged_pack: Option<FormatError>,
    /// Inodes that the next mount will free. That is no damage.
    pub orphans: u32,
    /// Files that synchronisation calls have made durable behind the checkpoint: the next mount rolls them forward.
    pub to_roll_forward: u32,
    /// Blocks of the main area in use.
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
/// [`FormatError`](crate::FormatError) where the image is not F2FS, or of a kind outside the subset; and those of the
/// reader. Damage is no error but a finding.
pub async fn check<R: ImageReader>(image: &R) -> Result<Report, R::Error> {
    let mut findings = Findings::default();
    let Some(tables) = Tables::read(image, &mut findings).await? else {
        return Ok(findings.report());
    };
    let inodes = nodes::check(image, &tables, &mut findings).await?;
    let blocks = segments::check(image, &tables, &mut findings).await?;
    // Where the tables lie, files lead anywhere: one damage would give a thousand findings.
    if findings.is_empty() {
        trees::check(image, &tables, &mut findings).await?;
    }
    Ok(Report {
        nodes: tables.nodes.len() as u32,
        inodes,
        // A block that cannot be read, of those that are free, ends the chain: what was found is worth more.
        to_roll_forward: tables.count_to_roll_forward(image).await.unwrap_or_default(),
        orphans: tables.pack.orphans.len() as u32,
        blocks,
        ..findings.report()
    })
}
