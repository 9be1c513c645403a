//! The *claim*: the block that names the owner of the volume, and the *challenge*, a question to that owner (V8).
//!
//! Locks keep two processes of one host from one storage. They do not see another host, a copy, or a second path below
//! another filesystem. There the two blocks decide. Only the owner writes the claim, and it reads both every
//! [`POLL`]. A process that wants to open the volume goes through these steps:
//!
//! 1. It writes a challenge of its own, a random number, and reads both blocks.
//! 2. If the claim was released, or its owner is known to have ended, it goes on with step 4.
//! 3. It waits for [`WAIT`]. A live owner answers, by putting the challenge into its claim: then the volume is refused.
//!    If claim and challenge are as they were at the end, the owner has no valid lease any more.
//! 4. It writes its claim, and reads both blocks again. Only if they hold its claim and its challenge, it is the owner.
//!
//! A process that makes a new volume over an old one claims the old one in the same way, and then destroys it.
//!
//! Why this is enough:
//!
//! - *Two openers.* Let one see its claim and its challenge in step 4. The challenge of the other was written later than
//!   that, or it would have been seen, or been overwritten and the other one fails. So the other one finds the claim in step 1.
//! - *An opener and an owner.* The owner writes and acknowledges only with a valid [lease](crate::lease): for [`LEASE`]
//!   from the beginning of a read that found its claim and no open challenge. A challenge is open until its answer is
//!   on the storage; one that is answered when the lease is over means the end. So the last lease of an owner that gives no answer began before the challenge was
//!   written, and is over before the opener has waited: what it has acknowledged was durable before recovery reads, and no
//!   acknowledgement follows.
//!
//! It rests on a storage below whose reads see what was written last, on clocks whose rates differ by less than a quarter, and,
//! for what is not acknowledged, on commands that are carried out within [`WAIT`] - [`LEASE`] of their submission.

use std::mem::offset_of;
use std::rc::Rc;
use std::time::Duration;

use tracing::info;
use weir_runtime::Handle;
use weir_storage::{BLOCK_BYTES, Extent, Lba, Opener, Part, Rejected, Standing, Storage, flush, write};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::VolumeError;
use crate::geometry::Geometry;
use crate::layout::{
    CHALLENGE_MAGIC, CLAIM_BLOCKS, CLAIM_MAGIC, ChallengeBlock, ClaimBlock, checksum_matches, stamp_checksum,
};
use crate::lease::{Keeper, Lease, Leased};
use crate::mutants::VolumeMutant;
use crate::options::VolumeOptions;
use crate::transfer::read_extent;

/// How often an owner reads claim and challenge.
pub(crate) const POLL: Duration = Duration::from_millis(500);
/// How long an owner may write and acknowledge from the beginning of such a read.
pub(crate) const LEASE: Duration = Duration::from_millis(1500);
/// How long an opener waits for the answer of an owner.
pub(crate) const WAIT: Duration = Duration::from_secs(2);
/// How often it looks for the answer meanwhile.
const LOOK: Duration = Duration::from_millis(100);

/// A claim, as it is on the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) claim: u64,
    pub(crate) answered: u64,
    pub(crate) opener: Opener,
}

/// What the claim's block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimState {
    /// The volume is not open, or never was.
    Released,
    /// It is open, or was not closed.
    Held(Claim),
    /// The block is damaged: neither is known.
    Damaged,
}

/// The contents of both blocks, read with one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClaimBlocks {
    pub(crate) found: ClaimState,
    /// The newest challenge; 0 for none.
    pub(crate) challenge: u64,
}

/// Claim and challenge of a volume, with the disk that its owner keeps.
pub(crate) struct Register {
    pub(crate) disk: Rc<dyn Storage>,
    at: Lba,
    volume: u64,
}

impl Register {
    /// Of a volume on `disk`, if it has them.
    pub(crate) fn from_disk(disk: &Rc<dyn Storage>, geometry: &Geometry) -> Option<Register> {
        Some(Register { disk: Rc::clone(disk), at: geometry.claim()?, volume: geometry.volume })
    }

    fn place(&self) -> Place<'_> {
        Place { disk: &*self.disk, at: self.at, volume: self.volume }
    }

    pub(crate) async fn read(&self) -> Result<ClaimBlocks, Rejected> {
        self.place().read().await
    }

    /// Writes a claim, or that there is none.
    pub(crate) async fn write_claim(&self, claim: Option<Claim>) -> Result<(), Rejected> {
        self.place().write_claim(claim).await
    }
}

/// Where claim and challenge of a volume are.
#[derive(Clone, Copy)]
struct Place<'a> {
    disk: &'a dyn Storage,
    at: Lba,
    volume: u64,
}

