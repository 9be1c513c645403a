//! *Disk ground*: a filesystem, of the kernel or of Weir, on a disk whose blocks are recorded, how it is made and how it is mounted.
//!
//! The disk is the file [`DISK_NAME`](weir_fuse::DISK_NAME) of the recording mount, with a loop device on it. The kernel keeps
//! nothing of its writes back, and sends a flush as `fsync`; so the record of that file is that of the disk, and the promises of
//! POSIX on one file are those of the worst legal disk: what was flushed is there, and of the rest any sector.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use weir_crash::{KernelMount, KernelMountError, run_helper, system};

use crate::disk_mount::{DiskMount, WeirMount};
use crate::disk_options::takes_option;
use crate::tree::BLOCK_BYTES;
use crate::unit::SECTOR_BYTES;

/// The program that makes and mounts filesystems of Weir.
const WEIR: &str = "weir";
/// The largest disk: no program of a test needs more.
const BYTES_MAX: u64 = 1 << 40;
/// A disk has whole pieces of so many bytes.
const PIECE_BYTES: u64 = 1 << 20;

/// A filesystem on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskFilesystem {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// BarrierFS on a volume of Weir.
    BarrierFs,
    /// F2FS on a volume of Weir.
    F2fs,
}

impl DiskFilesystem {
    /// All of them.
    pub const ALL: [DiskFilesystem; 5] = [
        DiskFilesystem::Ext4,
        DiskFilesystem::Xfs,
        DiskFilesystem::Btrfs,
        DiskFilesystem::BarrierFs,
        DiskFilesystem::F2fs,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            DiskFilesystem::Ext4 => "ext4",
            DiskFilesystem::Xfs => "xfs",
            DiskFilesystem::Btrfs => "btrfs",
            DiskFilesystem::BarrierFs => "barrierfs",
            DiskFilesystem::F2fs => "f2fs",
        }
    }

    /// The filesystem of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<DiskFilesystem> {
        DiskFilesystem::ALL.into_iter().find(|filesystem| filesystem.name() == name)
    }

    /// The program that makes one, and its options: it writes no more than it has to, as a new disk reads as zeros.
    const fn maker(self) -> (&'static str, &'static [&'static str]) {
        match self {
            DiskFilesystem::Ext4 => (
                "mkfs.ext4",
                &[
                    "-q",
                    "-F",
                    "-b",
                    "4096",
                    "-J",
                    "size=4",
                    "-E",
                    "nodiscard,lazy_itable_init=0,lazy_journal_init=0,assume_storage_prezeroed=1",
                ],
            ),
            DiskFilesystem::Xfs => ("mkfs.xfs", &["-q", "-f", "-K"]),
            DiskFilesystem::Btrfs => ("mkfs.btrfs", &["-q", "-f", "-K"]),
            DiskFilesystem::BarrierFs => (WEIR, &["mkfs", "--volume", "--force"]),
            DiskFilesystem::F2fs => (WEIR, &["mkfs", "--volume", "--force", "--type", "f2fs"]),
        }
    }

    /// The size of its disk, if nothing is said, and the smallest that its maker takes.
    const fn sizes(self) -> (u64, u64) {
        match self {
            DiskFilesystem::Ext4 => (256 << 20, 16 << 20),
            DiskFilesystem::Xfs => (320 << 20, 300 << 20),
            DiskFilesystem::Btrfs => (256 << 20, 128 << 20),
            DiskFilesystem::BarrierFs | DiskFilesystem::F2fs => (128 << 20, 64 << 20),
        }
    }

    /// The sectors of its disk, if nothing is said. Btrfs and XFS take it that a block of their own of 4 KiB is written whole: they
    /// mount no disk on which one is torn, whatever a program did.
    const fn sector_bytes(self) -> u64 {
        match self {
            DiskFilesystem::Btrfs | DiskFilesystem::Xfs => BLOCK_BYTES as u64,
            _ => SECTOR_BYTES as u64,
        }
    }

    /// What it is always mounted with: nothing on the disk gives rights, and several copies of one may be mounted.
    const fn own_options(self) -> &'static str {
        match self {
            DiskFilesystem::Xfs => "nosuid,nodev,nouuid",
            // A disk may say that an error stops the machine.
            DiskFilesystem::Ext4 => "nosuid,nodev,errors=continue",
            DiskFilesystem::Btrfs => "nosuid,nodev",
            // FUSE has both by itself.
            DiskFilesystem::BarrierFs | DiskFilesystem::F2fs => "",
        }
    }

    /// Whether several copies of one disk are mounted at a time: Btrfs knows its disks by numbers that copies have in common.
    pub(crate) const fn mounts_copies(self) -> bool {
        !matches!(self, DiskFilesystem::Btrfs)
    }

    /// Whether the kernel tells where on the disk a file lies: Btrfs tells places of its own.
    pub(crate) const fn tells_places(self) -> bool {
        matches!(self, DiskFilesystem::Ext4 | DiskFilesystem::Xfs)
    }

    /// Whether it is Weir's, and not the kernel's.
    const fn is_of_weir(self) -> bool {
        matches!(self, DiskFilesystem::BarrierFs | DiskFilesystem::F2fs)
    }
}

