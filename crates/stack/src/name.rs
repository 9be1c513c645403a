//! The text form of a stack's description.

use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use std::str::FromStr;

use weir_flash::{FlashOptions, Keep, Profile};
use weir_storage::{AdversaryOptions, BLOCK_BYTES, Capabilities, FileDiskOptions, Ordering};
use weir_volume::Format;

use crate::error::StackError;
use crate::spec::{DiskSpec, StackSpec, VolumeSpec};

/// What stands before the disk of a volume.
const VOLUME: &str = "volume+";

/// Commands of the worst disk, and blocks in one of them. It remembers some 4,000 writes that are not durable, so this
/// is also what bounds its memory: to 256 MiB beyond its content.
const WORST_QUEUE: u32 = 32;
const WORST_TRANSFER_BLOCKS: u32 = 16;
/// Blocks of the worst disk, if nothing else is said: 256 MiB.
const WORST_BLOCKS: u64 = 1 << 16;

/// A stack by name: `[volume+]DISK`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackName {
    /// Whether there is a volume on the disk.
    pub volume: bool,
    /// The disk.
    pub base: Base,
}

/// A disk by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// A file or block device: a path with a slash in it.
    File(PathBuf),
    /// The worst disk of this order: `adversary` with barriers, `legacy` without any, or `prefix`.
    Worst(Ordering),
    /// An emulated device, by the name of its profile or a file with one, which ends in .toml.
    Device(String),
}

impl Base {
    const WORST: [(Ordering, &str); 3] =
        [(Ordering::Barrier, "adversary"), (Ordering::Legacy, "legacy"), (Ordering::Prefix, "prefix")];
}

impl FromStr for StackName {
    type Err = StackError;

    fn from_str(text: &str) -> Result<StackName, StackError> {
        let (volume, disk) = match text.strip_prefix(VOLUME) {
            Some(disk) => (true, disk),
            None => (false, text),
        };
        if disk.is_empty() || disk.starts_with(VOLUME) {
            return Err(StackError::Text { text: text.to_owned() });
        }
        let worst = Base::WORST.into_iter().find(|(_, name)| *name == disk);
        let base = match worst {
            Some((ordering, _)) => Base::Worst(ordering),
            None if disk.ends_with(".toml") || !disk.contains('/') => Base::Device(disk.to_owned()),
            None => Base::File(PathBuf::from(disk)),
        };
        Ok(StackName { volume, base })
    }
}

impl fmt::Display for StackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.volume { VOLUME } else { "" })?;
        match &self.base {
            Base::File(path) => path.display().fmt(f),
            Base::Worst(ordering) => {
                let named = Base::WORST.into_iter().find(|(known, _)| known == ordering);
                f.write_str(named.map_or("", |(_, name)| name))
            }
            Base::Device(name) => f.write_str(name),
        }
    }
}

impl StackName {
    /// What the name describes: in memory, a disk of so many blocks, or as many as it has by itself. `seed` is what the worst disk
    /// draws by. A device remembers what a power cut needs if its power `may_be_cut`.
    ///
    /// # Errors
    /// [`StackError::Profile`] if no device has this name, or its profile is wrong.
    pub fn describe(
        &self,
        blocks: Option<u64>,
        seed: &str,
        may_be_cut: bool,
    ) -> Result<StackSpec, StackError> {
        let disk = match &self.base {
            Base::File(path) => DiskSpec::File { path: path.clone(), options: FileDiskOptions::default() },
            Base::Worst(ordering) => {
                let legacy = Capabilities::legacy(WORST_QUEUE, WORST_TRANSFER_BLOCKS, BLOCK_BYTES as u32);
                DiskSpec::Adversary(AdversaryOptions {
                    blocks: blocks.unwrap_or(WORST_BLOCKS),
                    // It tears no block: no filesystem with blocks of 4 KiB stands that without checksums everywhere.
                    capabilities: Capabilities { ordering: *ordering, ..legacy },
                    seed_label: seed.to_owned(),
                    ..AdversaryOptions::default()
                })
            }
            Base::Device(name) => {
                let profile = Profile::load(name)?.0;
                let blocks = blocks.map_or(profile.blocks, |blocks| blocks.min(profile.blocks));
                let options =
                    FlashOptions { keep: Keep::Bytes, never_cut: !may_be_cut, ..FlashOptions::default() };
                DiskSpec::Emulated { profile: Rc::new(profile.with_capacity(blocks)), options }
            }
        };
        let volume = self.volume.then(|| VolumeSpec { format: format_for(&disk), ..VolumeSpec::default() });
        Ok(StackSpec { disk, volume, claims: None })
    }
}

/// The format of a new volume: a disk in memory takes a segment in one command.
fn format_for(disk: &DiskSpec) -> Format {
    let most = match disk {
        DiskSpec::File { .. } => u32::MAX,
        DiskSpec::Emulated { profile, .. } => profile.host.max_transfer_blocks,
        DiskSpec::Adversary(options) => options.capabilities.max_transfer_blocks,
    };
    let format = Format::default();
    let fits = 1 << most.max(1).ilog2();
    Format { segment_blocks: format.segment_blocks.min(fits), ..format }
}

#[cfg(test)]
mod tests {
    use weir_runtime::{Runtime, Simulation};

    use super::*;
    use crate::stack::Stack;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for text in ["adversary", "volume+legacy", "prefix", "nvme", "./my.toml", "volume+/dev/vdb"] {
            assert_eq!(text.parse::<StackName>().expect(text).to_string(), text);
        }
        for text in ["", "volume+", "volume+volume+legacy"] {
            assert!(matches!(text.parse::<StackName>(), Err(StackError::Text { .. })), "{text}");
        }
    }

    #[test]
    fn what_a_name_describes_can_be_made() {
        for (text, orders) in [
            ("legacy", false),
            ("volume+legacy", true),
            ("volume+nvme", true),
            ("volume+ufs20", true),
            ("volume+emmc45", true),
            ("adversary", true),
            ("nvme", true),
        ] {
            let runtime = Runtime::simulated(Simulation::default());
            let name: StackName = text.parse().expect(text);
            let spec = name.describe(Some(1 << 14), "seed", false).expect(text);
            let handle = runtime.handle();
            let stack = runtime.block_on(Stack::make(&handle, &spec)).expect("it runs").expect(text);
            assert_eq!(stack.storage().capabilities().barriers(), orders, "{text}");
        }
        let unknown = "no-such-device".parse::<StackName>().expect("a name").describe(None, "", false);
        assert!(matches!(unknown, Err(StackError::Profile(_))));
    }
}
