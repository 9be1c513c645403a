//! The *writer* of a replica: appends objects to its log, one at a time, while no other writer has taken over (R4).

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tracing::info;
use weir_runtime::{Handle, Instant};
use weir_storage::{BLOCK_BYTES, Rules};
use weir_volume::{Base, LogEntry, Position, Volume};

use crate::access::{Access, Placed, Requests};
use crate::beginning::PassedOver;
use crate::descriptor::Descriptor;
use crate::envelope::{Envelopes, ObjectKind};
use crate::error::ReplicaError;
use crate::fence::{newest_epoch, require_no_newer_checkpoint};
use crate::key::{LogPlace, epoch_key};
use crate::log_object::{ENTRY_BYTES, LogObject};
use crate::mutants::ReplicaMutant;
use crate::options::ReplicaOptions;
use crate::reader::{NewestState, newest_state, require_newest};
use crate::state::{CutGroup, ReplicaState};
use crate::store::ObjectStore;
use crate::upkeep::Upkeep;

/// For so long at most, and for half of what is kept, a writer that knows its place to be its own need not look again: no object that
/// another one makes in the next place is collected before.
const SURE_FOR: Duration = Duration::from_secs(30);

/// A catch-up does not go on with a group of more than so many entries for each block that the volume holds.
const GROUP_FACTOR: u64 = 2;

/// Generations by which a volume that takes a replica over is ahead of the one before: more than that can be opened.
const GENERATIONS_SKIPPED: u64 = 1 << 32;

/// What goes into the next object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Payload {
    pub entries: Vec<LogEntry>,
    pub data: Vec<u8>,
}

impl Payload {
    pub(crate) fn push(&mut self, entry: LogEntry, block: &[u8]) {
        debug_assert!(block.is_empty() || block.len() == BLOCK_BYTES);
        self.entries.push(entry);
        self.data.extend_from_slice(block);
    }

    /// Bytes of an object that it takes: a discard has no data.
    pub(crate) fn bytes(&self) -> usize {
        self.data.len() + self.entries.len() * ENTRY_BYTES
    }
}

/// What an object stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Requests in order, of which the last has this number.
    Requests(u64),
    /// A part of a catch-up group that others follow: the request that the group began at if it is the first, and otherwise one that is
    /// durable and no older than what is in it.
    Part(u64),
    /// The last part of a catch-up group: the state after this request.
    LastPart(u64),
}

/// A time by both clocks: one stands still while the machine is suspended, and the other one can be set.
#[derive(Clone, Copy)]
struct ClockTimes {
    since_start: Instant,
    wall_ms: u64,
}

impl ClockTimes {
    fn now(handle: &Handle) -> ClockTimes {
        ClockTimes { since_start: handle.now(), wall_ms: handle.wall_clock_millis() }
    }

    /// Whether less than this time has passed since `earlier`, by each clock.
    fn is_within(&self, most: Duration, earlier: ClockTimes) -> bool {
        let by_wall = self.wall_ms.checked_sub(earlier.wall_ms).map(Duration::from_millis);
        self.since_start.since(earlier.since_start) < most && by_wall.is_some_and(|passed| passed < most)
    }
}

/// A writer.
pub(crate) struct Writer {
    pub access: Rc<Access>,
    handle: Handle,
    envelopes: Rc<Envelopes>,
    pub upkeep: Rc<Upkeep>,
    pub state: ReplicaState,
    pub options: ReplicaOptions,
    /// That of the volume here; 0 until it begins to write.
    generation: u64,
    /// When the newest place was asked for of which this writer knows that it had not been collected.
    sure_at: ClockTimes,
    /// Bytes of objects since the newest checkpoint.
    since_checkpoint: u64,
    /// The group that has begun and not ended is of this writer, which began it or goes on with it.
    owns_group: bool,
    /// Checkpoints that could not be read.
    pub passed_over: PassedOver,
    /// Of the mutant: what is sent later.
    held_back: Option<(String, Bytes)>,
}

impl Writer {
    /// Opens the replica of a volume, or begins one. Nothing else is written until there is something to ship.
    pub(crate) async fn open(
        handle: &Handle,
        store: Rc<dyn ObjectStore>,
        volume: Descriptor,
        options: ReplicaOptions,
    ) -> Result<Writer, ReplicaError> {
        let access = Rc::new(Access::new(handle, store, options.patience));
        Writer::open_by(handle, access, volume, options).await
    }

