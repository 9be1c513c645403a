//! One run: a device, its workload, and the cuts.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use weir_flash::{FlashDevice, FlashOptions, Medium, Profile, ShareBy};
use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_stack::FalseOrder;
use weir_storage::{BLOCK_BYTES, Image, Lba, Ordering, Storage, Witness};

use super::driver::{Driver, UnderWay};
use super::{FlashCampaign, FlashTotals, profile};
use crate::campaign::Run;
use crate::cuts::Cuts;
use crate::options::pick;

/// Rounds of a run.
const ROUNDS: u32 = 4;

/// Commands of a round at most.
const COMMANDS_MAX: u64 = 160;

/// Cuts after one event: chance decides what becomes of pages and blocks in the making.
const CUTS_PER_EVENT: u32 = 3;

/// Blocks that a device takes in one share; some have none.
const SHARE_BLOCKS: [u32; 3] = [0, 4, 12];

/// All states of a round are judged.
const STATES_MAX: u64 = u64::MAX;

/// One run.
pub(super) struct FlashRun {
    handle: Handle,
    profile: Profile,
    options: FlashOptions,
    claims_barriers: bool,
    found: Rc<RefCell<Cuts<FlashTotals, Medium>>>,
}

impl FlashRun {
    fn new(handle: &Handle, campaign: &FlashCampaign) -> FlashRun {
        let mut profile = profile::draw(campaign.mechanism, &mut handle.random("profile"));
        if profile.ftl.layout.logical_page_blocks == 1 {
            profile.ftl.share = pick(&mut handle.random("share"), &SHARE_BLOCKS);
            if campaign.mechanism.can_log_shares() {
                profile.ftl.share_by = pick(&mut handle.random("share by"), &ShareBy::ALL);
            }
        }
        profile.barrier.internal.stops_commands = pick(&mut handle.random("internal flush"), &[false, true]);
        profile::draw_write_features(&mut profile, &mut handle.random("write features"));
        let found = Cuts::new(handle.random("cut"), STATES_MAX, CUTS_PER_EVENT);
        FlashRun {
            handle: handle.clone(),
            profile,
            options: campaign.options.clone(),
            claims_barriers: campaign.claims_barriers,
            found: Rc::new(RefCell::new(found)),
        }
    }

    /// Plays the run of this seed.
    pub(super) fn play(campaign: &FlashCampaign, seed: u64) -> Run<FlashTotals> {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let run = FlashRun::new(&runtime.handle(), campaign);
        let play_round = async |left: &Cell<Option<Medium>>, _| run.play_round(left.take()).await;
        let recover = async |medium| Ok(Cell::new(Some(medium)));
        let rounds = Cuts::play_rounds(&run.found, ROUNDS, Cell::new(None), play_round, recover);
        let ended = runtime.block_on(rounds);
        run.found.borrow_mut().end_run(ended, runtime.handle().trace_hash())
    }

    /// Plays a round on what a power cut has left, if there was one before.
    async fn play_round(&self, left: Option<Medium>) -> Result<(), String> {
        let (device, initial) = match left {
            None => self.used(),
            Some(medium) => self.recovered(medium).await,
        };
        if self.found.borrow().failure.is_none() {
            self.workload(&device, &initial).await;
        }
        device.cut_power();
        let totals = &mut self.found.borrow_mut().totals;
        totals.erases += device.stats().erases;
        totals.checkpoints += device.stats().checkpoints;
        totals.increments += device.stats().increments;
        totals.coalesced_blocks += device.stats().coalesced_blocks;
        totals.record_pages += device.stats().record_pages;
        totals.internal_flushes += device.stats().internal_flushes;
        Ok(())
    }

    /// A device that is filled in part, so that cleaning comes soon, and what a reader finds on it.
    fn used(&self) -> (Rc<FlashDevice>, Image) {
        let device = FlashDevice::new(&self.handle, &self.profile, self.options.clone());
        let mut random = self.handle.random("used");
        if random.below(8) > 0 {
            device.precondition(self.profile.blocks - random.below(self.profile.blocks / 6));
        }
        let image = image_of(&device);
        (device, image)
    }

