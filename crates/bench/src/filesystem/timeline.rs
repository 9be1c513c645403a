//! Appending writes through BarrierFS on an emulated device, in virtual time, with a listener told of D, JD and JC.

use std::cell::Cell;
use std::rc::Rc;

use weir_ext4::journal::{BlockType, JournalSuperblock};
use weir_ext4::{Mkfs, ROOT_INODE};
use weir_flash::{FlashDevice, FlashOptions, Keep, Probe, Profile, Subject};
use weir_format::FileType;
use weir_fs::{BarrierFs, MountOptions};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{BLOCK_BYTES, Command, Interposed, Rejected, Storage, Ticket, Write};
use weir_vfs::NewNode;

use crate::error::BenchError;

/// What the data of the file consists of, so that it is told from metadata.
const DATA: [u8; 8] = *b"the data";
/// Blocks of the filesystem at least: 256 MiB.
const BLOCKS_MIN: u64 = 1 << 16;

/// What the filesystem writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalWrite {
    /// The file's data.
    D,
    /// Descriptors and copies of metadata.
    JD,
    /// A commit block.
    JC,
    /// Metadata on its way home, and the log's tail.
    Home,
}

/// The call after each append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileCall {
    /// Durable.
    Fsync,
    /// Ordered.
    Fbarrier,
}

/// Is told of writes.
pub trait JournalProbe {
    /// A write was dispatched and transferred, both in nanoseconds of virtual time. Its subject has no epoch, which the
    /// device counts.
    fn written(&self, what: JournalWrite, subject: Subject, from_ns: u64, to_ns: u64);
}

/// Sits between filesystem and device, and looks at what goes by.
struct Tap {
    handle: Handle,
    device: Rc<FlashDevice>,
    journal: Rc<dyn JournalProbe>,
    /// The journal's first block, and how many it has.
    area: Cell<(u64, u64)>,
    /// There is a listener.
    open: Cell<bool>,
}

impl Tap {
    fn kind(&self, write: &Write<'_>) -> JournalWrite {
        let Some(part) = write.parts.first() else { return JournalWrite::Home };
        let bytes = part.data.bytes();
        let block = part.start.0;
        if bytes.starts_with(&DATA) {
            return JournalWrite::D;
        }
        if let Ok(superblock) = JournalSuperblock::decode(bytes, u32::MAX) {
            self.area.set((block, u64::from(superblock.blocks())));
            return JournalWrite::Home;
        }
        let (start, length) = self.area.get();
        if !(start..start + length).contains(&block) {
            return JournalWrite::Home;
        }
        match bytes.first_chunk().and_then(BlockType::from_block) {
            Some((BlockType::Commit, _)) => JournalWrite::JC,
            _ => JournalWrite::JD,
        }
    }
}

fn subject(write: &Write<'_>) -> Subject {
    let blocks = write.parts.iter().map(|part| part.data.bytes().len() / BLOCK_BYTES).sum::<usize>();
    Subject {
        block: write.parts.first().map(|part| part.start.0),
        blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
        epoch: None,
        barrier: write.flags.barrier,
    }
}

impl Interposed for Tap {
    fn below(&self) -> &dyn Storage {
        &*self.device
    }

    fn take(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        let kind = match &command {
            Command::Write(write) => Some((self.kind(write), subject(write))),
            _ => None,
        };
        let ticket = self.device.submit(command)?;
        if let Some((kind, subject)) = kind.filter(|_| self.open.get()) {
            let (handle, journal, ticket) = (self.handle.clone(), Rc::clone(&self.journal), ticket.clone());
            let from = handle.now().as_nanos();
            drop(self.handle.spawn(async move {
                // A caller that submitted the write hears of its error.
                let _ = ticket.transferred().await;
                journal.written(kind, subject, from, handle.now().as_nanos());
            }));
        }
        Ok(ticket)
    }
}

/// Appends `writes` times 4 KiB to a file, each followed by `call`, on a new filesystem on a device, with `probe`
/// told of everything in the device that takes time, and `journal` of what the filesystem writes.
///
/// # Errors
/// What the filesystem answered.
pub fn trace_files(
    profile: &Profile,
    call: FileCall,
    writes: u64,
    seed: u64,
    probe: Rc<dyn Probe>,
    journal: Rc<dyn JournalProbe>,
) -> Result<(), BenchError> {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let handle = runtime.handle();
    let options =
        FlashOptions { keep: Keep::Bytes, probe: Some(probe), never_cut: true, ..FlashOptions::default() };
    let device = FlashDevice::new(&handle, profile, options);
    let (area, open) = (Cell::default(), Cell::default());
    let tap = Rc::new(Tap { handle: handle.clone(), device, journal, area, open });
    runtime.block_on(appended(&handle, &tap, call, writes))?
}

async fn appended(handle: &Handle, tap: &Rc<Tap>, call: FileCall, writes: u64) -> Result<(), BenchError> {
    let blocks = BLOCKS_MIN.max(2 * writes).min(tap.blocks());
    BarrierFs::make(&**tap, &Mkfs::new(blocks, [1; 16], [2; 16], 0)).await?;
    let device = Rc::clone(tap) as Rc<dyn Storage>;
    let fs = BarrierFs::mount(handle, device, MountOptions::default()).await?;
    let file = fs.create(ROOT_INODE, b"file", &NewNode::new(FileType::Regular, 0o644)).await?;
    fs.sync().await?;
    tap.open.set(true);
    let page: Vec<u8> = DATA.into_iter().cycle().take(BLOCK_BYTES).collect();
    for nth in 0..writes {
        fs.write(file, nth * BLOCK_BYTES as u64, &page).await?;
        match call {
            FileCall::Fsync => fs.fsync(file).await?,
            FileCall::Fbarrier => fs.fbarrier(file).await?,
        }
    }
    Ok(fs.unmount().await?)
}
