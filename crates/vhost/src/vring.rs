//! A ring of requests: those that the guest puts there are taken, carried out, and answered.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt as _;
use tracing::{debug, warn};
use vhost::vhost_user;
use virtio_queue::{Error as RingError, Queue, QueueOwnedT as _, QueueT as _};
use vm_memory::GuestAddress;
use weir_export::{Export, Load, UnderWay};
use weir_runtime::{Handle, PolledFile, Task};
use weir_storage::Rules;

use crate::chain::{Chain, Malformed};
use crate::config::QUEUE_SIZE_MAX;
use crate::error::VhostError;
use crate::inflight::{InflightQueue, InflightRegion};
use crate::memory::Mapped;
use crate::mutants::VhostMutant;
use crate::requests::{Request, Use};

/// Requests that are taken in a row before others have their turn.
const IN_A_ROW: u32 = 32;

/// What all rings of a frontend share.
pub(crate) struct Disk {
    pub(crate) handle: Handle,
    pub(crate) export: Rc<Export>,
    pub(crate) load: Rc<Load>,
    /// What is answered is there when the server was killed (N4).
    pub(crate) answers_from_disk: bool,
    pub(crate) rules: Rules<VhostMutant>,
}

/// How the guest has set the rings up.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) memory: Mapped,
    pub(crate) how: Use,
    /// Both sides say from which request or answer on they want to be told.
    pub(crate) event_index: bool,
    pub(crate) inflight: Option<Rc<InflightRegion>>,
}

/// One ring.
pub(crate) struct Vring {
    nth: usize,
    queue: RefCell<Queue>,
    /// Tells that there are requests.
    kick: RefCell<Option<Rc<PolledFile>>>,
    /// Tells the guest that there are answers.
    call: RefCell<Option<File>>,
    is_enabled: Cell<bool>,
    has_place: Cell<bool>,
    inflight: RefCell<Option<InflightQueue>>,
    serving: RefCell<Option<Task<()>>>,
    /// Requests are being taken: the guest is told of answers at the end.
    is_taking: Cell<bool>,
}

impl Vring {
    pub(crate) fn new(nth: usize) -> Result<Rc<Vring>, VhostError> {
        Ok(Rc::new(Vring {
            nth,
            queue: RefCell::new(Queue::new(QUEUE_SIZE_MAX).map_err(ring_error)?),
            kick: RefCell::default(),
            call: RefCell::default(),
            is_enabled: Cell::new(false),
            has_place: Cell::new(false),
            inflight: RefCell::default(),
            serving: RefCell::default(),
            is_taking: Cell::new(false),
        }))
    }

    /// Sets its length.
    pub(crate) fn set_size(&self, size: u32) -> Result<(), VhostError> {
        let wrong = VhostError::Queues { queue: self.nth, size };
        let size = u16::try_from(size).ok();
        let set = size.and_then(|size| self.queue.borrow_mut().try_set_size(size).ok());
        set.ok_or(wrong)
    }

    /// Sets where its three parts are.
    pub(crate) fn place(
        &self,
        table: GuestAddress,
        available: GuestAddress,
        used: GuestAddress,
    ) -> Result<(), VhostError> {
        let mut queue = self.queue.borrow_mut();
        queue.try_set_desc_table_address(table).map_err(ring_error)?;
        queue.try_set_avail_ring_address(available).map_err(ring_error)?;
        queue.try_set_used_ring_address(used).map_err(ring_error)?;
        self.has_place.set(true);
        Ok(())
    }

    /// Sets which request is the next.
    pub(crate) fn set_next(&self, next: u16) {
        self.queue.borrow_mut().set_next_avail(next);
    }

    /// Which request is the next. The ring is served again when it has a new kick.
    pub(crate) fn end(&self) -> u16 {
        *self.kick.borrow_mut() = None;
        self.queue.borrow().next_avail()
    }

    pub(crate) fn set_kick(&self, kick: PolledFile) {
        *self.kick.borrow_mut() = Some(Rc::new(kick));
    }

    /// Sets how the guest is told of answers, and tells it: some may be there already.
    pub(crate) fn set_call(&self, call: Option<File>) {
        *self.call.borrow_mut() = call;
        self.tell();
    }

    pub(crate) fn enable(&self, is_enabled: bool) {
        self.is_enabled.set(is_enabled);
    }

    /// Takes no more requests. Those that are under way are answered.
    pub(crate) fn stop(&self) {
        if let Some(serving) = self.serving.borrow_mut().take() {
            serving.cancel();
        }
    }

    /// Serves it, if it is set up and not served yet; what was under way before comes first (N5). No request is under
    /// way here.
    pub(crate) fn start(self: &Rc<Self>, disk: &Rc<Disk>, setting: &Setting) -> Result<(), VhostError> {
        let is_ready = self.is_enabled.get() && self.has_place.get();
        let Some(kick) = self.kick.borrow().clone().filter(|_| is_ready) else { return Ok(()) };
        if self.serving.borrow().is_some() {
            return Ok(());
        }
        let left = self.recover(disk, setting)?;
        let serving = Serving { ring: Rc::clone(self), disk: Rc::clone(disk), setting: setting.clone() };
        let task = disk.handle.spawn(serving.run(left, kick));
        *self.serving.borrow_mut() = Some(task);
        Ok(())
    }

