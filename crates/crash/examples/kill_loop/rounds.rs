//! Kill a process that writes through a volume on a real disk, open what it left, and compare.
//!
//! A request's blocks follow from its stamp, so that whoever looks at the volume knows what every process
//! before it asked for. The writer says on standard output which stamp a flush has made durable.

use std::collections::VecDeque;
use std::error::Error;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::rc::Rc;
use std::time::Duration;

use weir_crash::{Stamp, push_page, stamp_of};
use weir_runtime::{Handle, Runtime, Wall};
use weir_storage::{
    BLOCK_BYTES, Command, Extent, FileDisk, FileDiskError, FileDiskOptions, Lba, Part, Rejected, Storage,
    Ticket, Write, submit_when_free,
};
use weir_volume::{Format, Volume, VolumeOptions};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// 16 MiB, so that cleaning and checkpoints never pause.
const DISK_BYTES: u64 = 16 << 20;
const FORMAT: Format = Format { logical_blocks: 0, segment_blocks: 32, overwrite: false, slots: 0 };
/// Blocks that the requests go to, about two thirds of what may be live.
const BLOCKS: u64 = 2_400;
/// Requests between two flushes.
const FLUSH_EVERY: u64 = 20;
/// Flushes in flight.
const FLUSHES_MAX: usize = 4;
/// A process lives at most this long.
const LIFE_MS_MAX: u64 = 250;
/// Stamps that a process may use.
const STAMPS_PER_ROUND: Stamp = 1 << 32;
/// What a line of the writer begins with.
const DURABLE: &str = "durable";
/// How often to try again while the kernel still finishes what a killed process had begun.
const TRIES: u32 = 200;

/// What the loop has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Processes killed.
    pub rounds: u64,
    /// Requests found after all kills together.
    pub requests: u64,
    /// Those that a flush had acknowledged before the kill.
    pub acknowledged: u64,
    /// Processes that were killed before they wrote anything that is left.
    pub without_trace: u64,
}

fn options() -> VolumeOptions {
    VolumeOptions { checkpoint_segments: 16, ..VolumeOptions::default() }
}

/// The blocks of a request, first and count.
fn blocks(stamp: Stamp) -> (u64, u64) {
    let count = 1 + stamp % 3;
    (stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (BLOCKS - count + 1), count)
}

/// Writes until it is killed.
///
/// # Errors
/// Whatever the disk or the volume answers.
pub fn write_on(path: &Path, round: u64) -> Outcome<()> {
    let runtime = Runtime::wall(Wall::default())?;
    let handle = runtime.handle();
    runtime.block_on(async {
        let disk = open_disk(&handle, path).await?;
        let volume = Volume::open(&handle, disk, options()).await?;
        let mut flushes: VecDeque<(Stamp, Ticket)> = VecDeque::new();
        for stamp in round * STAMPS_PER_ROUND + 1.. {
            request(&volume, stamp).await?;
            if stamp % FLUSH_EVERY == 0 {
                flushes.push_back((stamp, submit_when_free(&volume, Command::Flush).await?));
            }
            if flushes.len() > FLUSHES_MAX
                && let Some((stamp, ticket)) = flushes.pop_front()
            {
                ticket.transferred().await?;
                let mut output = std::io::stdout().lock();
                writeln!(output, "{DURABLE} {stamp}")?;
                output.flush()?;
            }
        }
        Ok(())
    })?
}

async fn request(volume: &Volume, stamp: Stamp) -> Result<(), Rejected> {
    let (first, count) = blocks(stamp);
    let mut pages = Vec::new();
    (first..first + count).for_each(|block| push_page(&mut pages, block, stamp));
    submit_when_free(volume, Command::Write(Write::new(&[Part::bytes(Lba(first), &pages)]))).await.map(drop)
}

async fn open_disk(handle: &Handle, path: &Path) -> Result<Rc<FileDisk>, FileDiskError> {
    for _ in 0..TRIES {
        match FileDisk::open(handle, path, FileDiskOptions::default()) {
            Err(FileDiskError::Locked { .. }) => handle.sleep(Duration::from_millis(10)).await,
            answer => return answer,
        }
    }
    FileDisk::open(handle, path, FileDiskOptions::default())
}