    /// The same, by requests that are counted with others.
    pub(crate) async fn open_by(
        handle: &Handle,
        access: Rc<Access>,
        volume: Descriptor,
        options: ReplicaOptions,
    ) -> Result<Writer, ReplicaError> {
        let envelopes = Envelopes::new(handle, options.key.as_ref(), options.compress, options.rules);
        volume.ensure(&access, &envelopes, options.unfenced).await?;
        let newest = newest_state(&access, &envelopes, options.rules).await?;
        let NewestState { state, bytes: since_checkpoint, passed_over } = newest;
        let (handle, envelopes) = (handle.clone(), Rc::new(envelopes));
        let upkeep = Rc::new(Upkeep::new(&access, &envelopes, &options));
        upkeep.set_unreadable(&passed_over.sequences);
        Ok(Writer {
            access,
            envelopes,
            upkeep,
            state,
            options,
            generation: 0,
            sure_at: ClockTimes::now(&handle),
            handle,
            since_checkpoint,
            owns_group: false,
            passed_over,
            held_back: None,
        })
    }

    pub(crate) fn requests(&self) -> Requests {
        self.access.requests()
    }

    fn rules(&self) -> Rules<ReplicaMutant> {
        self.options.rules
    }

    /// Takes the next epoch, and the next place in the log, so that the writer before meets it there and stops. The volume of this
    /// writer is open, or `is_new`: then its generation follows from what is before that place (R10). For a catch-up of a volume that
    /// has all that is in a group which was cut, the place is in that group. Returns the epoch, and its token.
    async fn take_over(
        &mut self,
        is_new: bool,
        catch_up: Option<Position>,
    ) -> Result<(u64, u64), ReplicaError> {
        let mut epoch = newest_epoch(&self.access).await? + 1;
        let token = loop {
            self.envelopes.epoch.set(epoch);
            let key = epoch_key(epoch);
            // No two writers draw the same token, so the object is another one for each.
            let token = self.handle.entropy();
            let object = self.envelopes.wrap(&key, ObjectKind::Epoch, &token.to_le_bytes())?;
            match self.access.create(&key, object).await? {
                Placed::Ours => break token,
                Placed::Taken(_) => epoch += 1,
            }
        };
        info!(name: "replica_opened", epoch, "writes to the replica");
        loop {
            if is_new {
                let skipped = !self.rules().drops(ReplicaMutant::GenerationKept);
                self.state.generation += u64::from(skipped) * GENERATIONS_SKIPPED;
                self.generation = self.state.generation;
            }
            let cut = self.state.cut_group().zip(catch_up);
            let cut = cut.filter(|(cut, volume)| self.may_go_on(cut, *volume)).map(|(cut, _)| cut);
            let role = cut.map_or(Role::Requests(self.state.end.last()), |cut| Role::Part(cut.durable));
            let object = self.next_object(Payload::default(), role);
            let (bytes, hash) = object.encode(self.envelopes.maker(ObjectKind::Log))?;
            let (size, asked_at) = (bytes.len() as u64, ClockTimes::now(&self.handle));
            match self.access.create(&object.place.key(), bytes).await? {
                Placed::Ours => {
                    self.since_checkpoint += size;
                    self.state.take(object, hash)?;
                    self.owns_group = cut.is_some();
                    let is_newest = require_newest(&self.access, self.state.end.last()).await.is_ok();
                    if is_newest || self.rules().drops(ReplicaMutant::OutrunIgnored) {
                        self.sure_at = asked_at;
                        return Ok((epoch, token));
                    }
                    // The place was free since what was there is collected: this object is none of the log.
                    let rules = self.rules();
                    let newest = newest_state(&self.access, &self.envelopes, rules).await?;
                    NewestState {
                        state: self.state,
                        bytes: self.since_checkpoint,
                        passed_over: self.passed_over,
                    } = newest;
                    self.upkeep.set_unreadable(&self.passed_over.sequences);
                    if self.state.generation > self.generation {
                        return Err(ReplicaError::TakenOver(epoch));
                    }
                }
                Placed::Taken(found) => self.absorb(&object.place, &found, epoch).await?,
            }
        }
    }