/// Why there is no such disk, or it is not mounted.
#[derive(Debug, Error)]
pub enum DiskGroundError {
    /// Options that are none, or that say more than how a filesystem works.
    #[error(
        "the mount option {option:?} cannot be used in a test on {name}: options are between commas, such as data=writeback,noatime, \
         and none may say what is mounted, or give rights"
    )]
    Options {
        /// The first of them.
        option: String,
        /// The filesystem.
        name: &'static str,
    },
    /// It is too small, or too large.
    #[error("a disk with {name} has {}M to 1T, in whole MiB: choose another --disk-size", .least >> 20)]
    Size {
        /// The filesystem.
        name: &'static str,
        /// The smallest size, in bytes.
        least: u64,
    },
    /// It has other sectors than disks have.
    #[error("a disk has sectors of 512 or 4096 bytes")]
    Sectors,
    /// The program that makes the filesystem failed.
    #[error("{program} failed: {said}: is it installed?")]
    Maker {
        /// The program.
        program: &'static str,
        /// What it said.
        said: String,
    },
    /// The kernel did not mount it.
    #[error(
        "cannot mount it: {0}: the kernel's filesystems take the superuser and loop devices; a container needs --device \
         /dev/loop-control and some --device /dev/loopN, or --privileged"
    )]
    Mount(#[from] KernelMountError),
    /// The disk fails.
    #[error("cannot use the disk: {0}")]
    Io(#[from] io::Error),
}

/// See the head of this file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskGround {
    /// The filesystem on it.
    pub filesystem: DiskFilesystem,
    /// Options of `mount`, between commas.
    pub options: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// What it writes whole or not at all: 512 bytes, or the 4,096 of a block.
    pub sector_bytes: u64,
}

impl DiskGround {
    /// A disk with a filesystem, with mount options, of a size and with sectors, if they are said.
    ///
    /// # Errors
    /// [`DiskGroundError::Options`], [`DiskGroundError::Size`] and [`DiskGroundError::Sectors`].
    pub fn new(
        filesystem: DiskFilesystem,
        options: Option<&str>,
        bytes: Option<u64>,
        sector_bytes: Option<u64>,
    ) -> Result<DiskGround, DiskGroundError> {
        let (usual, _) = filesystem.sizes();
        let ground = DiskGround {
            filesystem,
            options: options.unwrap_or_default().to_owned(),
            bytes: bytes.unwrap_or(usual),
            sector_bytes: sector_bytes.unwrap_or(filesystem.sector_bytes()),
        };
        ground.check().map(|()| ground)
    }

    /// That there can be such a disk.
    ///
    /// # Errors
    /// As of [`DiskGround::new`].
    pub fn check(&self) -> Result<(), DiskGroundError> {
        let mut options = self.options.split(',').filter(|_| !self.options.is_empty());
        if let Some(option) = options.find(|option| !is_option(self.filesystem, option)) {
            return Err(DiskGroundError::Options { option: option.to_owned(), name: self.filesystem.name() });
        }
        if ![SECTOR_BYTES as u64, BLOCK_BYTES as u64].contains(&self.sector_bytes) {
            return Err(DiskGroundError::Sectors);
        }
        let (_, least) = self.filesystem.sizes();
        match (least..=BYTES_MAX).contains(&self.bytes) && self.bytes.is_multiple_of(PIECE_BYTES) {
            true => Ok(()),
            false => Err(DiskGroundError::Size { name: self.filesystem.name(), least }),
        }
    }