    /// The same for a device that recovers from `medium`, with the power cut at every event of its recovery: it finds the
    /// same every time.
    async fn recovered(&self, medium: Medium) -> (Rc<FlashDevice>, Image) {
        let restart =
            |medium| FlashDevice::restarted(&self.handle, &self.profile, self.options.clone(), medium);
        let image = image_of(&restart(medium.clone()));
        let (device, hash) = (restart(medium), image.hash());
        let (weak, found) = (Rc::downgrade(&device), Rc::clone(&self.found));
        let (handle, profile, options) = (self.handle.clone(), self.profile.clone(), self.options.clone());
        device.observe(move || {
            let Some(device) = weak.upgrade() else { return };
            let mut found = found.borrow_mut();
            let draw = &mut |random: &mut Random| device.after_cut(random);
            let Some((medium, _)) = found.at_recovery_event(draw) else { return };
            found.states_deep += 1;
            let again = FlashDevice::restarted(&handle, &profile, options.clone(), medium);
            if image_of(&again).hash() != hash {
                found.fail("a second recovery found other content");
            }
        });
        while !device.is_serving() {
            self.handle.sleep(Duration::from_micros(50)).await;
        }
        device.observe(|| {});
        (device, image)
    }

    /// Random commands, with the power cut after every event of the device.
    async fn workload(&self, device: &Rc<FlashDevice>, initial: &Image) {
        let storage: Rc<dyn Storage> = match self.claims_barriers {
            true => FalseOrder::new(Rc::clone(device) as Rc<dyn Storage>, Ordering::Barrier),
            false => Rc::clone(device) as Rc<dyn Storage>,
        };
        let witness = Witness::new(storage, initial);
        let mut driver = Driver::new(&self.handle, Rc::clone(&witness));
        let cut_power = self.cut_at_every_event(device, &witness, driver.under_way());
        for _ in 0..20 + driver.below(COMMANDS_MAX - 20) {
            if self.found.borrow().failure.is_some() {
                break;
            }
            if let Err(rejected) = driver.submit_command().await {
                self.found.borrow_mut().fail(format!("a command was rejected: {rejected}"));
            }
            cut_power();
            self.found.borrow_mut().totals.commands += 1;
        }
        let totals = &mut self.found.borrow_mut().totals;
        totals.shares += driver.shares();
        let (packed, reliable) = driver.packed_and_reliable();
        (totals.packed, totals.reliable) = (totals.packed + packed, totals.reliable + reliable);
        device.observe(|| {});
    }

    /// Cuts the power, on copies, at every event of the device, and whenever what it returns is called.
    fn cut_at_every_event(
        &self,
        device: &Rc<FlashDevice>,
        witness: &Rc<Witness>,
        under_way: Rc<UnderWay>,
    ) -> Rc<dyn Fn()> {
        let (weak, found, witness) = (Rc::downgrade(device), Rc::clone(&self.found), Rc::clone(witness));
        let (handle, profile, options) = (self.handle.clone(), self.profile.clone(), self.options.clone());
        let cut_power = Rc::new(move || {
            let Some(device) = weak.upgrade() else { return };
            let mut found = found.borrow_mut();
            if !found.sees_event() {
                return;
            }
            let expectation = witness.expect();
            let draw = &mut |random: &mut Random| device.after_cut(random);
            found.at_event(draw, 0, |medium, _, totals| {
                totals.states_cleaning += u64::from(device.is_cleaning());
                totals.states_sharing += u64::from(under_way.is_sharing());
                totals.states_packing += u64::from(under_way.is_packing());
                totals.states_garbled += u64::from(medium.garbled_pages() > 0);
                let again = FlashDevice::restarted(&handle, &profile, options.clone(), medium.clone());
                expectation.judge(&image_of(&again)).map(|()| true).map_err(|illegal| illegal.to_string())
            });
        });
        let at_events = Rc::clone(&cut_power);
        device.observe(move || at_events());
        cut_power
    }
}

/// What a reader would find on a device.
fn image_of(device: &FlashDevice) -> Image {
    let mut image = Image::zeroed(device.blocks(), BLOCK_BYTES as u32);
    let mut bytes = [0; BLOCK_BYTES];
    for block in (0..device.blocks()).map(Lba) {
        device.peek(block, &mut bytes);
        if bytes[..16] != [0; 16] || bytes.iter().any(|byte| *byte != 0) {
            image.write(block, &bytes);
        }
    }
    image
}