    /// Finds where the ring stands; the requests that were under way, in the order in which the guest gave them.
    fn recover(&self, disk: &Disk, setting: &Setting) -> Result<Vec<u16>, VhostError> {
        let mut queue = self.queue.borrow_mut();
        queue.set_ready(true);
        queue.set_event_idx(setting.event_index);
        if !queue.is_valid(&*setting.memory) {
            return Err(VhostError::RingOutside(self.nth));
        }
        let answers = queue.used_idx(&*setting.memory, Ordering::Acquire).map_err(ring_error)?.0;
        queue.set_next_used(answers);
        let region = setting.inflight.as_ref();
        let mut inflight = region.map(|region| region.queue(self.nth, queue.size())).transpose()?;
        let mut left = Vec::new();
        if let Some(inflight) = &mut inflight {
            left = inflight.recover(answers);
            left.retain(|head| *head < queue.size());
            // All that the guest gave before are answered, or among them.
            queue.set_next_avail(answers.wrapping_add(left.len() as u16));
        }
        *self.inflight.borrow_mut() = inflight;
        if disk.rules.drops(VhostMutant::InflightForgotten) {
            left.clear();
        }
        if disk.rules.drops(VhostMutant::InflightByPlace) {
            left.sort_unstable();
        }
        Ok(left)
    }

    /// Puts an answer into the ring.
    fn answer(&self, memory: &Mapped, head: u16, written: u32) {
        let mut queue = self.queue.borrow_mut();
        let inflight = self.inflight.borrow();
        if let Some(inflight) = &*inflight {
            inflight.prepare_answer(head);
        }
        if let Err(error) = queue.add_used(&**memory, head, written) {
            debug!(name: "answer_lost", %error, "an answer has no place in the ring");
            return;
        }
        if let Some(inflight) = &*inflight {
            inflight.unmark(head, queue.next_used());
        }
        drop(queue);
        if !self.is_taking.get() {
            self.tell_if_wanted(memory);
        }
    }

    fn tell_if_wanted(&self, memory: &Mapped) {
        if self.queue.borrow_mut().needs_notification(&**memory).unwrap_or(true) {
            self.tell();
        }
    }

    fn tell(&self) {
        if let Some(call) = &*self.call.borrow() {
            // One that takes no more has not been looked at since the last.
            let _ = rustix::io::write(call, &1_u64.to_ne_bytes());
        }
    }
}

fn ring_error(error: RingError) -> VhostError {
    VhostError::Protocol(vhost_user::Error::ReqHandlerError(std::io::Error::other(error)))
}

/// A ring that is served.
#[derive(Clone)]
struct Serving {
    ring: Rc<Vring>,
    disk: Rc<Disk>,
    setting: Setting,
}

impl Serving {
    async fn run(self, left: Vec<u16>, kick: Rc<PolledFile>) {
        for head in left {
            self.disk.load.has_room().await;
            self.begin(head);
        }
        loop {
            if let Err(error) = self.take_all().await {
                let ring = self.ring.nth;
                warn!(name: "ring_ended", ring, %error, "a guest's ring is damaged, and served no more");
                return;
            }
            kick.wait_readable().await;
            match rustix::io::read(kick.file(), &mut [0; 8]) {
                Ok(0) => return,
                Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Takes requests until the ring is empty and the guest will send a kick for the next.
    async fn take_all(&self) -> Result<(), RingError> {
        let memory = &*self.setting.memory;
        loop {
            self.ring.queue.borrow_mut().disable_notification(memory)?;
            while self.take_some()? {
                self.disk.handle.give_way().await;
                self.disk.load.has_room().await;
            }
            if !self.ring.queue.borrow_mut().enable_notification(memory)? {
                return Ok(());
            }
            self.disk.load.has_room().await;
        }
    }

    /// Takes some requests, as long as there is room; whether there may be more.
    fn take_some(&self) -> Result<bool, RingError> {
        self.ring.is_taking.set(true);
        let mut taken = 0;
        let more = loop {
            if taken == IN_A_ROW || self.disk.load.has_room().now_or_never().is_none() {
                break Ok(true);
            }
            match self.next_head() {
                Ok(Some(head)) => self.begin(head),
                Ok(None) => break Ok(false),
                Err(error) => break Err(error),
            }
            taken += 1;
        };
        self.ring.is_taking.set(false);
        if taken > 0 {
            self.ring.tell_if_wanted(&self.setting.memory);
        }
        more
    }

    /// The first descriptor of the next request.
    fn next_head(&self) -> Result<Option<u16>, RingError> {
        let mut queue = self.ring.queue.borrow_mut();
        let size = queue.size();
        let next = queue.iter(&*self.setting.memory)?.next().map(|chain| chain.head_index());
        match next {
            Some(head) if head >= size => Err(RingError::InvalidDescriptorIndex),
            next => Ok(next),
        }
    }

    /// Carries a request out, and answers it when that is done.
    fn begin(&self, head: u16) {
        if let Some(inflight) = &mut *self.ring.inflight.borrow_mut() {
            inflight.mark(head);
        }
        let memory = &self.setting.memory;
        let (table, size) = {
            let queue = self.ring.queue.borrow();
            (GuestAddress(queue.desc_table()), queue.size())
        };
        let request = Chain::follow(memory, table, size, head).and_then(|chain| Request::read(chain, memory));
        match request {
            Err(Malformed(cause)) => {
                debug!(name: "request_malformed", cause, "a request is malformed");
                self.ring.answer(memory, head, 0);
            }
            Ok(request) => {
                let under_way = UnderWay::new(&self.disk.load, request.bytes());
                // Most need not wait for anything.
                self.disk.handle.begin(self.clone().carry_out(head, request, under_way));
            }
        }
    }

    async fn carry_out(self, head: u16, request: Request, under_way: UnderWay) {
        let Serving { ring, disk, setting } = self;
        let early = disk.rules.drops(VhostMutant::AnsweredEarly);
        if early {
            ring.answer(&setting.memory, head, 1);
        }
        let written = request.answer(&disk.export, &setting.how, &setting.memory).await;
        if !early {
            ring.answer(&setting.memory, head, written);
        }
        drop(under_way);
    }
}