    /// The writer before has added an object meanwhile.
    async fn absorb(&mut self, place: &LogPlace, bytes: &Bytes, epoch: u64) -> Result<(), ReplicaError> {
        let (object, opened) = LogObject::decode(self.envelopes.opener(), *place, bytes)?;
        // A machine that was opened later has the newer history, whoever began to write first.
        let is_later = match self.rules().drops(ReplicaMutant::GenerationIgnored) {
            true => opened.epoch >= epoch,
            false => (object.generation, opened.epoch) >= (self.generation, epoch),
        };
        if is_later {
            return Err(ReplicaError::TakenOver(opened.epoch));
        }
        self.since_checkpoint += bytes.len() as u64;
        self.state.take(object, opened.hash)
    }

    fn next_object(&self, payload: Payload, role: Role) -> LogObject {
        let place = self.state.end.next;
        let (last, ends, catch_up) = match role {
            Role::Requests(last) => (last, true, false),
            Role::Part(request) => (request, false, true),
            Role::LastPart(last) => (last, true, true),
        };
        let group = if catch_up { self.state.end.open_group } else { None };
        LogObject {
            place,
            last,
            generation: self.state.generation,
            group: group.unwrap_or(place.part),
            ends,
            catch_up,
            previous: self.state.end.hash,
            entries: payload.entries,
            data: payload.data.into(),
        }
    }

    /// Becomes the writer, if it is not yet. A group that was begun and not ended is left behind.
    pub(crate) async fn begin(&mut self, generation: u64) -> Result<(), ReplicaError> {
        self.become_writer(generation, None).await
    }

    async fn become_writer(
        &mut self,
        generation: u64,
        catch_up: Option<Position>,
    ) -> Result<(), ReplicaError> {
        self.generation = generation;
        self.state.generation = self.state.generation.max(generation);
        if self.envelopes.epoch.get() == 0 && !self.rules().drops(ReplicaMutant::EpochForgotten) {
            self.take_over(false, catch_up).await?;
        }
        Ok(())
    }

    /// Becomes the writer for a catch-up of a volume, if it is not yet. Goes on with a group that was cut, if the volume has all that
    /// is in it, and returns the request that it began at. Any other group is left behind, and one that has grown much larger than
    /// the volume.
    pub(crate) async fn begin_catch_up(&mut self, volume: &Volume) -> Result<Option<u64>, ReplicaError> {
        let position = volume.position();
        self.become_writer(position.generation, Some(position)).await?;
        let entries_max = volume.stats().live_blocks.saturating_mul(GROUP_FACTOR);
        let cut = self.state.cut_group().filter(|cut| self.owns_group && cut.entries <= entries_max);
        if cut.is_none() {
            self.state.end.open_group = None;
        }
        Ok(cut.map(|cut| cut.began_at))
    }

    fn may_go_on(&self, cut: &CutGroup, volume: Position) -> bool {
        cut.is_of(volume) || self.rules().drops(ReplicaMutant::CutGroupTrusted)
    }

    /// Becomes the writer for a volume that is to be made on the newest state. The fence comes first, and then the state (R10).
    pub(crate) async fn begin_new_volume(&mut self) -> Result<Base, ReplicaError> {
        if self.state.end.last() == 0 {
            return Err(ReplicaError::NoState);
        }
        let before = self.rules().drops(ReplicaMutant::StateBeforeFence).then(|| self.state.map.clone());
        let (epoch, token) = self.take_over(true, None).await?;
        if let Some(map) = before {
            self.state.map = map;
        }
        Ok(Base { sequence: self.state.end.last(), generation: self.generation, epoch, token })
    }

    /// That the volume which was made on this base was made by a writer of this replica (R11).
    pub(crate) async fn require_base(&self, base: &Base) -> Result<(), ReplicaError> {
        if self.rules().drops(ReplicaMutant::BaseUnchecked) {
            return Ok(());
        }
        let key = epoch_key(base.epoch);
        let bytes = self.access.find(&key).await?.ok_or(ReplicaError::OtherBase)?;
        let opened = self.envelopes.opener().open(&key, ObjectKind::Epoch, &bytes)?;
        let is_this = opened.body[..] == base.token.to_le_bytes() && self.state.end.last() >= base.sequence;
        if is_this { Ok(()) } else { Err(ReplicaError::OtherBase) }
    }

