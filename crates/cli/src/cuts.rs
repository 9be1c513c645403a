//! What power cuts would leave of a disk in memory, as images, while it goes on.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use signal_hook::consts::SIGUSR1;
use signal_hook::iterator::Signals;
use tempfile::NamedTempFile;
use tracing::Level;
use weir_flash::{FlashDevice, FlashOptions};
use weir_runtime::{Handle, Random};
use weir_stack::{Disk, DiskSpec};
use weir_storage::{BLOCK_BYTES, Lba};

use crate::error::CliError;
use crate::log_line::LogLine;

/// How often it is looked whether the firmware of an emulated device has recovered.
const LOOK: Duration = Duration::from_millis(1);

/// Writes an image for each SIGUSR1.
pub(crate) struct Cuts {
    handle: Handle,
    disk: Disk,
    /// What the disk was made of.
    spec: DiskSpec,
    directory: PathBuf,
    signals: Signals,
    random: Random,
}

impl Cuts {
    /// Images of what cuts leave of a disk in memory. From now on the signal no longer ends the program.
    pub(crate) fn new(
        handle: &Handle,
        (disk, spec): (Disk, DiskSpec),
        directory: &Path,
    ) -> Result<Cuts, CliError> {
        let failed = |source| CliError::File { doing: "write images to", path: directory.to_owned(), source };
        std::fs::read_dir(directory).map_err(failed)?;
        let signals = Signals::new([SIGUSR1]).map_err(failed)?;
        // A run with a kernel in it cannot be replayed, so each draws its own.
        let random = handle.random(&format!("cuts {}", handle.entropy()));
        Ok(Cuts { handle: handle.clone(), disk, spec, directory: directory.to_owned(), signals, random })
    }

    /// Writes `cut-1.img`, `cut-2.img`, and so on. Each has its name when it is whole.
    pub(crate) async fn serve(mut self) {
        for number in 1_u64.. {
            let mut signals = self.signals;
            let waited = self.handle.blocking(move || {
                signals.forever().next();
                signals
            });
            let Ok(signals) = waited.await else { return };
            self.signals = signals;
            let path = self.directory.join(format!("cut-{number}.img"));
            if let Err(error) = self.cut(&path).await {
                let message = format!("cannot write {}: {error}", path.display());
                LogLine::new(Level::WARN, "image_not_written", message).with_path(&path).print();
            }
        }
    }

    async fn cut(&mut self, path: &Path) -> io::Result<()> {
        match (&self.disk, &self.spec) {
            // Any of the states that the contract allows.
            (Disk::Adversary(disk), _) => {
                let left = disk.crash_states().sample(&mut self.random);
                self.write(path, left.blocks(), |block| left.read(block))
            }
            // What is on flash then, as its firmware recovers it.
            (Disk::Emulated(device), DiskSpec::Emulated { profile, .. }) => {
                let left = device.after_cut(&mut self.random);
                let recovered = FlashDevice::restarted(&self.handle, profile, FlashOptions::default(), left);
                while !recovered.is_serving() {
                    self.handle.sleep(LOOK).await;
                }
                let read = |block| {
                    let mut bytes = vec![0; BLOCK_BYTES];
                    recovered.peek(block, &mut bytes);
                    bytes
                };
                self.write(path, profile.blocks, read)
            }
            _ => Ok(()),
        }
    }

    fn write(&self, path: &Path, blocks: u64, read: impl Fn(Lba) -> Vec<u8>) -> io::Result<()> {
        let image = NamedTempFile::new_in(&self.directory)?;
        image.as_file().set_len(blocks * BLOCK_BYTES as u64)?;
        for block in 0..blocks {
            let bytes = read(Lba(block));
            if bytes.iter().any(|byte| *byte != 0) {
                image.as_file().write_all_at(&bytes, block * BLOCK_BYTES as u64)?;
            }
        }
        image.persist(path)?;
        Ok(())
    }
}