/// Kills `rounds` processes, one after the other; `writer` makes the command that runs [`write_on`] with
/// this path and round.
///
/// # Errors
/// What is not as it has to be, or what could not be tried.
pub fn kill_rounds(
    directory: &Path,
    rounds: u64,
    seed: u64,
    writer: impl Fn(&Path, u64) -> Process,
) -> Outcome<Totals> {
    let runtime = Runtime::wall(Wall { seed, ..Wall::default() })?;
    let handle = runtime.handle();
    let path: PathBuf = directory.join("volume");
    runtime.block_on(async {
        let disk = FileDisk::create(&handle, &path, DISK_BYTES, FileDiskOptions::default())?;
        Volume::create(&handle, &*disk, FORMAT).await?;
        drop(disk);
        let mut random = handle.random("kill");
        let mut state = vec![0; BLOCKS as usize];
        let mut totals = Totals::default();
        for round in 1..=rounds {
            let life = Duration::from_millis(random.below(LIFE_MS_MAX + 1));
            let child = writer(&path, round).stdout(Stdio::piped()).spawn()?;
            let acknowledged = kill_after(&handle, child, life).await?;
            let disk = open_disk(&handle, &path).await?;
            let volume = Volume::open(&handle, disk, options()).await?;
            let found = read_all(&volume).await?;
            judge(&mut state, &found, round, acknowledged, &mut totals)?;
            if random.below(2) == 0 {
                volume.close().await?;
            }
        }
        Ok(totals)
    })?
}

/// Kills the process and says which stamp it saw durable last; 0 for none.
async fn kill_after(handle: &Handle, mut child: Child, life: Duration) -> Outcome<Stamp> {
    let mut output = child.stdout.take().ok_or("the writer has no standard output")?;
    // The pipe is emptied while the process lives, or it would wait for room in it.
    let reader = handle.blocking(move || {
        let mut bytes = Vec::new();
        output.read_to_end(&mut bytes).map(|_| bytes)
    });
    let reader = handle.spawn(reader);
    handle.sleep(life).await;
    if let Some(status) = child.try_wait()? {
        return Err(format!("the writer ended by itself: {status}").into());
    }
    child.kill()?;
    child.wait()?;
    let text = String::from_utf8_lossy(&reader.await???).into_owned();
    // The last line may be cut off.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let stamps = whole.lines().filter_map(|line| line.strip_prefix(DURABLE)?.trim().parse().ok());
    Ok(stamps.max().unwrap_or(0))
}

async fn read_all(volume: &Volume) -> Outcome<Vec<Stamp>> {
    let mut stamps = Vec::new();
    let step = u64::from(volume.capabilities().max_transfer_blocks);
    while (stamps.len() as u64) < BLOCKS {
        let first = stamps.len() as u64;
        let extent = Extent::new(Lba(first), step.min(BLOCKS - first) as u32);
        let bytes = weir_storage::read(volume, extent).await?;
        for (page, block) in bytes.chunks_exact(BLOCK_BYTES).zip(first..) {
            stamps.push(stamp_of(page, block).ok_or(format!("block {block} holds nobody's page"))?);
        }
    }
    Ok(stamps)
}

/// What is left has to be what the process found, plus its requests up to some last one, and that no
/// earlier than the last acknowledged one.
fn judge(
    state: &mut [Stamp],
    found: &[Stamp],
    round: u64,
    acknowledged: Stamp,
    totals: &mut Totals,
) -> Outcome<()> {
    let base = round * STAMPS_PER_ROUND;
    let last = found.iter().copied().max().unwrap_or(0).max(base);
    if last < acknowledged {
        return Err(format!(
            "round {round}: request {acknowledged} was durable, the last one left is {last}"
        )
        .into());
    }
    for stamp in base + 1..=last {
        let (first, count) = blocks(stamp);
        (first..first + count).for_each(|block| state[block as usize] = stamp);
    }
    if let Some(block) = (0..found.len()).find(|block| state[*block] != found[*block]) {
        let (expected, found) = (state[block], found[block]);
        return Err(format!(
            "round {round}: {last} is left, but block {block} holds {found}, not {expected}"
        )
        .into());
    }
    totals.rounds += 1;
    totals.requests += last - base;
    totals.acknowledged += acknowledged.saturating_sub(base);
    totals.without_trace += u64::from(last == base);
    Ok(())
}
