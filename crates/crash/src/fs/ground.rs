//! What the filesystem stands on, and what a power cut leaves of it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_ext4::Mkfs;
use weir_ext4::{check, check::Report};
use weir_flash::{Allocation, FlashOptions, Layout, Mechanism, OrderedService, Profile};
use weir_format::{FormatError, ImageReader};
use weir_fs::{BarrierFs, Conflicts, Engine};
use weir_lfs::F2fs;
use weir_runtime::{Handle, Random};
use weir_stack::{Disk, DiskSpec, Stack, StackError, StackSpec, VolumeSpec};
pub(crate) use weir_stack::{Left, MayLeave};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Command, Discard, Extent, Fault, Faults,
    Interposed, Lba, Ordering, Part, Recorder, Rejected, Storage, StorageError, Ticket, Write, place_mark,
    run_with_marks, submit_when_free,
};
use weir_vfs::FsError;
use weir_volume::{Format, Stats, VolumeOptions};

use crate::bound::in_new_runtime;
use crate::flash::profile;
use crate::options::pick;
use crate::request_log::LoggedStorage;

/// Blocks of the filesystem: the least that ext4 takes with a journal, so that everything is close together.
pub(crate) const BLOCKS: u64 = 2048;

/// Blocks in a command of the disks, at most.
pub(super) const TRANSFER_BLOCKS: u32 = 32;

/// Writes of a mount, at most.
const WRITES_OF_MOUNT: u64 = 12;

/// Flushes until a filesystem is mounted, and flushes of a life, of which one fails.
const FLUSHES_OF_MOUNT: u64 = 3;
const FLUSHES_OF_LIFE: u64 = 24;

/// Blocks of a volume's segment.
pub(super) const SEGMENT_BLOCKS: u32 = 32;

/// What the filesystem stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsGround {
    /// An emulated flash device with this barrier mechanism.
    Flash(Mechanism),
    /// An emulated eMMC: one command at a time, no barriers, FUA, packed writes, and programs that a power cut tears.
    Emmc {
        /// Whether it has reliable writes.
        reliable: bool,
    },
    /// The worst disk that the contract allows, with barriers or without.
    Adversary {
        /// Whether it keeps barriers.
        barriers: bool,
    },
    /// The worst disk that the contract allows, as a prefix device.
    PrefixDisk,
    /// The worst legacy disk, which claims to be a prefix device: the negative control.
    Claiming,
    /// A volume on the worst legacy disk.
    Volume,
}

impl FsGround {
    /// Every ground that a command line can name.
    pub const ALL: [FsGround; 12] = [
        FsGround::Adversary { barriers: true },
        FsGround::Adversary { barriers: false },
        FsGround::PrefixDisk,
        FsGround::Volume,
        FsGround::Emmc { reliable: true },
        FsGround::Emmc { reliable: false },
        FsGround::Flash(Mechanism::PowerLossProtection),
        FsGround::Flash(Mechanism::InOrderWriteback),
        FsGround::Flash(Mechanism::TransactionalWriteback),
        FsGround::Flash(Mechanism::InOrderRecovery),
        FsGround::Flash(Mechanism::OrderPreservingRecovery),
        FsGround::Flash(Mechanism::None),
    ];

    /// The ground of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<FsGround> {
        FsGround::ALL.into_iter().find(|ground| ground.name() == name)
    }

    /// A recorder for what the ground promises.
    pub(crate) fn recorder(self) -> Rc<Recorder> {
        match self {
            FsGround::Volume | FsGround::PrefixDisk | FsGround::Flash(Mechanism::OrderPreservingRecovery) => {
                Recorder::prefix()
            }
            _ => Recorder::new(),
        }
    }

    /// Whether it keeps barriers, which dual-mode journaling needs.
    #[must_use]
    pub fn keeps_barriers(self) -> bool {
        match self {
            FsGround::Adversary { barriers } => barriers,
            FsGround::PrefixDisk | FsGround::Volume => true,
            FsGround::Flash(mechanism) => mechanism != Mechanism::None,
            FsGround::Emmc { .. } | FsGround::Claiming => false,
        }
    }

    /// The engine of a test that names none: dual-mode journaling where barriers are kept, the legacy path elsewhere.
    #[must_use]
    pub fn default_engine(self) -> Engine {
        match self.keeps_barriers() {
            true => Engine::Dual { conflicts: Conflicts::Copy },
            false => Engine::Jbd2 { barrier: true },
        }
    }

    /// Whether its disk can tear blocks: a power cut leaves the old or the new version of each sector.
    #[must_use]
    pub fn can_tear(self) -> bool {
        matches!(self, FsGround::Adversary { .. })
    }

    /// Whether it can be told to fail.
    pub(crate) fn can_fail(self) -> bool {
        matches!(self, FsGround::Adversary { .. } | FsGround::PrefixDisk)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FsGround::Flash(mechanism) => mechanism.name(),
            FsGround::Emmc { reliable: true } => "emmc",
            FsGround::Emmc { reliable: false } => "emmc-unreliable",
            FsGround::Adversary { barriers: true } => "adversary",
            FsGround::Adversary { barriers: false } => "legacy",
            FsGround::PrefixDisk => "prefix",
            FsGround::Claiming => "a legacy disk that claims order",
            FsGround::Volume => "volume",
        }
    }
}

