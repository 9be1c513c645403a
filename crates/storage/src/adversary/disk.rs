//! The disk itself: submission, the engine that services commands in a seeded order, and power cuts.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::Poll;
use std::time::Duration;

use event_listener::Event;
use weir_runtime::{Handle, Instant};

use super::crash::CrashStates;
use super::faults::Faults;
use super::image::Image;
use super::mutants::StorageMutant;
use super::service::Done;
use super::state::AdversaryState;
use crate::address::Lba;
use crate::capability::Capabilities;
use crate::command::Command;
use crate::contract::Storage;
use crate::error::{Rejected, StorageError};
use crate::recorder::Recorder;
use crate::rules::Rules;
use crate::ticket::Ticket;

/// What an [`AdversaryDisk`] is made of.
#[derive(Clone, Debug)]
pub struct AdversaryOptions {
    /// Capacity in blocks; the default is 1,024 (4 MiB).
    pub blocks: u64,
    /// What the disk can do; the default is a legacy disk, 32 deep, 256 blocks a command, torn at 512 B.
    pub capabilities: Capabilities,
    /// Names the disk's stream of random numbers.
    pub seed_label: String,
    /// Each command takes 0 to this many nanoseconds, drawn for each; 0 is the default.
    pub latency_ns_max: u64,
    /// What goes wrong.
    pub faults: Faults,
    /// The rules that this disk keeps: all of them.
    pub rules: Rules<StorageMutant>,
}

impl Default for AdversaryOptions {
    fn default() -> AdversaryOptions {
        AdversaryOptions {
            blocks: 1024,
            capabilities: Capabilities::legacy(32, 256, 512),
            seed_label: "adversary".to_owned(),
            latency_ns_max: 0,
            faults: Faults::default(),
            rules: Rules::all(),
        }
    }
}

type Observer = Rc<dyn Fn(&AdversaryDisk)>;

/// A disk in memory that behaves as badly as the contract allows.
pub struct AdversaryDisk {
    handle: Handle,
    capabilities: Capabilities,
    blocks: u64,
    latency_ns_max: u64,
    state: RefCell<AdversaryState>,
    observers: RefCell<Vec<Observer>>,
    slots: Event,
    /// Wakes the engine; shared with it, so that the engine does not keep the disk alive.
    work: Rc<Event>,
}

impl AdversaryDisk {
    /// A disk of zeroes.
    #[must_use]
    pub fn new(handle: &Handle, options: AdversaryOptions) -> Rc<AdversaryDisk> {
        let medium = Image::zeroed(options.blocks, options.capabilities.tear_unit_bytes);
        AdversaryDisk::from_image(handle, options, &medium)
    }

    /// A disk with the content of `image`, and its capacity: what a machine finds after a power cut.
    #[must_use]
    pub fn from_image(handle: &Handle, options: AdversaryOptions, image: &Image) -> Rc<AdversaryDisk> {
        let medium = image.with_units(options.capabilities.tear_unit_bytes);
        let random = handle.random(&options.seed_label);
        let state = AdversaryState::new(medium, options.capabilities, options.faults, random, options.rules);
        let disk = Rc::new(AdversaryDisk {
            handle: handle.clone(),
            capabilities: options.capabilities,
            blocks: image.blocks(),
            latency_ns_max: options.latency_ns_max,
            state: RefCell::new(state),
            observers: RefCell::default(),
            slots: Event::new(),
            work: Rc::new(Event::new()),
        });
        drop(handle.spawn(run(Rc::downgrade(&disk), handle.clone(), Rc::clone(&disk.work))));
        disk
    }

    /// Reports transfers and persists to `recorder` from now on.
    pub fn set_recorder(&self, recorder: Rc<Recorder>) {
        self.state.borrow_mut().set_recorder(recorder);
    }

    /// Calls `observer` at every event: a command was accepted, serviced (transferred, flushed), or
    /// something became durable. That is every moment at which a power cut could differ from the last.
    pub fn observe(&self, observer: Box<dyn Fn(&AdversaryDisk)>) {
        self.observers.borrow_mut().push(Rc::from(observer));
    }

    /// What may be left if the power is cut now; after [`AdversaryDisk::cut_power`], what was left then.
    #[must_use]
    pub fn crash_states(&self) -> CrashStates {
        self.state.borrow().crash_states()
    }

    /// Cuts the power: commands in flight fail with [`StorageError::Gone`], and so does everything later.
    pub fn cut_power(&self) {
        self.state.borrow_mut().cut_power();
        self.slots.notify(usize::MAX);
        self.work.notify(usize::MAX);
    }

    /// What reads would find now, the cache included.
    #[must_use]
    pub fn image(&self) -> Image {
        self.state.borrow().view()
    }

    fn event(&self) {
        // The list is copied so that an observer may add another.
        let observers = self.observers.borrow().clone();
        for observer in observers {
            observer(self);
        }
    }

    /// Services one command, or writes something back, and says when to come again.
    fn step(&self) -> Next {
        let now = self.handle.now();
        let done = self.state.borrow_mut().step(now);
        match done {
            Done::Nothing(None) => Next::WhenWoken,
            Done::Nothing(Some(instant)) => Next::At(instant),
            Done::PoweredOff => Next::Never,
            Done::WroteBack => {
                self.event();
                Next::AfterOthers
            }
            Done::Serviced(number) => {
                self.handle.trace(&[number]);
                self.slots.notify(usize::MAX);
                self.event();
                Next::AfterOthers
            }
        }
    }
}

/// When the engine has something to do again.
enum Next {
    AfterOthers,
    At(Instant),
    WhenWoken,
    Never,
}

/// The engine: one task a disk, ends with it.
async fn run(disk: Weak<AdversaryDisk>, handle: Handle, work: Rc<Event>) {
    loop {
        let next = disk.upgrade().map_or(Next::Never, |disk| disk.step());
        match next {
            Next::AfterOthers => handle.yield_now().await,
            Next::At(instant) => {
                let mut sleep = pin!(handle.sleep_until(instant));
                let mut woken = pin!(work.listen());
                poll_fn(|context| {
                    let over =
                        sleep.as_mut().poll(context).is_ready() || woken.as_mut().poll(context).is_ready();
                    if over { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
            }
            Next::WhenWoken => work.listen().await,
            Next::Never => return,
        }
    }
}

impl Drop for AdversaryDisk {
    fn drop(&mut self) {
        self.work.notify(usize::MAX);
    }
}

impl Storage for AdversaryDisk {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        self.capabilities.check(&command, self.blocks)?;
        let ticket = self.state.borrow_mut().accept(&command, |state| {
            let nanos = state.latency_ns(self.latency_ns_max);
            self.handle.now() + Duration::from_nanos(nanos)
        })?;
        self.work.notify(1);
        self.event();
        Ok(ticket)
    }

    fn slots(&self) -> &Event {
        &self.slots
    }

    fn next_data(&self, from: Lba) -> Option<Lba> {
        self.image().next_data(from)
    }
}

/// What the disk reports for a command that fails.
pub(super) fn device_error(command: crate::CommandKind, at: Lba, cause: ErrorKind) -> StorageError {
    StorageError::Device { command, at, cause }
}
