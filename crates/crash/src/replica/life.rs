//! One run: the lives of machines, one after the other, that write to one replica.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use weir_replica::{
    EncryptionKey, Objects, RemoteFlush, Replica, ReplicaError, ReplicaOptions, Replication, SimulatedStore,
    StoreFaults, Uploader, WantedState,
};
use weir_runtime::{Handle, Random, Task};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Command, Extent, Image, Lba, Part, Rejected,
    SharePair, StorageError, Write, flush, submit_when_free,
};
use weir_volume::{Format, LossWindow, TapBounds, Volume, VolumeOptions};

use super::judge::{Left, restore};
use super::link::Link;
use super::model::{BLOCKS, Model};
use super::{ReplicaCampaign, ReplicaTotals};
use crate::campaign::{Failure, Run, runtime_of};
use crate::content::{mix, push_page};

/// Lives of a run.
const LIVES: u32 = 4;
/// Requests of a life.
const STEPS: u64 = 60;
/// Blocks of the disk, and of the volume.
const DISK_BLOCKS: u64 = 400;
const LOGICAL_BLOCKS: u64 = 80;
/// One in so many of the disk's events is judged, and one in so many states is gone on from.
const DISK_EVENTS: u64 = 24;
const GONE_ON: u64 = 4;

/// A machine that runs.
#[derive(Clone)]
struct Machine {
    disk: Rc<AdversaryDisk>,
    link: Link,
    replication: Replication,
}

/// A machine that was taken for dead, and goes on.
struct Zombie {
    replication: Replication,
    /// The newest request that the next machine has of it.
    newest: u64,
}

/// One run.
pub(super) struct ReplicaRun {
    handle: Handle,
    store: SimulatedStore,
    disk_options: AdversaryOptions,
    volume_options: VolumeOptions,
    bounds: TapBounds,
    options: ReplicaOptions,
    model: RefCell<Model>,
    /// The machine that runs now.
    machine: RefCell<Option<Machine>>,
    zombies: RefCell<Vec<Zombie>>,
    random: RefCell<Random>,
    found: RefCell<(ReplicaTotals, BTreeSet<u64>, Option<Failure>)>,
    life: Cell<u32>,
    objects: Cell<usize>,
}

/// An uploader that runs.
type Shipping = Task<Result<(), ReplicaError>>;

impl ReplicaRun {
    /// Plays the run of this seed.
    pub(super) fn play(campaign: &ReplicaCampaign, seed: u64) -> Run<ReplicaTotals> {
        let runtime = runtime_of(seed);
        let run = Rc::new(ReplicaRun::draw(&runtime.handle(), campaign));
        let ended = runtime.block_on(Rc::clone(&run).play_lives());
        let what = match ended {
            Ok(Ok(())) => None,
            Ok(Err(what)) => Some(what),
            Err(stalled) => Some(stalled.to_string()),
        };
        if let Some(what) = what {
            run.fail(what);
        }
        let trace_hash = runtime.handle().trace_hash();
        drop(runtime);
        let (mut totals, seen, failure) = run.found.take();
        totals.runs = 1;
        Run { totals, seen, failure, trace_hash }
    }