/// What fails once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fails {
    Nothing,
    Write,
    Flush,
}

/// How large a disk is, and what an adversary's disk can do, and what of it fails.
#[derive(Clone, Copy)]
pub(crate) struct DiskTraits {
    /// Blocks of the filesystem.
    pub(crate) blocks: u64,
    pub(crate) fails: Fails,
    /// The disk may tear what it writes at multiples of that many bytes.
    pub(crate) tear_bytes: u32,
    /// It can discard.
    pub(crate) discards: bool,
    /// Blocks that one share command of it remaps at most; none if it has no such command.
    pub(crate) share_blocks: Option<u32>,
    /// It has packed writes and FUA.
    pub(crate) packs: bool,
}

impl DiskTraits {
    /// It does what it is told, and no more.
    pub(crate) const PLAIN: DiskTraits = DiskTraits {
        blocks: BLOCKS,
        fails: Fails::Nothing,
        tear_bytes: BLOCK_BYTES as u32,
        discards: false,
        share_blocks: None,
        packs: false,
    };
}

/// Stands before a disk, and knows whether a flush of it has failed.
pub(crate) struct Watch {
    disk: Rc<AdversaryDisk>,
    under_way: RefCell<Vec<Ticket>>,
    failed: Cell<bool>,
}

impl Watch {
    fn before(disk: &Rc<AdversaryDisk>) -> Rc<Watch> {
        Rc::new(Watch { disk: Rc::clone(disk), under_way: RefCell::default(), failed: Cell::new(false) })
    }

    /// Whether a flush has failed by now.
    pub(crate) fn has_failed(&self) -> bool {
        self.under_way.borrow_mut().retain(|ticket| match ticket.poll_transferred() {
            Some(Err(_)) => {
                self.failed.set(true);
                false
            }
            answer => answer.is_none(),
        });
        self.failed.get()
    }
}

impl Interposed for Watch {
    fn below(&self) -> &dyn Storage {
        &*self.disk
    }

    fn take(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        let is_flush = matches!(command, Command::Flush);
        let ticket = self.disk.submit(command)?;
        if is_flush {
            self.has_failed();
            self.under_way.borrow_mut().push(ticket.clone());
        }
        Ok(ticket)
    }
}

/// What is under a filesystem while it runs.
pub(crate) struct Ground {
    stack: Stack,
    spec: Rc<StackSpec>,
    /// Stands before it where a flush fails.
    watch: Option<Rc<Watch>>,
    /// Stands before it where its requests are logged.
    logged: Option<Rc<LoggedStorage>>,
    /// Judges what a power cut would leave; none at rest.
    observer: Rc<RefCell<Option<Observer>>>,
    /// The storage calls `observer` at its events.
    observed: Cell<bool>,
}

/// Draws what a power cut now would leave.
pub(crate) type Draw<'a> = &'a mut dyn FnMut(&mut Random) -> Left;

