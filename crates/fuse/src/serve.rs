//! Serving: every request of the kernel is taken in and answered.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::rc::Rc;

use futures_util::future::OptionFuture;
use futures_util::{FutureExt as _, select_biased};
use rustix::io::Errno;
use tracing::trace;
use weir_runtime::{Handle, Semaphore};

use crate::connection::{Connection, Received, Request};
use crate::gate::Gate;
use crate::intake::Intake;
use crate::protocol::{Answer, Header, Operation, TRANSFER_BYTES, forgotten, opcode};

/// Requests that are being answered at one time; the others wait with the kernel.
pub(crate) const UNDER_WAY_MAX: u64 = 512;
/// Bytes that they, their answers and what is read ahead for them take together; from so many on the next waits with the
/// kernel.
pub const REQUEST_BYTES_UNDER_WAY_MAX: u64 = 32 << 20;
/// Of these bytes, what reads of files take together at most: three quarters. Others wait without their memory, and hold up no
/// other request, since what is below may keep a read waiting without end, as an object store does that does not answer.
const READS_SHARE: (u64, u64) = (3, 4);
/// What a request that reads is taken to need besides its answer: so many times as much, and so much at most, since it may
/// read ahead. A small read seldom does: most are at random places.
const AHEAD_TIMES: u64 = 8;
const AHEAD_BYTES: u64 = 512 << 10;
/// Requests that are taken in a row before others have their turn.
const IN_A_ROW: u32 = 16;
/// Inodes that the kernel has forgotten, of one request, before others have their turn.
const FORGOTTEN_IN_A_ROW: usize = 1024;

/// Requests of the kernel that are being answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Now.
    pub under_way: u64,
    /// At one time, at most, since the mount.
    pub under_way_max: u64,
    /// Bytes that they take together at most: see [`ServerOptions::request_bytes_max`](crate::ServerOptions::request_bytes_max).
    pub request_bytes_max: u64,
    /// Processors are kept from sleeping while there are requests: see [`ServerOptions::awake`](crate::ServerOptions::awake).
    pub awake: bool,
}

impl Default for Load {
    fn default() -> Load {
        Load { under_way: 0, under_way_max: 0, request_bytes_max: REQUEST_BYTES_UNDER_WAY_MAX, awake: false }
    }
}

/// The load of a mount, which changes all the time.
pub(crate) type SharedLoad = Rc<Cell<Load>>;

/// A request that is being answered, until dropped; and the bytes that all of them take, of which it takes some.
struct UnderWay {
    load: SharedLoad,
    all_bytes: Rc<Cell<u64>>,
    bytes: u64,
}

impl UnderWay {
    fn new(load: &SharedLoad, all_bytes: &Rc<Cell<u64>>, bytes: u64) -> UnderWay {
        all_bytes.set(all_bytes.get() + bytes);
        let (shared, all_bytes) = (Rc::clone(load), Rc::clone(all_bytes));
        let now = load.get();
        let under_way = now.under_way + 1;
        load.set(Load { under_way, under_way_max: now.under_way_max.max(under_way), ..now });
        UnderWay { load: shared, all_bytes, bytes }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.all_bytes.set(self.all_bytes.get() - self.bytes);
        let load = self.load.get();
        self.load.set(Load { under_way: load.under_way - 1, ..load });
    }
}

/// What answers requests.
pub(crate) trait Service: 'static {
    /// Whether it has directories, whose names it tells with what they stand for, and files that are read through the kernel's cache.
    const IS_FILESYSTEM: bool;

    /// Does what is asked.
    fn answer(
        &self,
        header: &Header,
        operation: Operation<'_>,
    ) -> impl Future<Output = Result<Answer, Errno>>;

    /// Takes back what an answer gave that the kernel did not take: an open file, which it will never close, and an inode,
    /// which it will never forget.
    fn take_back(&self, answer: Answer) -> impl Future<Output = ()>;

    /// The kernel drops so many references to a node.
    fn forget(&self, node: u64, count: u64);

    /// Asks the kernel for all dirty pages that it keeps.
    fn collect_all_pages(&self) -> impl Future<Output = ()>;

    /// The status of the mount as JSON.
    fn report_status(&self) -> impl Future<Output = String>;
}