    /// Appends an object.
    pub(crate) async fn append(&mut self, payload: Payload, role: Role) -> Result<(), ReplicaError> {
        self.owns_group = matches!(role, Role::Part(_));
        let object = self.next_object(payload, role);
        let (object, bytes, hash) = object.encode_in_thread(&self.envelopes).await?;
        let (key, size) = (object.place.key(), bytes.len() as u64);
        if self.rules().drops(ReplicaMutant::ObjectsOutOfOrder) && self.held_back.is_none() {
            self.held_back = Some((key, bytes));
        } else {
            self.create(&object.place, &key, bytes).await?;
            if let Some((key, bytes)) = self.held_back.take() {
                self.access.create(&key, bytes).await?;
            }
            self.since_checkpoint += size;
        }
        self.state.take(object, hash)
    }

    async fn create(&mut self, place: &LogPlace, key: &str, bytes: Bytes) -> Result<(), ReplicaError> {
        let asked_at = ClockTimes::now(&self.handle);
        match self.access.create(key, bytes).await? {
            Placed::Taken(found) if !self.rules().drops(ReplicaMutant::FenceIgnored) => {
                let (_, opened) = LogObject::decode(self.envelopes.opener(), *place, &found)?;
                Err(ReplicaError::TakenOver(opened.epoch))
            }
            Placed::Ours | Placed::Taken(_) => self.require_never_taken(place, asked_at).await,
        }
    }

    /// That the place was never another writer's, whose object was collected while this one was away (R4). An object is collected
    /// with a checkpoint behind it that is older than what is kept, so lists have that.
    async fn require_never_taken(
        &mut self,
        place: &LogPlace,
        asked_at: ClockTimes,
    ) -> Result<(), ReplicaError> {
        let sure_for = SURE_FOR.min(self.options.keep / 2);
        let is_sure = ClockTimes::now(&self.handle).is_within(sure_for, self.sure_at);
        if !is_sure && !self.rules().drops(ReplicaMutant::AbsenceUnchecked) {
            require_no_newer_checkpoint(&self.access, place.first - 1).await?;
            self.sure_at = asked_at;
        }
        Ok(())
    }

    /// Has the upkeep write a checkpoint if that is due and none is under way.
    pub(crate) fn begin_checkpoint_if_due(&mut self) {
        self.free_objects();
        if self.checkpoint_is_due() && !self.upkeep.is_busy() {
            let state = self.snapshot();
            self.upkeep.begin_checkpoint(state);
        }
    }

    /// Writes a checkpoint and collects what no kept state needs, if that is due, or `now`. Whether it did.
    pub(crate) async fn checkpoint(&mut self, now: bool) -> Result<bool, ReplicaError> {
        if self.state.end.open_group.is_some() || !(now || self.checkpoint_is_due()) {
            return Ok(false);
        }
        if self.since_checkpoint > 0 && !self.meets_unreadable() {
            let state = self.snapshot();
            self.upkeep.write_checkpoint(&state).await?;
            self.free_objects();
        }
        self.upkeep.collect().await?;
        Ok(true)
    }

    fn checkpoint_is_due(&self) -> bool {
        let is_whole = self.state.end.open_group.is_none() && !self.meets_unreadable();
        is_whole && self.since_checkpoint >= self.options.checkpoint_bytes
    }

    /// In the place of a checkpoint that cannot be read none can be made: the next one comes behind it.
    fn meets_unreadable(&self) -> bool {
        self.passed_over.sequences.contains(&self.state.end.last())
    }

    /// Frees the numbers of objects that no block reads: none is read again, since blocks are copied from blocks.
    fn free_objects(&mut self) {
        self.state.map.free_objects(self.upkeep.take_unread());
    }

    /// The state as it is now, for a checkpoint. It shares the map until that changes.
    fn snapshot(&mut self) -> ReplicaState {
        self.since_checkpoint = 0;
        let ReplicaState { map, end, generation, .. } = &self.state;
        ReplicaState::at(map.clone(), *end, *generation, self.options.rules)
    }
}