type Observer = Rc<dyn Fn(&MayLeave<'_>)>;

fn adversary(random: &mut Random, capabilities: Capabilities, blocks: u64) -> AdversaryOptions {
    let latency_ns_max = pick(random, &[0, 5_000, 50_000]);
    AdversaryOptions { blocks, capabilities, latency_ns_max, ..AdversaryOptions::default() }
}

/// One write or flush fails, of those that come when `writes` writes have filled the disk, and after a mount.
fn draw_fault(random: &mut Random, writes: u64, fails: Fails) -> Faults {
    let mut faults = Faults::default();
    match fails {
        Fails::Nothing => {}
        Fails::Write => faults.write_error = Fault::Nth(writes + WRITES_OF_MOUNT + random.below(600)),
        Fails::Flush => {
            faults.flush_error = Fault::Nth(FLUSHES_OF_MOUNT + 1 + random.below(FLUSHES_OF_LIFE));
        }
    }
    faults
}

fn flash_profile(mechanism: Mechanism, random: &mut Random, traits: DiskTraits) -> Profile {
    enlarged(profile::draw(mechanism, random), random, traits)
}

/// What eMMC 4.5 can do, but for a map of blocks, which torn programs need.
fn emmc_profile(random: &mut Random, reliable: bool, traits: DiskTraits) -> Profile {
    let mut profile = profile::draw(Mechanism::None, random);
    let host = &mut profile.host;
    (host.queue_depth, host.ordered_service) = (1, OrderedService::None);
    (host.packed_header_ns, host.reliable_extra_ns) = (Some(0), reliable.then_some(0));
    host.packed_pages = reliable && random.below(2) == 0;
    profile.nand.torn_program = true;
    profile.ftl.layout = Layout::default();
    enlarged(profile, random, traits)
}

/// A device with room for the filesystem.
fn enlarged(mut profile: Profile, random: &mut Random, traits: DiskTraits) -> Profile {
    if let Some(blocks) = traits.share_blocks {
        // Shares need a map of blocks.
        let layout = &mut profile.ftl.layout;
        (layout.logical_page_blocks, layout.allocation) = (1, Allocation::Dynamic);
        profile.ftl.share = blocks;
    }
    let nand = &mut profile.nand;
    let data_pages = 32;
    nand.pages_per_block = data_pages + u32::from(profile.ftl.layout.summary_pages);
    let planes = if nand.multi_plane { 2 } else { 1 };
    let row = nand.channels * nand.ways * planes * data_pages * (nand.page_bytes / BLOCK_BYTES as u32);
    // What cleaning needs, and a little to make it worth its while.
    nand.blocks_per_plane = (traits.blocks as u32).div_ceil(row) + pick(random, &[6, 8]);
    profile.blocks = traits.blocks;
    profile.host.max_transfer_blocks = pick(random, &[4, TRANSFER_BLOCKS]);
    let places = u64::from(profile.host.max_transfer_blocks * profile.ftl.layout.logical_page_blocks);
    profile.cache.bytes = (4 * profile.cache.bytes).max(places * BLOCK_BYTES as u64);
    debug_assert_eq!(profile.check(), Ok(()));
    profile
}

/// The stack of a ground, whose parameters are drawn.
fn draw_spec(kind: FsGround, random: &mut Random, traits: DiskTraits) -> StackSpec {
    let depth = pick(random, &[4, 32]);
    let legacy = Capabilities::legacy(depth, TRANSFER_BLOCKS, BLOCK_BYTES as u32);
    let emulated =
        |profile| DiskSpec::Emulated { profile: Rc::new(profile), options: FlashOptions::default() };
    match kind {
        FsGround::Flash(mechanism) => {
            StackSpec::from_disk(emulated(flash_profile(mechanism, random, traits)))
        }
        FsGround::Emmc { reliable } => StackSpec::from_disk(emulated(emmc_profile(random, reliable, traits))),
        FsGround::Adversary { .. } | FsGround::PrefixDisk | FsGround::Claiming => {
            let (ordering, serves_in_order) = match kind {
                FsGround::Adversary { barriers: true } => (Ordering::Barrier, random.below(2) == 0),
                FsGround::PrefixDisk => (Ordering::Prefix, false),
                _ => (legacy.ordering, false),
            };
            let capabilities = Capabilities {
                ordering,
                ordered_service: serves_in_order,
                tear_unit_bytes: traits.tear_bytes,
                // What a discarded block reads as is undefined.
                discard: if traits.discards { Discard::Undefined } else { legacy.discard },
                share: traits.share_blocks.is_some(),
                max_share_blocks: traits.share_blocks.unwrap_or(legacy.max_share_blocks),
                packed: traits.packs,
                fua: traits.packs,
                ..legacy
            };
            let disk = DiskSpec::Adversary(adversary(random, capabilities, traits.blocks));
            let claims = (kind == FsGround::Claiming).then_some(Ordering::Prefix);
            StackSpec { claims, ..StackSpec::from_disk(disk) }
        }
        FsGround::Volume => {
            // Half as much again is room to clean.
            let disk = adversary(random, legacy, traits.blocks / 2 * 3);
            let format = Format {
                logical_blocks: traits.blocks,
                segment_blocks: SEGMENT_BLOCKS,
                overwrite: false,
                slots: 0,
            };
            let options = VolumeOptions::default();
            StackSpec::with_volume(DiskSpec::Adversary(disk), VolumeSpec { format, options })
        }
    }
}

impl Ground {
    /// A ground that holds `image`, durably, and tells `recorder` what it does.
    pub(crate) async fn new(
        kind: FsGround,
        handle: &Handle,
        random: &mut Random,
        image: &[(u64, Vec<u8>)],
        recorder: Option<&Rc<Recorder>>,
        traits: DiskTraits,
    ) -> Result<Ground, GroundError> {
        let spec = draw_spec(kind, random, traits);
        // The faults, and the recorder, are for this stack alone, and not for those after a power cut.
        let mut first = spec.clone();
        match &mut first.disk {
            DiskSpec::Adversary(options) if spec.volume.is_none() => {
                options.faults = draw_fault(random, image.len() as u64, traits.fails);
            }
            DiskSpec::Emulated { options, .. } => options.recorder = recorder.cloned(),
            DiskSpec::Adversary(_) | DiskSpec::File { .. } => {}
        }
        let mut ground = Ground::on(Stack::make(handle, &first).await?, spec);
        if let (Fails::Flush, Disk::Adversary(disk), None) =
            (traits.fails, ground.stack.disk(), ground.stack.volume())
        {
            ground.watch = Some(Watch::before(disk));
        }
        if let Some(recorder) = recorder {
            ground.stack.set_recorder(recorder);
        }
        ground.fill(image).await?;
        Ok(ground)
    }

    /// A ground of this stack that holds `image`, durably. Where the storage has marks, one is behind it.
    pub(crate) async fn from_spec(
        spec: StackSpec,
        handle: &Handle,
        image: &[(u64, Vec<u8>)],
    ) -> Result<Ground, GroundError> {
        let ground = Ground::on(Stack::make(handle, &spec).await?, spec);
        let storage = ground.storage();
        run_with_marks(&*storage, ground.fill(image)).await?;
        if storage.marks().is_some() {
            place_mark(&*storage).await?.transferred().await?;
        }
        Ok(ground)
    }

    fn on(stack: Stack, spec: StackSpec) -> Ground {
        let (observer, observed) = Default::default();
        Ground { stack, spec: Rc::new(spec), watch: None, logged: None, observer, observed }
    }

    /// The ground that comes back from what a power cut has left, and tells `recorder` what it does.
    pub(crate) async fn from_left(
        left: &Left,
        handle: &Handle,
        recorder: Option<&Rc<Recorder>>,
    ) -> Result<Ground, GroundError> {
        Ok(Ground::on(left.power_up(handle, recorder).await?, left.spec()))
    }

    async fn fill(&self, image: &[(u64, Vec<u8>)]) -> Result<(), GroundError> {
        let storage = self.storage();
        for (block, bytes) in image {
            let parts = [Part::bytes(Lba(*block), bytes)];
            submit_when_free(&*storage, Command::Write(Write::new(&parts))).await?.transferred().await?;
        }
        Ok(submit_when_free(&*storage, Command::Flush).await?.transferred().await?)
    }

    /// Tells whether a flush has failed, where one may.
    pub(crate) fn watch(&self) -> Option<Rc<Watch>> {
        self.watch.clone()
    }

    /// Puts a log of requests before the storage that callers get from now on.
    pub(crate) fn log_requests(&mut self) -> Rc<LoggedStorage> {
        let logged = LoggedStorage::before(self.storage());
        self.logged = Some(Rc::clone(&logged));
        logged
    }

    pub(crate) fn storage(&self) -> Rc<dyn Storage> {
        if let Some(logged) = &self.logged {
            return Rc::clone(logged) as Rc<dyn Storage>;
        }
        if let Some(watch) = &self.watch {
            return Rc::clone(watch) as Rc<dyn Storage>;
        }
        self.stack.storage()
    }

    /// Calls `visit` at every event of the storage, and at every [`visit_now`](Self::visit_now), in place of the observer
    /// before it.
    pub(crate) fn observe(&self, visit: impl Fn(Draw<'_>) + 'static) {
        self.observe_states(move |may_leave| visit(&mut |random| may_leave.draw(random)));
    }

    /// The same for an observer that needs all that may be left.
    pub(crate) fn observe_states(&self, visit: impl Fn(&MayLeave<'_>) + 'static) {
        *self.observer.borrow_mut() = Some(Rc::new(visit));
        if self.observed.replace(true) {
            return;
        }
        let observer = Rc::clone(&self.observer);
        self.stack.observe_cuts(&self.spec, move |may_leave| {
            let Some(visit) = observer.borrow().clone() else { return };
            visit(may_leave);
        });
    }

    /// Calls the observer now. A call that has returned promises something, and the storage may have no event
    /// before the one that keeps the promise: so campaigns cut when a call has returned, too.
    pub(crate) fn visit_now(&self) {
        let Some(observer) = self.observer.borrow().clone() else { return };
        self.visit_states(&mut |may_leave| observer(may_leave));
    }

    /// Calls `visit` now, and no observer.
    pub(crate) fn visit_states(&self, visit: &mut dyn FnMut(&MayLeave<'_>)) {
        MayLeave::of_disk(self.stack.disk(), &self.spec).iter().for_each(visit);
    }

    /// Whether it holds a whole filesystem.
    pub(crate) async fn check(&self) -> Result<Report, GroundError> {
        let bytes = Bytes(bytes_of(&*self.storage()).await?);
        check::check(&bytes).await
    }

    /// What its volume has done, if it has one.
    pub(crate) fn volume_stats(&self) -> Stats {
        self.stack.volume_stats()
    }

    /// Ends the observation.
    pub(crate) fn rest(&self) {
        *self.observer.borrow_mut() = None;
    }
}

/// What can go wrong below the filesystem, which is never meant to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GroundError {
    #[error(transparent)]
    Stack(#[from] StackError),
    #[error("the storage: {0}")]
    Storage(#[from] StorageError),
    #[error("the storage refused: {0}")]
    Rejected(#[from] Rejected),
    #[error("the format: {0}")]
    Format(#[from] FormatError),
}

/// An image in memory.
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl ImageReader for Bytes {
    type Error = GroundError;

    fn blocks(&self) -> u64 {
        (self.0.len() / BLOCK_BYTES) as u64
    }

    async fn read(&self, block: u64, bytes: &mut [u8]) -> Result<(), GroundError> {
        let from = block as usize * BLOCK_BYTES;
        bytes.copy_from_slice(&self.0[from..from + bytes.len()]);
        Ok(())
    }
}

/// Every block of a storage, one after the other.
pub(crate) async fn bytes_of(storage: &dyn Storage) -> Result<Vec<u8>, GroundError> {
    let all = storage.blocks();
    let mut bytes = Vec::with_capacity(all as usize * BLOCK_BYTES);
    let most = storage.capabilities().max_transfer_blocks;
    for start in (0..all).step_by(most as usize) {
        let blocks = (all - start).min(u64::from(most)) as u32;
        let ticket: Ticket =
            submit_when_free(storage, Command::read(Extent::new(Lba(start), blocks))).await?;
        ticket.transferred().await?;
        bytes.extend_from_slice(&ticket.take_data().ok_or(StorageError::Gone)?);
    }
    Ok(bytes)
}

/// The blocks of a filesystem, those of zeros left out.
pub(crate) type Blocks = Vec<(u64, Vec<u8>)>;

/// A new filesystem, with checksums or without.
pub(crate) fn new_image(checksums: bool) -> Result<Blocks, String> {
    let plain = Mkfs::new(BLOCKS, [7; 16], [8; 16], 1_700_000_000);
    let mkfs = Mkfs { reserved_percent: 0, checksums, ..plain };
    made_image(BLOCKS, async |disk| BarrierFs::make(disk, &mkfs).await)
}

/// A new F2FS.
pub(crate) fn new_f2fs_image(blocks: u64) -> Result<Blocks, String> {
    let mkfs = weir_f2fs::Mkfs { zeroed: true, ..weir_f2fs::Mkfs::new(blocks, [7; 16], 1, 1_700_000_000) };
    made_image(blocks, async |disk| F2fs::make(disk, &mkfs).await)
}

fn made_image(
    blocks: u64,
    make: impl AsyncFnOnce(&dyn Storage) -> Result<(), FsError>,
) -> Result<Blocks, String> {
    in_new_runtime(0, async |handle| {
        let disk = AdversaryDisk::new(handle, AdversaryOptions { blocks, ..AdversaryOptions::default() });
        make(&*disk).await.map_err(|error| format!("mkfs: {error}"))?;
        written_blocks(&*disk).await
    })
}

/// The blocks of a storage that do not read as zeros.
pub(crate) async fn written_blocks(storage: &dyn Storage) -> Result<Blocks, String> {
    let bytes = bytes_of(storage).await.map_err(|error| error.to_string())?;
    let blocks = (0..).zip(bytes.chunks(BLOCK_BYTES));
    let written = blocks.filter(|(_, block)| block.iter().any(|byte| *byte != 0));
    Ok(written.map(|(block, bytes)| (block, bytes.to_vec())).collect())
}

#[cfg(test)]
mod tests {
    use weir_ext4::ROOT_INODE;
    use weir_format::FileType;
    use weir_fs::{FsMutant, JournalMutant, MountOptions};
    use weir_runtime::{Runtime, Simulation};
    use weir_storage::Rules;
    use weir_vfs::NewNode;

    use super::*;

    /// Power cuts after a call has returned, at events or at a look, that leave less than it promised.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct Losses {
        at_events: u64,
        at_the_look: u64,
    }

    /// Creates a file and calls `fsync`, which is all that happens, on disks of every latency.
    fn losses(mutant: Option<FsMutant>) -> Losses {
        let runs = (0..8).map(|seed| losses_of(seed, mutant));
        runs.fold(Losses::default(), |all, run| Losses {
            at_events: all.at_events + run.at_events,
            at_the_look: all.at_the_look + run.at_the_look,
        })
    }

    fn losses_of(seed: u64, mutant: Option<FsMutant>) -> Losses {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let handle = runtime.handle();
        let (promised, lost) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
        let work = async {
            let mut random = handle.random("ground");
            let kind = FsGround::Adversary { barriers: true };
            let ground = Ground::new(kind, &handle, &mut random, &[], None, DiskTraits::PLAIN).await?;
            let mkfs = Mkfs::new(BLOCKS, [7; 16], [8; 16], 1_700_000_000);
            BarrierFs::make(&*ground.storage(), &mkfs).await?;
            let options = MountOptions { rules: Rules::but(mutant), ..MountOptions::default() };
            let fs = BarrierFs::mount(&handle, ground.storage(), options).await?;
            let (seen, counted, from) =
                (Rc::clone(&promised), Rc::clone(&lost), RefCell::new(handle.random("cut")));
            ground.observe(move |draw| {
                let left = (0..8).map(|_| draw(&mut from.borrow_mut()));
                let missing = left.filter(|left| seen.get() && !holds_a_file(left)).count();
                counted.set(counted.get() + missing as u64);
            });
            let file = fs.create(ROOT_INODE, b"a", &NewNode::new(FileType::Regular, 0o644)).await?;
            fs.fsync(file).await?;
            promised.set(true);
            ground.visit_now();
            let at_the_look = lost.take();
            handle.sleep(std::time::Duration::from_millis(1)).await;
            Ok::<_, Box<dyn std::error::Error>>(Losses { at_events: lost.take(), at_the_look })
        };
        runtime.block_on(work).expect("somebody runs").expect("nothing fails")
    }

    fn holds_a_file(left: &Left) -> bool {
        let runtime = Runtime::simulated(Simulation::default());
        let handle = runtime.handle();
        let work = async {
            let ground = Ground::from_left(left, &handle, None).await.expect("a disk needs no recovery");
            let mounted = BarrierFs::mount(&handle, ground.storage(), MountOptions::default()).await;
            mounted.expect("what is left mounts").lookup(ROOT_INODE, b"a").await.is_ok()
        };
        runtime.block_on(work).expect("somebody runs")
    }

    /// The only event behind the call is the one that does what it had promised: a campaign that looks at events
    /// alone takes the lie for the truth.
    #[test]
    fn a_lie_that_the_next_event_makes_true_is_seen_by_a_look_alone() {
        assert_eq!(losses(None), Losses::default());
        let lied = losses(Some(FsMutant::Journal(JournalMutant::FlushNotAwaited)));
        assert!(lied.at_the_look > 0 && lied.at_events == 0, "{lied:?}");
    }
}