/// Answers requests until it is unmounted.
pub(crate) async fn serve(
    handle: Handle,
    connection: Connection,
    service: Rc<impl Service>,
    (load, intake, gate): (SharedLoad, Rc<Intake>, Rc<Gate>),
) -> io::Result<()> {
    let read_bytes_max = load.get().request_bytes_max / READS_SHARE.1 * READS_SHARE.0;
    let serving = Serving {
        handle,
        connection: Rc::new(connection),
        service,
        load,
        intake,
        gate,
        bytes: Rc::default(),
        read_bytes_max: read_bytes_max as usize,
        reads: Semaphore::new(read_bytes_max as usize),
        in_a_row: Cell::new(0),
    };
    while let Some(request) = serving.next_request().await? {
        let Some((header, _)) = Header::split(&request) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        match header.opcode {
            // The kernel waits for no answer.
            opcode::FORGET | opcode::BATCH_FORGET => {
                let _activity = serving.gate.begin();
                forget(&serving.handle, &*serving.service, &request).await;
            }
            opcode::NOTIFY_REPLY => {}
            opcode::DESTROY => {
                serving.connection.answer(header.unique, Ok(&Answer::Done));
                return Ok(());
            }
            operation if serving.gate.parks(operation) => serving.gate.park(request),
            _ => {
                serving.begin_answer(request);
                serving.let_others_run().await;
            }
        }
    }
    Ok(())
}

/// A mount that is being served.
struct Serving<S> {
    handle: Handle,
    connection: Rc<Connection>,
    service: Rc<S>,
    load: SharedLoad,
    intake: Rc<Intake>,
    gate: Rc<Gate>,
    /// The bytes of requests that are being answered, but for what reads take.
    bytes: Rc<Cell<u64>>,
    read_bytes_max: usize,
    reads: Semaphore,
    /// Requests that were begun since others had their turn.
    in_a_row: Cell<u32>,
}

impl<S: Service> Serving<S> {
    /// Waits for the next request, and for room for it; none when it is unmounted.
    async fn next_request(&self) -> io::Result<Option<Request>> {
        let Serving { connection, gate, .. } = self;
        loop {
            while !gate.lets_read() {
                self.intake.note_end();
                gate.changed().await;
            }
            let load = self.load.get();
            if load.under_way >= UNDER_WAY_MAX || self.bytes.get() >= load.request_bytes_max {
                self.intake.note_end();
                connection.stirred().await;
                // The gate may be closed by now.
                continue;
            }
            let parked = gate.next_parked().map(Received::Request);
            match parked.map_or_else(|| connection.receive(), Ok)? {
                Received::Request(request) => return Ok(Some(request)),
                Received::Ended => return Ok(None),
                Received::Nothing => {}
            }
            self.in_a_row.set(0);
            self.intake.note_end();
            match gate.is_closed() {
                false => connection.ready().await,
                true => select_biased! {
                    () = connection.ready().fuse() => {}
                    () = gate.changed().fuse() => {}
                },
            }
        }
    }

    /// Begins to answer a request.
    fn begin_answer(&self, request: Request) {
        let Some((header, body)) = Header::split(&request) else { return };
        self.intake.note_request();
        trace!(
            name: "request",
            unique = header.unique, opcode = header.opcode, inode = header.node, "request"
        );
        let under_way = UnderWay::new(&self.load, &self.bytes, bytes_for(&header, body));
        let activity = self.gate.begin();
        let (connection, service) = (Rc::clone(&self.connection), Rc::clone(&self.service));
        let to_read = (bytes_to_read(&header, body) as usize).min(self.read_bytes_max);
        // A request for no bytes would wait behind others, too.
        let room_to_read = (to_read > 0).then(|| self.reads.acquire(to_read));
        // Most need not wait for anything.
        self.handle.begin(async move {
            let room = OptionFuture::from(room_to_read).await;
            let left = answer(&connection, &*service, &request).await;
            // Before any wait: the receiver of the answer looks how many requests are left.
            drop((under_way, room));
            if let Some(left) = left {
                service.take_back(left).await;
            }
            drop(activity);
        });
    }