impl Place<'_> {
    async fn read(self) -> Result<ClaimBlocks, Rejected> {
        read_claim(self.disk, self.at, self.volume).await
    }

    async fn write_claim(self, claim: Option<Claim>) -> Result<(), Rejected> {
        let mut block = vec![0; BLOCK_BYTES];
        let bytes = encode(self.volume, claim);
        block[..bytes.as_bytes().len()].copy_from_slice(bytes.as_bytes());
        stamp_checksum(&mut block, offset_of!(ClaimBlock, checksum));
        self.write(self.at, &block).await
    }

    async fn write_challenge(self, challenge: u64) -> Result<(), Rejected> {
        let bytes = ChallengeBlock {
            magic: CHALLENGE_MAGIC,
            volume: self.volume.into(),
            checksum: 0.into(),
            reserved: 0.into(),
            challenge: challenge.into(),
        };
        let mut block = vec![0; BLOCK_BYTES];
        block[..size_of::<ChallengeBlock>()].copy_from_slice(bytes.as_bytes());
        stamp_checksum(&mut block, offset_of!(ChallengeBlock, checksum));
        self.write(self.at.offset(1), &block).await
    }

    /// Others see a write as soon as it is transferred, unless it goes through a page cache.
    async fn write(self, at: Lba, block: &[u8]) -> Result<(), Rejected> {
        write(self.disk, Part::bytes(at, block)).await?;
        if self.disk.capabilities().fua { Ok(()) } else { flush(self.disk).await }
    }
}

fn encode(volume: u64, claim: Option<Claim>) -> ClaimBlock {
    let held = u32::from(claim.is_some());
    let nobody = Opener { boot: 0, device: 0, inode: 0, namespace: 0, process: 0, began: 0, host: [0; _] };
    let Claim { claim, answered, opener } = claim.unwrap_or(Claim { claim: 0, answered: 0, opener: nobody });
    ClaimBlock {
        magic: CLAIM_MAGIC,
        volume: volume.into(),
        checksum: 0.into(),
        held: held.into(),
        claim: claim.into(),
        answered: answered.into(),
        boot: opener.boot.into(),
        device: opener.device.into(),
        inode: opener.inode.into(),
        namespace: opener.namespace.into(),
        began: opener.began.into(),
        process: opener.process.into(),
        reserved: 0.into(),
        host: opener.host,
    }
}

/// Reads both blocks of a volume.
async fn read_claim(disk: &dyn Storage, place: Lba, volume: u64) -> Result<ClaimBlocks, Rejected> {
    let bytes = read_extent(disk, Extent::new(place, CLAIM_BLOCKS as u32)).await?;
    let (claim, challenge) = bytes.split_at(BLOCK_BYTES);
    Ok(ClaimBlocks {
        found: decode(claim, volume),
        challenge: decode_challenge(challenge, volume).unwrap_or(0),
    })
}

fn decode(block: &[u8], volume: u64) -> ClaimState {
    if block.iter().all(|byte| *byte == 0) {
        return ClaimState::Released;
    }
    let Ok((found, _)) = ClaimBlock::read_from_prefix(block) else { return ClaimState::Damaged };
    let whole = found.magic == CLAIM_MAGIC
        && found.volume.get() == volume
        && checksum_matches(block, offset_of!(ClaimBlock, checksum));
    match found.held.get() {
        0 if whole => ClaimState::Released,
        1 if whole => ClaimState::Held(Claim {
            claim: found.claim.get(),
            answered: found.answered.get(),
            opener: Opener {
                boot: found.boot.get(),
                device: found.device.get(),
                inode: found.inode.get(),
                namespace: found.namespace.get(),
                process: found.process.get(),
                began: found.began.get(),
                host: found.host,
            },
        }),
        _ => ClaimState::Damaged,
    }
}

fn decode_challenge(block: &[u8], volume: u64) -> Option<u64> {
    let (found, _) = ChallengeBlock::read_from_prefix(block).ok()?;
    let whole = found.magic == CHALLENGE_MAGIC
        && found.volume.get() == volume
        && checksum_matches(block, offset_of!(ChallengeBlock, checksum));
    whole.then_some(found.challenge.get())
}

/// The owner that has the volume open, or did not close it; `None` if the claim is released or damaged.
pub(crate) async fn opener(disk: &dyn Storage, geometry: &Geometry) -> Result<Option<Opener>, Rejected> {
    let Some(place) = geometry.claim() else { return Ok(None) };
    Ok(match read_claim(disk, place, geometry.volume).await?.found {
        ClaimState::Held(claim) => Some(claim.opener),
        ClaimState::Released | ClaimState::Damaged => None,
    })
}

/// Leaves a new volume without a claim.
pub(crate) async fn clear(disk: &dyn Storage, geometry: &Geometry) -> Result<(), Rejected> {
    let Some(place) = geometry.claim() else { return Ok(()) };
    write(disk, Part::bytes(place, &[0; CLAIM_BLOCKS as usize * BLOCK_BYTES])).await
}