    /// Its name and its mount options, for a person.
    #[must_use]
    pub fn describe(&self) -> String {
        let name = self.filesystem.name();
        match self.options.is_empty() {
            true => name.to_owned(),
            false => format!("{name} ({})", self.options),
        }
    }

    /// Makes the filesystem in a new file; one of Weir by the program `weir`.
    pub(crate) fn make(&self, disk: &Path, weir: &Path) -> Result<(), DiskGroundError> {
        File::options().write(true).create_new(true).mode(0o600).open(disk)?.set_len(self.bytes)?;
        let (program, options) = self.filesystem.maker();
        let failed = |said| DiskGroundError::Maker { program, said };
        let mut maker = if self.filesystem.is_of_weir() { Command::new(weir) } else { system(program) };
        let made = run_helper(maker.args(options).arg(disk));
        let made = made.map_err(|error| failed(error.to_string()))?;
        match made.status.success() {
            true => Ok(()),
            // Its usage comes behind the reason.
            false => Err(failed(match made.said.lines().next() {
                Some(said) => said.to_owned(),
                None => made.status.to_string(),
            })),
        }
    }

    /// Mounts it, so that it recovers; one of Weir by the program `weir`.
    pub(crate) fn mount(&self, disk: &Path, at: &Path, weir: &Path) -> Result<DiskMount, KernelMountError> {
        if self.filesystem.is_of_weir() {
            return Ok(DiskMount::Weir(WeirMount::new(weir, disk, at, &self.options)?));
        }
        let own = self.filesystem.own_options();
        let comma = if self.options.is_empty() { "" } else { "," };
        let options = format!("{own}{comma}{}", self.options);
        KernelMount::new(disk, at, self.filesystem.name(), &options).map(DiskMount::Kernel)
    }
}

/// Whether this is one mount option that a filesystem may have.
fn is_option(filesystem: DiskFilesystem, option: &str) -> bool {
    let (name, value) = option.split_once('=').unwrap_or((option, "value"));
    let is_value = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
    takes_option(filesystem, name) && !value.is_empty() && value.bytes().all(is_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_say_how_a_filesystem_works_and_not_what_is_mounted() {
        let takes = |options: &str| DiskGround::new(DiskFilesystem::Ext4, Some(options), None, None).is_ok();
        for options in ["", "data=writeback", "noatime,commit=1,nobarrier"] {
            assert!(takes(options), "{options}");
        }
        for options in [
            "loop=/dev/sda",
            "a b",
            ",",
            "noatime,",
            "suid",
            "x-systemd",
            "journal_path=a",
            "=1",
            "errors=panic",
            "noload",
            "data=a/b",
        ] {
            assert!(!takes(options), "{options}");
        }
        for (filesystem, options, expected) in [
            (DiskFilesystem::Btrfs, "compress=zstd:3,commit=5", true),
            (DiskFilesystem::Btrfs, "fatal_errors=panic", false),
            (DiskFilesystem::Btrfs, "device=a", false),
            (DiskFilesystem::Xfs, "wsync,logbsize=32k", true),
            (DiskFilesystem::Xfs, "logdev=a", false),
            (DiskFilesystem::BarrierFs, "engine=jbd2,journal=data", true),
            (DiskFilesystem::BarrierFs, "moment=100ms,sync=order", true),
            (DiskFilesystem::BarrierFs, "foreground", false),
            (DiskFilesystem::F2fs, "log=a", false),
            (DiskFilesystem::F2fs, "data=ordered", false),
        ] {
            let taken = DiskGround::new(filesystem, Some(options), None, None).is_ok();
            assert_eq!(taken, expected, "{options}");
        }
    }

    #[test]
    fn a_disk_has_a_size_that_its_filesystem_takes() {
        let takes = |filesystem, bytes| DiskGround::new(filesystem, None, Some(bytes), None).is_ok();
        assert!(takes(DiskFilesystem::Ext4, 64 << 20) && takes(DiskFilesystem::Xfs, 1 << 30));
        assert!(!takes(DiskFilesystem::Xfs, 64 << 20) && !takes(DiskFilesystem::Ext4, (64 << 20) + 512));
        assert!(DiskFilesystem::ALL.iter().all(|each| DiskGround::new(*each, None, None, None).is_ok()));
    }
}