    /// Lets others run, once in some requests.
    async fn let_others_run(&self) {
        self.in_a_row.set(self.in_a_row.get() + 1);
        if self.in_a_row.get() == IN_A_ROW {
            self.in_a_row.set(0);
            self.handle.give_way().await;
        }
    }
}

/// Takes in what the kernel has forgotten.
async fn forget(handle: &Handle, service: &impl Service, request: &Request) {
    let Some((header, body)) = Header::split(request) else { return };
    for (nth, (node, count)) in forgotten(&header, body).enumerate() {
        service.forget(node, count);
        if nth % FORGOTTEN_IN_A_ROW == FORGOTTEN_IN_A_ROW - 1 {
            handle.give_way().await;
        }
    }
}

/// Bytes of memory that a request takes from when it is received until it is answered: itself, and the names that it reads.
fn bytes_for(header: &Header, body: &[u8]) -> u64 {
    let names = match header.opcode {
        opcode::READDIR | opcode::READDIRPLUS => match Operation::read(header, body) {
            Ok(Operation::ReadDirectory { room, .. }) => u64::from(room),
            _ => 0,
        },
        _ => 0,
    };
    body.len() as u64 + names
}

/// Bytes of memory that a request takes for what it reads of files, and ahead, from when that is begun.
fn bytes_to_read(header: &Header, body: &[u8]) -> u64 {
    match header.opcode {
        opcode::READ => match Operation::read(header, body) {
            Ok(Operation::Read { length, .. }) => {
                let length = u64::from(length);
                length + AHEAD_BYTES.min(AHEAD_TIMES * length)
            }
            _ => 0,
        },
        // A part is read and written at a time.
        opcode::COPY_FILE_RANGE => u64::from(TRANSFER_BYTES) + AHEAD_BYTES,
        _ => 0,
    }
}

/// Does what a request asks; its answer, or an error.
pub(crate) async fn answer_operation(
    service: &impl Service,
    header: &Header,
    body: &[u8],
) -> Result<Answer, Errno> {
    service.answer(header, Operation::read(header, body)?).await
}

