//! Where a program works: on a mount that keeps what a set of promises says, or on a filesystem on a disk.

use clap::Args;
use weir_program::{DiskFilesystem, DiskGround};

use crate::by_name::by_name;
use crate::error::CliError;
use crate::size::Size;

/// The name of a ground.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroundName {
    /// The recording mount itself.
    Mount,
    /// A filesystem on a disk that lies there.
    Disk(DiskFilesystem),
}

impl GroundName {
    const ALL: [GroundName; 6] = [
        GroundName::Mount,
        GroundName::Disk(DiskFilesystem::Ext4),
        GroundName::Disk(DiskFilesystem::Xfs),
        GroundName::Disk(DiskFilesystem::Btrfs),
        GroundName::Disk(DiskFilesystem::BarrierFs),
        GroundName::Disk(DiskFilesystem::F2fs),
    ];

    fn name(self) -> &'static str {
        match self {
            GroundName::Mount => "mount",
            GroundName::Disk(filesystem) => filesystem.name(),
        }
    }
}

/// Where the program works, as the command line says it.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct GroundArguments {
    /// Where it works: mount, which keeps what --promises says; on the worst disk that the contract allows, the kernel's ext4, xfs
    /// or btrfs, which take the superuser and loop devices; or barrierfs or f2fs of Weir, in a volume there [default: mount]
    #[arg(long, value_name = "NAME", value_parser = by_name(GroundName::ALL, GroundName::name))]
    ground: Option<GroundName>,
    /// With a disk: options of mount, or of weir mount without their dashes, between commas, such as data=writeback,commit=1
    #[arg(long, value_name = "OPTIONS")]
    mount_options: Option<String>,
    /// With a disk: its size [default: 256M; 320M for xfs; 128M for barrierfs and f2fs]
    #[arg(long, value_name = "SIZE")]
    disk_size: Option<Size>,
    /// With a disk: what it writes whole or not at all, 512 or 4096 bytes [default: 512, or 4096 for xfs and btrfs]
    #[arg(long, value_name = "BYTES")]
    sector_bytes: Option<u64>,
}

impl GroundArguments {
    /// What a file says; none where its texts are none.
    pub(super) fn from_file(
        ground: Option<&str>,
        mount_options: Option<String>,
        disk_size: Option<&str>,
        sector_bytes: Option<u64>,
    ) -> Option<GroundArguments> {
        let named = |name: &str| GroundName::ALL.into_iter().find(|ground| ground.name() == name);
        let ground = match ground {
            Some(name) => Some(named(name)?),
            None => None,
        };
        let disk_size = disk_size.map(str::parse).transpose().ok()?;
        Some(GroundArguments { ground, mount_options, disk_size, sector_bytes })
    }

    /// The disk; none if the program works on the recording mount itself. What the command line says counts for more than
    /// `file`.
    pub(super) fn disk(&self, file: &GroundArguments) -> Result<Option<DiskGround>, CliError> {
        let options = self.mount_options.as_deref().or(file.mount_options.as_deref());
        let bytes = self.disk_size.or(file.disk_size).map(|Size(bytes)| bytes);
        let sectors = self.sector_bytes.or(file.sector_bytes);
        let says_nothing =
            self.mount_options.is_none() && self.disk_size.is_none() && self.sector_bytes.is_none();
        match self.ground.or(file.ground) {
            Some(GroundName::Disk(filesystem)) => {
                Ok(Some(DiskGround::new(filesystem, options, bytes, sectors)?))
            }
            Some(GroundName::Mount) | None if says_nothing => Ok(None),
            _ => Err(CliError::Usage(
                "--mount-options, --disk-size and --sector-bytes go with a disk: --ground ext4 and others",
            )),
        }
    }
}