    /// Draws everything that decides a run.
    fn draw(handle: &Handle, campaign: &ReplicaCampaign) -> ReplicaRun {
        let mut random = handle.random("options");
        let ms = |millis| Duration::from_millis(millis);
        let mut pick = |choices: &[u64]| choices[random.below(choices.len() as u64) as usize];
        let faults = StoreFaults {
            delay_max: ms(pick(&[0, 1, 20, 200])),
            lost_answers: pick(&[0, 0, 4, 16]),
            lost_requests: pick(&[0, 0, 4, 16]),
            repeated: pick(&[0, 4, 16]),
            list_age: ms(pick(&[0, 0, 100, 2_000])),
            ignores_condition: campaign.replaces_objects,
        };
        let lag = ms(pick(&[20, 200, 1_000]));
        let bytes = pick(&[1 << 18, 1 << 20]);
        let bounds = TapBounds { bytes, time: lag, never_wait: pick(&[0, 0, 1]) == 1 };
        let options = ReplicaOptions {
            key: if pick(&[0, 0, 0, 1]) == 1 { EncryptionKey::from_hex(&"5a".repeat(32)) } else { None },
            compress: pick(&[0, 1]) == 1,
            unfenced: campaign.replaces_objects,
            stops: false,
            patience: None,
            object_bytes: pick(&[1, 4, 12]) as usize * BLOCK_BYTES,
            lag,
            checkpoint_bytes: pick(&[1, 20_000, 100_000, u64::MAX]),
            part_entries: pick(&[3, 12, 1 << 17]) as usize,
            keep: ms(pick(&[4_000, 10_000, 3_600_000])),
            rules: campaign.rules.0,
        };
        let disk_options = AdversaryOptions {
            blocks: DISK_BLOCKS,
            capabilities: Capabilities::legacy(8, 64, BLOCK_BYTES as u32),
            latency_ns_max: pick(&[0, 50_000, 2_000_000]),
            ..AdversaryOptions::default()
        };
        let loss_window = LossWindow { time: ms(pick(&[2, 100, 1_000])), bytes: 1 << 20 };
        let volume_options =
            VolumeOptions { loss_window, rules: campaign.rules.1, ..VolumeOptions::default() };
        ReplicaRun {
            handle: handle.clone(),
            store: SimulatedStore::new(handle, faults),
            disk_options,
            volume_options,
            bounds,
            options,
            model: RefCell::new(Model::new()),
            machine: RefCell::default(),
            zombies: RefCell::default(),
            random: RefCell::new(handle.random("run")),
            found: RefCell::default(),
            life: Cell::new(0),
            objects: Cell::new(0),
        }
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    fn fail(&self, what: String) {
        let mut found = self.found.borrow_mut();
        let event = found.0.cuts;
        let failure = Failure::new(self.life.get(), event, what);
        found.2.get_or_insert(failure);
    }

    fn is_over(&self) -> bool {
        self.found.borrow().2.is_some()
    }

    async fn play_lives(self: Rc<ReplicaRun>) -> Result<(), String> {
        let weak = Rc::downgrade(&self);
        self.store.observe(move || {
            if let Some(run) = weak.upgrade() {
                run.judge_now();
            }
        });
        let mut image = None;
        for life in 0..LIVES {
            self.life.set(life);
            let (disk, volume) = self.begin(image.as_ref()).await?;
            self.watch(&disk);
            let shipping = self.play_life(&volume, &disk).await?;
            if self.is_over() {
                return Ok(());
            }
            if life + 1 == LIVES {
                return self.end(&volume, shipping).await;
            }
            if self.below(3) == 0 {
                image = Some(self.take_for_dead(volume, shipping).await?);
            } else {
                image = Some(disk.crash_states().sample(&mut self.random.borrow_mut()));
                self.machine.take();
                shipping.cancel();
                disk.cut_power();
            }
        }
        Ok(())
    }

    /// The machine is taken for dead. It writes no more, and ships what it has; or it is cut off from the store for a while, and
    /// writes on. Returns what the next machine has of it.
    async fn take_for_dead(
        self: &Rc<ReplicaRun>,
        volume: Rc<Volume>,
        shipping: Shipping,
    ) -> Result<Image, String> {
        let machine = self.machine.take().ok_or("no machine runs")?;
        let is_cut_off = self.below(2) == 0;
        if is_cut_off {
            machine.link.cut();
        }
        flush(&*volume).await.map_err(|error| error.to_string())?;
        let image = machine.disk.image();
        let newest = volume.position().placed;
        let Machine { replication, link, .. } = machine;
        self.zombies.borrow_mut().push(Zombie { replication, newest });
        self.found.borrow_mut().0.takeovers += 1;
        let returns = if is_cut_off {
            Some((volume, link))
        } else {
            volume.close().await.map_err(|error| error.to_string())?;
            None
        };
        self.handle.spawn(Rc::clone(self).go_on(shipping, newest, returns));
        Ok(image)
    }

    /// A machine that was taken for dead goes on, some longer than the time after which what it would meet may be collected.
    async fn go_on(
        self: Rc<ReplicaRun>,
        shipping: Shipping,
        newest: u64,
        returns: Option<(Rc<Volume>, Link)>,
    ) {
        let keep = self.options.keep;
        let away =
            if self.below(3) == 0 { keep.mul_f64(1.5) } else { Duration::from_millis(self.below(1_000)) };
        let end = self.handle.now() + away + keep;
        let latest = self.handle.now() + keep.mul_f64(0.5);
        if let Some((volume, link)) = returns {
            self.handle.spawn(Rc::clone(&self).write_on(volume));
            let has_shipped = || {
                let machine = self.machine.borrow();
                machine.as_ref().is_some_and(|machine| machine.replication.status().shipped > newest)
            };
            while !has_shipped() && self.handle.now() < latest {
                self.handle.sleep(Duration::from_millis(20)).await;
            }
            if has_shipped() {
                self.handle.sleep(away).await;
                self.found.borrow_mut().0.returned += 1;
                link.mend();
            }
        }
        self.handle.sleep(end.since(self.handle.now())).await;
        shipping.cancel();
    }

    /// Writes what no other machine has, while the tap lets it.
    async fn write_on(self: Rc<ReplicaRun>, volume: Rc<Volume>) {
        for lba in 0..20 {
            let mut data = Vec::new();
            push_page(&mut data, lba, self.model.borrow_mut().next_stamp());
            let parts = [Part::bytes(Lba(lba), &data)];
            if submit_when_free(&*volume, Command::Write(Write::new(&parts))).await.is_err() {
                return;
            }
            self.handle.sleep(Duration::from_millis(50)).await;
        }
    }

    /// Ends a restore where it is.
    fn crash_restorer(&self, restorer: &Task<()>) {
        self.found.borrow_mut().0.restorers_ended += u64::from(!restorer.is_finished());
        restorer.cancel();
    }

    /// A machine begins, with what the one before has left.
    async fn begin(&self, image: Option<&Image>) -> Result<(Rc<AdversaryDisk>, Rc<Volume>), String> {
        let failed = |error: weir_volume::VolumeError| format!("opening the volume: {error}");
        let disk = match image {
            Some(image) => AdversaryDisk::from_image(&self.handle, self.disk_options.clone(), image),
            None => {
                let disk = AdversaryDisk::new(&self.handle, self.disk_options.clone());
                let format =
                    Format { segment_blocks: 8, logical_blocks: LOGICAL_BLOCKS, ..Format::default() };
                Volume::create(&self.handle, &*disk, format).await.map_err(failed)?;
                disk
            }
        };
        let opened = Volume::open(&self.handle, disk.clone(), self.volume_options.clone()).await;
        let volume = Rc::new(opened.map_err(failed)?);
        let recovered = volume.position().placed;
        let promised = self.model.borrow().newest_shipped();
        if recovered < promised {
            return Err(format!("the volume was recovered to {recovered}, and the store has {promised}"));
        }
        self.model.borrow_mut().go_back(recovered);
        self.found.borrow_mut().0.lives += 1;
        Ok((disk, volume))
    }

    /// Judges some of the disk's events, too.
    fn watch(self: &Rc<ReplicaRun>, disk: &AdversaryDisk) {
        let weak = Rc::downgrade(self);
        disk.observe(Box::new(move |_| {
            if let Some(run) = weak.upgrade()
                && run.below(DISK_EVENTS) == 0
            {
                run.judge_now();
            }
        }));
    }

    async fn ship(&self, volume: &Rc<Volume>, disk: &Rc<AdversaryDisk>) -> Result<Shipping, String> {
        let link = Link::new(self.store.clone());
        let store = Rc::new(link.clone());
        let opened = Uploader::open(&self.handle, volume.clone(), store, self.bounds, self.options.clone());
        let uploader = opened.await.map_err(|error| format!("opening the replica: {error}"))?;
        let (disk, replication) = (disk.clone(), uploader.replication());
        self.machine.replace(Some(Machine { disk, link, replication }));
        Ok(self.handle.spawn(uploader.run()))
    }

    /// Requests, while they are shipped.
    async fn play_life(
        self: &Rc<ReplicaRun>,
        volume: &Rc<Volume>,
        disk: &Rc<AdversaryDisk>,
    ) -> Result<Shipping, String> {
        // What is written before is caught up with.
        for _ in 0..self.below(30) {
            self.step(volume).await?;
        }
        let mut shipping = self.ship(volume, disk).await?;
        let mut restorer: Option<Task<()>> = None;
        for _ in 0..STEPS {
            if self.is_over() {
                break;
            }
            self.require_shipping()?;
            match self.below(48) {
                0 => self.store.go_down(Duration::from_millis(self.below(8_000))),
                1 => {
                    // The uploader ends, and another one begins.
                    shipping.cancel();
                    self.machine.take();
                    self.found.borrow_mut().0.uploaders_ended += 1;
                    for _ in 0..self.below(20) {
                        self.step(volume).await?;
                    }
                    shipping = self.ship(volume, disk).await?;
                }
                // A restore, which is crashed by the next one, if it has not ended by then.
                2 => {
                    let next = self.handle.spawn(Rc::clone(self).restore_now());
                    restorer.replace(next).iter().for_each(|before| self.crash_restorer(before));
                }
                _ => self.step(volume).await?,
            }
        }
        restorer.iter().for_each(|last| self.crash_restorer(last));
        self.require_shipping()?;
        Ok(shipping)
    }

    fn require_shipping(&self) -> Result<(), String> {
        let machine = self.machine.borrow();
        let status = machine.as_ref().map(|machine| machine.replication.status());
        match status.filter(|status| status.stopped) {
            Some(status) => {
                Err(format!("the newest writer has stopped: {}", status.trouble.unwrap_or_default()))
            }
            None => Ok(()),
        }
    }

    /// Restores the newest state, while the store changes.
    async fn restore_now(self: Rc<ReplicaRun>) {
        let store = Rc::new(self.store.clone());
        let Ok(replica) = Replica::open(&self.handle, store, self.options.clone()).await else { return };
        // What is collected while it is read ends a restore.
        if let Ok((restored, content)) = restore(&self.handle, &replica, WantedState::Newest).await {
            let expected = self.model.borrow().content_at(restored.sequence).cloned();
            if Some(content) != expected {
                self.fail(format!("a restore of a running replica, request {}, is wrong", restored.sequence));
            }
            self.found.borrow_mut().0.restores += 1;
        }
    }

    /// One request, or a pause.
    async fn step(&self, volume: &Rc<Volume>) -> Result<(), String> {
        let lba = self.below(u64::from(BLOCKS) - 4) as u32;
        let failed = |error: Rejected| format!("a request: {error}");
        match self.below(16) {
            0..8 => {
                let blocks = self.below(3) as u32 + 1;
                let stamp = self.model.borrow_mut().next_stamp();
                let mut data = Vec::new();
                (lba..lba + blocks).for_each(|lba| push_page(&mut data, u64::from(lba), stamp));
                let parts = [Part::bytes(Lba(u64::from(lba)), &data)];
                submit_when_free(&**volume, Command::Write(Write::new(&parts))).await.map_err(failed)?;
                self.model.borrow_mut().write(lba, blocks, stamp);
            }
            8..10 => {
                let extent = [Extent::new(Lba(u64::from(lba)), 3)];
                submit_when_free(&**volume, Command::Discard(&extent)).await.map_err(failed)?;
                self.model.borrow_mut().discard(lba, 3);
            }
            10..13 => {
                // The second pair reads what the first one changes.
                let from = (lba + 1 + self.below(u64::from(BLOCKS) - 1) as u32) % BLOCKS;
                let pairs = [(lba, from), (lba + 1, lba)];
                let command = pairs.map(|(to, from)| SharePair {
                    from: Extent::new(Lba(u64::from(from)), 1),
                    to: Lba(u64::from(to)),
                });
                submit_when_free(&**volume, Command::Share(&command)).await.map_err(failed)?;
                self.model.borrow_mut().share(&pairs);
            }
            13 => return self.flush(volume).await.map_err(failed),
            _ => {
                self.handle.sleep(Duration::from_millis(self.below(300))).await;
                return Ok(());
            }
        }
        self.model.borrow_mut().number(volume.position().placed);
        self.found.borrow_mut().0.requests += 1;
        Ok(())
    }

    /// A flush, one in three of which waits for the store, if the volume is shipped.
    async fn flush(&self, volume: &Rc<Volume>) -> Result<(), Rejected> {
        let machine = self.machine.borrow().clone();
        let Some(Machine { replication, .. }) = machine.filter(|_| self.below(3) == 0) else {
            return flush(&**volume).await;
        };
        let covered = volume.position().placed;
        match flush(&RemoteFlush::new(&self.handle, Rc::clone(volume), replication)).await {
            // The status says why, and is looked at before each step.
            Err(Rejected::Failed(StorageError::NotShipped)) => return Ok(()),
            outcome => outcome?,
        }
        self.model.borrow_mut().note_flushed(covered);
        self.found.borrow_mut().0.remote_flushes += 1;
        self.judge_now();
        Ok(())
    }

    /// The last machine ships everything, and ends.
    async fn end(&self, volume: &Rc<Volume>, shipping: Shipping) -> Result<(), String> {
        flush(&**volume).await.map_err(|error| error.to_string())?;
        if let Some(machine) = &*self.machine.borrow() {
            machine.replication.stop();
        }
        let ended = shipping.await.map_err(|error| error.to_string())?;
        ended.map_err(|error| format!("the last writer: {error}"))?;
        let machine = self.machine.borrow();
        let shipped = machine.as_ref().map_or(0, |machine| machine.replication.status().shipped);
        let placed = volume.position().placed;
        if shipped < placed {
            return Err(format!("the uploader has ended at {shipped}, and the volume is at {placed}"));
        }
        Ok(())
    }

    /// Judges what is left if everything ends here.
    fn judge_now(&self) {
        let machine = self.machine.borrow().clone();
        let objects = self.store.objects();
        let was = self.objects.replace(objects.len());
        let Some(Machine { disk, replication, .. }) = machine.filter(|_| !self.is_over()) else { return };
        let status = replication.status();
        let now = self.handle.now();
        self.model.borrow_mut().note_shipped(now, status.shipped);
        if let Err(what) = self.judge_zombies() {
            return self.fail(what);
        }
        let image = disk.crash_states().sample(&mut self.random.borrow_mut());
        {
            let (totals, seen, _) = &mut *self.found.borrow_mut();
            totals.cuts += 1;
            totals.collected += u64::from(objects.len() < was);
            if !seen.insert(mix(image.hash(), hash_of(&objects))) {
                return;
            }
            totals.states_distinct += 1;
            totals.states_catching_up += u64::from(status.behind);
        }
        let goes_on = self.below(GONE_ON) == 0;
        let (kept_from, kept) = self.kept_requests();
        let other = self.below(status.shipped + 2);
        let left = Left {
            objects: &objects,
            image: &image,
            disk: self.disk_options.clone(),
            volume: self.volume_options.clone(),
            bounds: self.bounds,
            options: self.options.clone(),
            model: &self.model.borrow(),
            kept,
            kept_from,
            other,
            had_takeover: !self.zombies.borrow().is_empty(),
            goes_on,
        };
        let judged = left.judge(&mut self.random.borrow_mut());
        self.found.borrow_mut().0.states_continued += u64::from(goes_on);
        match judged {
            Ok(restores) => self.found.borrow_mut().0.restores += restores,
            Err(what) => self.fail(what),
        }
    }

    /// What machines that were taken for dead say is shipped counts as what the newest says. Of what the next one has not it may be
    /// nothing.
    fn judge_zombies(&self) -> Result<(), String> {
        for Zombie { replication, newest } in &*self.zombies.borrow() {
            let shipped = replication.status().shipped;
            if shipped > *newest {
                return Err(format!(
                    "a machine that was taken for dead says that request {shipped} is shipped, and the next one has {newest} of it"
                ));
            }
            self.model.borrow_mut().note_shipped(self.handle.now(), shipped);
        }
        Ok(())
    }

    /// The first request that was shipped in the newer half of the time that is kept, and one of all these; 0 for none.
    fn kept_requests(&self) -> (u64, u64) {
        let (now, half) = (self.handle.now().as_nanos(), self.options.keep.as_nanos() / 2);
        let since = now.saturating_sub(u64::try_from(half).unwrap_or(u64::MAX));
        let model = self.model.borrow();
        let shipped = model.shipped_since(weir_runtime::Instant::from_nanos(since));
        let first = shipped.iter().map(|(_, sequence)| *sequence).find(|sequence| *sequence > 0).unwrap_or(0);
        match shipped.len() as u64 {
            0 => (first, 0),
            count => (first, shipped[self.below(count) as usize].1),
        }
    }
}

/// Stands for the objects of a store: each ends with its hash.
fn hash_of(objects: &Objects) -> u64 {
    objects.iter().fold(0, |hash, (key, bytes)| {
        let key = key.bytes().fold(hash, |hash, byte| mix(hash, u64::from(byte)));
        let end = bytes.last_chunk::<8>().map_or(0, |end| u64::from_le_bytes(*end));
        mix(key, end)
    })
}
