//! Our filesystem's part: a copy of the same filesystem, on a disk in virtual time, and what is requested of that.

use std::cell::RefCell;
use std::error::Error;
use std::rc::Rc;

use weir_crash::{LoggedStorage, Request};
use weir_fs::{BarrierFs, Checkpoints, MountOptions};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{AdversaryDisk, AdversaryOptions, Capabilities, Image, Lba};
use weir_vfs::{FileCalls as _, FsError, NameCalls as _, SyncCalls as _};

use crate::{BLOCK, Variant, Workload, content, name};

/// What our filesystem requests for the calls, on a copy of the image.
///
/// # Errors
/// Those of the filesystem, and a deadlock.
pub(crate) fn play(
    image: &[u8],
    variant: Variant,
    workload: Workload,
    calls: u64,
) -> Result<Vec<Request>, Box<dyn Error>> {
    let mut copy = Image::zeroed((image.len() / BLOCK) as u64, BLOCK as u32);
    for (block, bytes) in (0..).zip(image.chunks_exact(BLOCK)) {
        if bytes.iter().any(|byte| *byte != 0) {
            copy.write(Lba(block), bytes);
        }
    }
    let runtime = Runtime::simulated(Simulation::default());
    let played = play_calls(runtime.handle(), &copy, variant, workload, calls);
    Ok(runtime.block_on(played)??)
}

async fn play_calls(
    clock: Handle,
    image: &Image,
    variant: Variant,
    workload: Workload,
    calls: u64,
) -> Result<Vec<Request>, FsError> {
    let capabilities = Capabilities::legacy(32, 256, BLOCK as u32);
    let options = AdversaryOptions { capabilities, latency_ns_max: 100_000, ..AdversaryOptions::default() };
    let logged = LoggedStorage::before(AdversaryDisk::from_image(&clock, options, image));
    let options = MountOptions {
        engine: Some(variant.engine),
        mode: variant.mode,
        checkpoints: Checkpoints::LINUX,
        commits_running: true,
        ..MountOptions::default()
    };
    let filesystem = BarrierFs::mount(&clock, Rc::clone(&logged) as Rc<_>, options).await?;
    let mut files = Vec::new();
    for number in 0..workload.prepared().0 {
        files.push(filesystem.lookup(weir_ext4::ROOT_INODE, name(number).as_bytes()).await?);
    }
    let requests = Rc::new(RefCell::new(Vec::new()));
    let sink = Rc::clone(&requests);
    logged.send_to(move |request| sink.borrow_mut().push(request));
    for call in 0..calls {
        let (file, offset) = workload.place(call);
        filesystem.write(files[file as usize], offset, &content(call)).await?;
        filesystem.fsync(files[file as usize]).await?;
    }
    logged.stop();
    filesystem.unmount().await?;
    Ok(requests.take())
}