/// Makes this opener the owner of a volume (V8). `None` if no other process can reach the storage, or the volume has no claim.
///
/// # Errors
/// [`VolumeError::OpenElsewhere`], [`VolumeError::CopyOfOpen`] and [`VolumeError::OpenedMeanwhile`]; what the disk
/// answered.
pub(crate) async fn acquire(
    handle: &Handle,
    disk: &Rc<dyn Storage>,
    geometry: &Geometry,
    options: &VolumeOptions,
) -> Result<Option<Rc<Lease>>, VolumeError> {
    let (Some(opener), Some(register)) = (disk.opener(), Register::from_disk(disk, geometry)) else {
        return Ok(None);
    };
    let claim = write_new_claim(handle, register.place(), opener, options).await?;
    let lease = Lease::new(handle, register, claim, options.rules);
    if !lease.begin(claim.answered).await? && !options.rules.drops(VolumeMutant::ClaimNotReread) {
        return Err(VolumeError::OpenedMeanwhile);
    }
    Ok(Some(Rc::new(lease)))
}

/// Does something to the volume on `disk` as its owner (V8), and gives the claim up.
///
/// # Errors
/// As [`acquire`], and those of `work`.
pub(crate) async fn work_as_owner<T>(
    handle: &Handle,
    disk: Rc<dyn Storage>,
    geometry: &Geometry,
    options: &VolumeOptions,
    work: impl AsyncFnOnce(Rc<dyn Storage>) -> Result<T, VolumeError>,
) -> Result<T, VolumeError> {
    let Some(lease) = acquire(handle, &disk, geometry, options).await? else { return work(disk).await };
    let keeper = Keeper::new(handle, &lease);
    let outcome = work(Rc::new(Leased { below: disk, lease: Rc::clone(&lease) })).await;
    let released = lease.release().await;
    drop(keeper);
    let outcome = outcome?;
    released?;
    Ok(outcome)
}

/// Claims a volume that is to be destroyed. An owner that gave no answer in time finds that, and stops. A copy of a volume
/// that is open may be destroyed: no owner answers there.
///
/// # Errors
/// As [`acquire`], but for [`VolumeError::CopyOfOpen`].
pub(crate) async fn claim_to_destroy(
    handle: &Handle,
    disk: &dyn Storage,
    geometry: &Geometry,
) -> Result<(), VolumeError> {
    let (Some(opener), Some(at)) = (disk.opener(), geometry.claim()) else { return Ok(()) };
    let place = Place { disk, at, volume: geometry.volume };
    let options = VolumeOptions { after_crash: true, ..VolumeOptions::default() };
    let claim = write_new_claim(handle, place, opener, &options).await?;
    match place.read().await? == (ClaimBlocks { found: ClaimState::Held(claim), challenge: claim.answered }) {
        true => Ok(()),
        false => Err(VolumeError::OpenedMeanwhile),
    }
}

/// Steps 1 to 4, without the look at the end: writes a challenge, waits for an answer if there may be one, and writes the
/// claim.
async fn write_new_claim(
    handle: &Handle,
    place: Place<'_>,
    opener: Opener,
    options: &VolumeOptions,
) -> Result<Claim, VolumeError> {
    let challenge = handle.entropy().max(1);
    place.write_challenge(challenge).await?;
    let written = handle.now();
    let before = place.read().await?;
    let standing = match before.found {
        ClaimState::Released => Standing::Ended,
        ClaimState::Damaged => Standing::Unknown,
        ClaimState::Held(claim) => match place.disk.standing(&claim.opener) {
            Standing::Running if options.after_crash => Standing::Unknown,
            Standing::Running => return Err(VolumeError::CopyOfOpen(Box::new(claim.opener))),
            standing => standing,
        },
    };
    if standing == Standing::Unknown && !options.rules.drops(VolumeMutant::ClaimNotAwaited) {
        info!(
            name: "owner_awaited",
            "the volume was not closed, and its last owner is unknown: waiting for an answer to the challenge"
        );
        while handle.now().since(written) < WAIT {
            handle.sleep(LOOK.min(WAIT.saturating_sub(handle.now().since(written)))).await;
            has_no_answer(&before, &place.read().await?, challenge)?;
        }
    }
    let claim = Claim { claim: handle.entropy(), answered: challenge, opener };
    place.write_claim(Some(claim)).await?;
    Ok(claim)
}

/// Whether nothing has changed since the challenge was written.
fn has_no_answer(before: &ClaimBlocks, now: &ClaimBlocks, challenge: u64) -> Result<(), VolumeError> {
    match now.found {
        ClaimState::Held(claim) if claim.answered == challenge => {
            Err(VolumeError::OpenElsewhere(Box::new(claim.opener)))
        }
        found if found != before.found || now.challenge != challenge => Err(VolumeError::OpenedMeanwhile),
        _ => Ok(()),
    }
}