/// Answers one request. What of the answer is to be taken back, as the kernel did not take it.
async fn answer(connection: &Connection, service: &impl Service, request: &[u8]) -> Option<Answer> {
    let (header, body) = Header::split(request)?;
    let answer = answer_operation(service, &header, body).await;
    let taken = connection.answer(header.unique, answer.as_ref().map_err(|&errno| errno));
    answer.ok().filter(|_| !taken)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs::File;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;
    use std::sync::Arc;
    use std::time::Duration;

    use weir_runtime::{Event, Runtime, Task, Wall};

    use super::*;
    use crate::protocol::WriteRequest;

    /// Answers with the number of the inode. Of inode 2 it does so when it is released, of the others at once. It takes answers back
    /// when it is released.
    #[derive(Default)]
    struct Echo {
        let_go: Rc<Event>,
        taken_back: Rc<RefCell<Vec<u64>>>,
        forgotten: Rc<RefCell<Vec<(u64, u64)>>>,
    }

    impl Service for Echo {
        const IS_FILESYSTEM: bool = false;

        async fn answer(&self, header: &Header, operation: Operation<'_>) -> Result<Answer, Errno> {
            if header.node == 2 {
                self.let_go.listen().await;
            }
            match operation {
                Operation::Open { .. } => Ok(Answer::opened(header.node, 0)),
                Operation::Write(WriteRequest { bytes, .. }) => Ok(Answer::Data(bytes.to_vec())),
                _ => Ok(Answer::Offset(header.node as i64)),
            }
        }

        fn forget(&self, node: u64, count: u64) {
            self.forgotten.borrow_mut().push((node, count));
        }

        async fn collect_all_pages(&self) {}

        async fn report_status(&self) -> String {
            String::new()
        }

        async fn take_back(&self, answer: Answer) {
            self.let_go.listen().await;
            self.taken_back.borrow_mut().extend(answer.handle());
        }
    }

    /// A service that is being asked by way of a socket, which keeps requests apart as the device does.
    struct Asked {
        runtime: Runtime,
        kernel: UnixDatagram,
        load: SharedLoad,
        gate: Rc<Gate>,
        let_go: Rc<Event>,
        taken_back: Rc<RefCell<Vec<u64>>>,
        forgotten: Rc<RefCell<Vec<(u64, u64)>>>,
        serving: Task<io::Result<()>>,
    }

    fn asked() -> Asked {
        let runtime = Runtime::wall(Wall::default()).unwrap();
        let (kernel, device) = UnixDatagram::pair().unwrap();
        kernel.set_nonblocking(true).unwrap();
        let echo = Echo::default();
        let (let_go, taken_back) = (Rc::clone(&echo.let_go), Rc::clone(&echo.taken_back));
        let forgotten = Rc::clone(&echo.forgotten);
        let load = SharedLoad::default();
        let handle = runtime.handle();
        let device = Arc::new(File::from(OwnedFd::from(device)));
        let connection = Connection::new(&handle, device, None).unwrap();
        let gate = Rc::<Gate>::default();
        let told = (Rc::clone(&load), Rc::default(), Rc::clone(&gate));
        let serving = handle.spawn(serve(handle.clone(), connection, Rc::new(echo), told));
        Asked { runtime, kernel, load, gate, let_go, taken_back, forgotten, serving }
    }

    fn request(opcode: u32, unique: u64, node: u64, body: &[u8]) -> Vec<u8> {
        let length = 40 + body.len() as u32;
        let mut bytes = [length.to_ne_bytes(), opcode.to_ne_bytes()].concat();
        bytes.extend([unique.to_ne_bytes(), node.to_ne_bytes()].concat());
        bytes.extend([0; 16]);
        bytes.extend(body);
        bytes
    }

    impl Asked {
        fn ask(&self, opcode: u32, unique: u64, node: u64) {
            self.kernel.send(&request(opcode, unique, node, &[])).unwrap();
        }

        /// Lets the service do what it can.
        fn run(&self) {
            run(&self.runtime);
        }

        /// The next answer: whose it is, its error, what follows. None if there is none.
        fn answer(&self) -> Option<(u64, i32, Vec<u8>)> {
            let mut bytes = [0; 256];
            let length = self.kernel.recv(&mut bytes).ok()?;
            let word = |at: usize| bytes[at..at + 4].try_into().unwrap();
            assert_eq!(u32::from_ne_bytes(word(0)) as usize, length);
            let unique = u64::from_ne_bytes(bytes[8..16].try_into().unwrap());
            Some((unique, -i32::from_ne_bytes(word(4)), bytes[16..length].to_vec()))
        }

        /// Whether nothing is under way within so many milliseconds.
        fn is_at_rest(&self, millis: u64) -> bool {
            let (handle, time) = (self.runtime.handle(), Duration::from_millis(millis));
            self.runtime.block_on(self.gate.at_rest(&handle, time)).unwrap()
        }

        fn ended(self) -> io::Result<()> {
            self.runtime.block_on(self.serving).unwrap().unwrap()
        }
    }

    /// Time for what waits for the kernel, and turns for what is ready then.
    fn run(runtime: &Runtime) {
        let handle = runtime.handle();
        let turns = async {
            handle.sleep(Duration::from_millis(2)).await;
            for _ in 0..20 {
                handle.give_way().await;
            }
        };
        runtime.block_on(turns).unwrap();
    }

    fn number(node: u64) -> Vec<u8> {
        node.to_ne_bytes().to_vec()
    }

    #[test]
    fn each_is_answered_as_it_should_be() {
        let asked = asked();
        asked.ask(opcode::STATFS, 10, 5);
        // The kernel waits for no answer to these.
        for opcode in [opcode::FORGET, opcode::BATCH_FORGET, opcode::NOTIFY_REPLY] {
            asked.ask(opcode, 11, 5);
        }
        let (interrupt, lookup) = (36, opcode::LOOKUP);
        asked.ask(interrupt, 12, 5);
        asked.ask(lookup, 13, 5);
        asked.run();
        assert_eq!(asked.answer(), Some((10, 0, number(5))));
        assert_eq!(asked.answer(), Some((12, libc::ENOSYS, vec![])));
        assert_eq!(asked.answer(), Some((13, libc::EIO, vec![])), "there is no name");
        assert_eq!(asked.answer(), None);
        assert_eq!(asked.load.get(), Load { under_way: 0, under_way_max: 1, ..Load::default() });
        asked.ask(opcode::DESTROY, 14, 1);
        asked.run();
        assert_eq!(asked.answer(), Some((14, 0, vec![])));
        asked.ended().unwrap();
    }

    #[test]
    fn what_the_kernel_forgets_is_taken_in_as_far_as_it_is_whole() {
        let asked = asked();
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let send = |opcode, node, body: &[u8]| asked.kernel.send(&request(opcode, 1, node, body)).unwrap();
        send(opcode::FORGET, 5, &words(&[3]));
        // A count of two, of one more than there are, and of many more.
        for (count, given) in [(2, 2), (3, 2), (u32::MAX, 1)] {
            let listed = words(&[u64::from(count), 6, 1, 7, 2][..1 + 2 * given]);
            send(opcode::BATCH_FORGET, 0, &listed);
        }
        // One that is cut off, and one of nothing.
        send(opcode::FORGET, 5, &[1]);
        send(opcode::BATCH_FORGET, 0, &[]);
        asked.run();
        assert_eq!(*asked.forgotten.borrow(), [(5, 3), (6, 1), (7, 2), (6, 1), (7, 2), (6, 1)]);
        assert_eq!(asked.answer(), None);
    }

    #[test]
    fn a_sleeper_is_woken() {
        let asked = asked();
        for unique in 0..20 {
            // Longer than the connection is watched.
            asked.runtime.block_on(asked.runtime.handle().sleep(Duration::from_micros(300))).unwrap();
            let kernel = asked.kernel.try_clone().unwrap();
            let late = asked.runtime.handle().blocking(move || {
                kernel.set_nonblocking(false).unwrap();
                kernel.send(&request(opcode::STATFS, unique, 5, &[])).unwrap();
                kernel.recv(&mut [0; 64]).unwrap()
            });
            assert_eq!(asked.runtime.block_on(late).unwrap(), Ok(24));
        }
    }

    #[test]
    fn a_request_that_waits_holds_up_no_other() {
        let asked = asked();
        asked.ask(opcode::STATFS, 1, 2);
        asked.ask(opcode::STATFS, 2, 3);
        asked.run();
        assert_eq!(asked.answer(), Some((2, 0, number(3))));
        assert_eq!(asked.answer(), None);
        assert_eq!(asked.load.get(), Load { under_way: 1, under_way_max: 2, ..Load::default() });
        asked.let_go.notify(1);
        asked.run();
        assert_eq!(asked.answer(), Some((1, 0, number(2))));
        assert_eq!(asked.load.get().under_way, 0);
    }

    /// What the kernel asks while the gate is closed stays with it, and what is under way is answered.
    #[test]
    fn a_closed_gate_leaves_requests_with_the_kernel() {
        let asked = asked();
        asked.ask(opcode::STATFS, 1, 2);
        asked.run();
        asked.gate.close();
        asked.ask(opcode::STATFS, 2, 3);
        assert!(!asked.is_at_rest(5), "the first waits");
        assert_eq!(asked.answer(), None);
        asked.let_go.notify(1);
        assert!(asked.is_at_rest(1000));
        assert_eq!(asked.answer(), Some((1, 0, number(2))));
        asked.run();
        assert_eq!((asked.answer(), asked.gate.list_parked().len()), (None, 0));
        asked.gate.open();
        asked.run();
        assert_eq!(asked.answer(), Some((2, 0, number(3))));
    }

    /// What waits for the kernel gets what the kernel sends first; the rest is parked, and answered when the gate opens.
    #[test]
    fn a_closed_gate_lets_pages_through_that_the_kernel_is_waited_for() {
        let asked = asked();
        asked.ask(opcode::STATFS, 1, 2);
        asked.run();
        asked.gate.close();
        let thread = asked.gate.begin_at_kernel();
        asked.ask(opcode::FSYNC, 2, 3);
        let mut write = [0; 140];
        write[16..20].copy_from_slice(&100_u32.to_ne_bytes());
        asked.kernel.send(&request(opcode::WRITE, 3, 3, &write)).unwrap();
        asked.run();
        assert_eq!(asked.answer(), Some((3, 0, vec![0; 100])));
        assert_eq!((asked.answer(), asked.gate.list_parked().len()), (None, 1));
        asked.let_go.notify(1);
        asked.run();
        assert_eq!(asked.answer(), Some((1, 0, number(2))));
        assert!(!asked.is_at_rest(5), "a thread goes on when its request is answered");
        asked.kernel.send(&request(opcode::WRITE, 4, 3, &write)).unwrap();
        asked.run();
        assert_eq!(asked.answer(), Some((4, 0, vec![0; 100])), "it may wait for this");
        drop(thread);
        assert!(asked.is_at_rest(1000));
        asked.kernel.send(&request(opcode::WRITE, 5, 3, &write)).unwrap();
        asked.run();
        assert_eq!(asked.answer(), None);
        asked.gate.open();
        asked.run();
        assert_eq!([2, 5].map(|_| asked.answer().map(|(unique, ..)| unique)), [Some(2), Some(5)]);
    }

    /// A server that sleeps until a request comes does not sleep on when the gate opens.
    #[test]
    fn what_is_parked_is_answered_though_nothing_more_comes() {
        let asked = asked();
        asked.gate.close();
        let _thread = asked.gate.begin_at_kernel();
        asked.ask(opcode::FSYNC, 1, 3);
        asked.run();
        assert_eq!((asked.answer(), asked.gate.list_parked().len()), (None, 1));
        asked.gate.open();
        asked.run();
        assert_eq!(asked.answer().map(|(unique, ..)| unique), Some(1));
    }

    /// Others have their turn while many are taken in, a handover among them: it waits.
    #[test]
    fn what_is_forgotten_is_taken_in_whole_before_a_handover() {
        let asked = asked();
        let count = 3 * FORGOTTEN_IN_A_ROW as u64;
        let words = std::iter::once(count).chain((0..count).flat_map(|node| [node, 1]));
        let body: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        asked.kernel.send(&request(opcode::BATCH_FORGET, 1, 0, &body)).unwrap();
        let handle = asked.runtime.handle();
        let script = async {
            while asked.forgotten.borrow().is_empty() {
                handle.yield_now().await;
            }
            asked.gate.close();
            assert!((asked.forgotten.borrow().len() as u64) < count, "it has given way");
            assert!(asked.gate.at_rest(&handle, Duration::from_secs(10)).await);
            assert_eq!(asked.forgotten.borrow().len() as u64, count);
        };
        asked.runtime.block_on(script).unwrap();
    }

    /// Its bytes are its own while others come in.
    #[test]
    fn a_request_that_waits_keeps_what_was_written() {
        let asked = asked();
        let write = |unique, node, byte| {
            let mut body = vec![0; 40 + 100];
            body[16..20].copy_from_slice(&100_u32.to_ne_bytes());
            body[40..].fill(byte);
            asked.kernel.send(&request(opcode::WRITE, unique, node, &body)).unwrap();
        };
        write(1, 2, 0xA);
        write(2, 3, 0xB);
        write(3, 2, 0xC);
        asked.run();
        assert_eq!(asked.answer(), Some((2, 0, vec![0xB; 100])));
        asked.let_go.notify(2);
        asked.run();
        assert_eq!(asked.answer(), Some((1, 0, vec![0xA; 100])));
        assert_eq!(asked.answer(), Some((3, 0, vec![0xC; 100])));
    }

    #[test]
    fn the_bound_holds_and_the_rest_waits_with_the_kernel() {
        let asked = asked();
        let kernel = asked.kernel.try_clone().unwrap();
        let count = UNDER_WAY_MAX + 20;
        asked.kernel.set_nonblocking(false).unwrap();
        let asking = asked.runtime.handle().blocking(move || {
            for unique in 0..count {
                kernel.send(&request(opcode::OPEN, unique, 2, &[0; 8])).unwrap();
            }
        });
        while asked.load.get().under_way < UNDER_WAY_MAX {
            asked.run();
        }
        asked.run();
        assert_eq!(
            asked.load.get(),
            Load { under_way: UNDER_WAY_MAX, under_way_max: UNDER_WAY_MAX, ..Load::default() }
        );
        // One by one, since a socket takes few answers.
        for _ in 0..count {
            while asked.load.get().under_way == 0 {
                asked.run();
            }
            asked.let_go.notify(1);
            asked.runtime.block_on(asked.runtime.handle().yield_now()).unwrap();
            let (_, error, body) = asked.answer().unwrap();
            assert_eq!((error, body.len()), (0, 16));
        }
        asked.runtime.block_on(asking).unwrap().unwrap();
        asked.kernel.set_nonblocking(true).unwrap();
        assert_eq!(asked.answer(), None);
        assert_eq!(asked.load.get(), Load { under_way: 0, under_way_max: UNDER_WAY_MAX, ..Load::default() });
    }

    /// Requests that read 1 MiB each: more than so many bytes are not read at one time, whatever their number, and others are
    /// answered meanwhile.
    #[test]
    fn reads_wait_for_room_and_hold_up_nobody() {
        let asked = asked();
        let each = u64::from(TRANSFER_BYTES) + AHEAD_BYTES;
        let most = REQUEST_BYTES_UNDER_WAY_MAX / READS_SHARE.1 * READS_SHARE.0 / each;
        let mut read = [0; 40];
        read[16..20].copy_from_slice(&TRANSFER_BYTES.to_ne_bytes());
        for unique in 0..4 * most {
            asked.kernel.send(&request(opcode::READ, unique, 2, &read)).unwrap();
            asked.run();
        }
        assert_eq!((asked.load.get().under_way, asked.let_go.total_listeners() as u64), (4 * most, most));
        asked.ask(opcode::STATFS, 1000, 5);
        asked.run();
        assert_eq!(asked.answer(), Some((1000, 0, number(5))));
        // Each that is answered lets another one begin.
        for left in (0..4 * most).rev() {
            asked.let_go.notify(1);
            asked.run();
            assert!(asked.answer().is_some());
            assert_eq!(asked.let_go.total_listeners() as u64, left.min(most));
        }
        assert_eq!(asked.load.get().under_way, 0);
    }

    /// Writes have their bytes with them, and wait with the kernel.
    #[test]
    fn what_is_long_waits_with_the_kernel() {
        let asked = asked();
        let mut write = vec![0; 40 + 100_000];
        write[16..20].copy_from_slice(&100_000_u32.to_ne_bytes());
        let most = REQUEST_BYTES_UNDER_WAY_MAX.div_ceil(write.len() as u64);
        for unique in 0..most + 8 {
            // Of a socket that is full the rest is sent when there is room.
            if asked.kernel.send(&request(opcode::WRITE, unique, 2, &write)).is_err() {
                break;
            }
            asked.run();
        }
        assert_eq!(asked.load.get(), Load { under_way: most, under_way_max: most, ..Load::default() });
    }

    #[test]
    fn what_nobody_takes_is_taken_back() {
        let Asked { runtime, kernel, gate, let_go, taken_back, .. } = asked();
        for node in [2, 2] {
            kernel.send(&request(opcode::OPEN, 1, node, &[0; 8])).unwrap();
        }
        run(&runtime);
        let_go.notify(1);
        run(&runtime);
        assert!(taken_back.borrow().is_empty());
        drop(kernel);
        let_go.notify(1);
        run(&runtime);
        let handle = runtime.handle();
        let is_at_rest = || runtime.block_on(gate.at_rest(&handle, Duration::from_millis(5))).unwrap();
        assert!(!is_at_rest() && taken_back.borrow().is_empty());
        let_go.notify(1);
        assert!(is_at_rest());
        assert_eq!(*taken_back.borrow(), [2]);
    }

    /// A request without a number cannot be answered.
    #[test]
    fn less_than_a_header_ends_it() {
        let asked = asked();
        asked.kernel.send(&[0; 39]).unwrap();
        assert_eq!(asked.ended().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
