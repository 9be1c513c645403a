//! Requests as the kernel describes them, from a kernel of the test: what they do, what they are refused for, and that
//! nonsense is refused, too.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use weir_export::{BYTES_MAX, Export, ExportMutant, ExportOptions};
use weir_runtime::{Handle, Receiver, Runtime, Sender, Simulation, channel};
use weir_storage::{AdversaryDisk, AdversaryOptions, Capabilities, Discard, Lba, Rules};
use weir_ublk::{DATA_BYTES_MAX, Places, Serving};

const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 2;
const DISCARD: u32 = 3;
const WRITE_ZEROES: u32 = 5;
const FUA: u32 = 1 << 13;
const NO_UNMAP: u32 = 1 << 15;

const EPERM: i32 = -1;
const EIO: i32 = -5;
const EINVAL: i32 = -22;

const PLACES: u16 = 64;
const BLOCKS: u64 = 512;
const SECTORS: u64 = BLOCKS * 8;

type Description = [u8; 24];
/// A place, and what came of the request in it.
type Answer = (u16, i32);

fn describe(operation: u32, sectors: u32, first: u64) -> Description {
    let mut description = [0; 24];
    description[..4].copy_from_slice(&operation.to_ne_bytes());
    description[4..8].copy_from_slice(&sectors.to_ne_bytes());
    description[8..16].copy_from_slice(&first.to_ne_bytes());
    description
}

/// The kernel's side of the places.
struct Kernel {
    requests: Vec<(Sender<Description>, Receiver<Description>)>,
    answers: (Sender<Answer>, Receiver<Answer>),
    /// The data of the request in each place.
    data: RefCell<Vec<Vec<u8>>>,
}

impl Kernel {
    fn new() -> Rc<Kernel> {
        Rc::new(Kernel {
            requests: (0..PLACES).map(|_| channel(1)).collect(),
            answers: channel(PLACES.into()),
            data: RefCell::new(vec![Vec::new(); PLACES.into()]),
        })
    }

    fn send(&self, tag: u16, description: Description) {
        self.requests[usize::from(tag)].0.try_send(description).unwrap();
    }

    /// What comes of a request with so much data.
    async fn ask_with(&self, description: Description, data: Vec<u8>) -> i32 {
        self.data.borrow_mut()[0] = data;
        self.send(0, description);
        let (tag, answer) = self.answers.1.recv().await.unwrap();
        assert_eq!(tag, 0);
        answer
    }

    async fn ask(&self, operation: u32, sectors: u32, first: u64) -> i32 {
        let data = vec![1; sectors.min(1024) as usize * 512];
        self.ask_with(describe(operation, sectors, first), data).await
    }

    async fn writes(&self, operation: u32, first: u64, byte: u8, sectors: u32) {
        let data = vec![byte; sectors as usize * 512];
        let bytes = data.len() as i32;
        assert_eq!(self.ask_with(describe(operation, sectors, first), data).await, bytes);
    }

    async fn reads(&self, first: u64, sectors: u32) -> Vec<u8> {
        assert_eq!(self.ask(READ, sectors, first).await, sectors as i32 * 512);
        self.data.borrow()[0].clone()
    }
}

impl Places for Kernel {
    async fn next(&self, tag: u16, answer: Option<i32>) -> io::Result<Description> {
        if let Some(answer) = answer {
            self.answers.0.send((tag, answer)).await.map_err(io::Error::other)?;
        }
        self.requests[usize::from(tag)].1.recv().await.map_err(io::Error::other)
    }

    fn take_data(&self, tag: u16, data: &mut [u8]) -> io::Result<()> {
        let all = &self.data.borrow()[usize::from(tag)];
        data.copy_from_slice(all.get(..data.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn give_data(&self, tag: u16, data: &[u8]) -> io::Result<()> {
        let all = &mut self.data.borrow_mut()[usize::from(tag)];
        all.get_mut(..data.len()).ok_or(io::ErrorKind::WriteZero)?.copy_from_slice(data);
        Ok(())
    }
}

/// Does something with the kernel of a served disk in virtual time.
fn with_kernel<T>(
    options: ExportOptions,
    work: impl AsyncFnOnce(&Handle, &Rc<Kernel>, &Rc<AdversaryDisk>, Serving) -> T,
) -> T {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let capabilities = Capabilities { discard: Discard::ReadsZero, ..Capabilities::legacy(32, 64, 512) };
    let disk = AdversaryOptions { blocks: BLOCKS, capabilities, ..AdversaryOptions::default() };
    let disk = AdversaryDisk::new(&handle, disk);
    let export = Rc::new(Export::new(disk.clone(), options).unwrap());
    let kernel = Kernel::new();
    let serving = Serving::start(&handle, &export, &kernel);
    runtime.block_on(work(&handle, &kernel, &disk, serving)).unwrap()
}

#[test]
fn sectors_are_what_was_last_written_there() {
    with_kernel(ExportOptions::default(), async |_, kernel, _, _serving| {
        let mut model = vec![0; 512 * 64];
        for (nth, (first, sectors)) in
            [(0, 8), (3, 1), (7, 2), (8, 16), (5, 40), (63, 1)].into_iter().enumerate()
        {
            let byte = nth as u8 + 1;
            kernel.writes(WRITE, first, byte, sectors).await;
            model[first as usize * 512..][..sectors as usize * 512].fill(byte);
        }
        assert_eq!(kernel.reads(0, 64).await, model);
        assert_eq!(kernel.ask(DISCARD, 16, 16).await, 0);
        assert_eq!(kernel.ask(WRITE_ZEROES | NO_UNMAP, 3, 1).await, 0);
        assert_eq!(kernel.ask(FLUSH, 0, 0).await, 0);
        model[16 * 512..32 * 512].fill(0);
        model[512..4 * 512].fill(0);
        assert_eq!(kernel.reads(0, 64).await, model);
    });
}

#[test]
fn a_request_that_cannot_be_done_is_refused() {
    with_kernel(ExportOptions::default(), async |_, kernel, _, _serving| {
        let most = DATA_BYTES_MAX / 512;
        assert_eq!(kernel.ask(READ, most, 0).await, DATA_BYTES_MAX as i32);
        assert_eq!(kernel.ask(READ, most + 1, 0).await, EINVAL);
        assert_eq!(kernel.ask(WRITE, 0, 0).await, EINVAL);
        assert_eq!(kernel.ask(WRITE, 1, SECTORS - 1).await, 512);
        for first in [SECTORS, u64::MAX / 512, u64::MAX] {
            assert_eq!(kernel.ask(WRITE, 1, first).await, EINVAL, "{first}");
        }
        assert_eq!(kernel.ask(READ, 2, SECTORS - 1).await, EINVAL);
        for unknown in [4, 10, 13, 255] {
            assert_eq!(kernel.ask(unknown, 8, 0).await, EINVAL, "{unknown}");
        }
        let too_short = kernel.ask_with(describe(WRITE, 2, 0), vec![1; 512]).await;
        assert_eq!(too_short, EIO, "the data cannot be copied");
    });
    with_kernel(
        ExportOptions { read_only: true, ..ExportOptions::default() },
        async |_, kernel, _, _serving| {
            for change in [WRITE, DISCARD, WRITE_ZEROES] {
                assert_eq!(kernel.ask(change, 8, 0).await, EPERM, "{change}");
            }
            assert_eq!(kernel.reads(0, 8).await, [0; 4096]);
            assert_eq!(kernel.ask(FLUSH, 0, 0).await, 0);
        },
    );
}

/// Bytes that are read for requests of so many sectors, one in each place at the same time.
fn read_at_one_time(sectors: u32, mutant: Option<ExportMutant>) -> u64 {
    let options = ExportOptions { rules: Rules::but(mutant), ..ExportOptions::default() };
    with_kernel(options, async |_, kernel, _, _serving| {
        *kernel.data.borrow_mut() = vec![vec![0; sectors as usize * 512]; PLACES.into()];
        (0..PLACES).for_each(|tag| kernel.send(tag, describe(READ, sectors, 0)));
        let mut read = 0;
        for _ in 0..PLACES {
            let (_, answer) = kernel.answers.1.recv().await.unwrap();
            read += u64::try_from(answer).unwrap_or(0);
        }
        read
    })
}

#[test]
fn requests_and_bytes_under_way_have_limits() {
    let most = DATA_BYTES_MAX / 512;
    assert_eq!(read_at_one_time(most, None), BYTES_MAX);
    assert_eq!(read_at_one_time(most + 1, None), 0);
}

#[test]
fn n3_requests_without_a_limit_are_noticed() {
    let mutant = Some(ExportMutant::LoadUnbounded);
    assert!(read_at_one_time(DATA_BYTES_MAX / 512 + 1, mutant) > BYTES_MAX);
}

/// Whether a block of nines survives in all of many crash states, after these requests were answered.
fn survives(requests: &[(u32, u32)]) -> bool {
    with_kernel(ExportOptions::default(), async |handle, kernel, disk, _serving| {
        for (operation, sectors) in requests {
            match *sectors {
                0 => assert_eq!(kernel.ask(*operation, 0, 0).await, 0),
                sectors => kernel.writes(*operation, 0, 9, sectors).await,
            }
        }
        let (states, mut random) = (disk.crash_states(), handle.random("test"));
        (0..50).all(|_| states.sample(&mut random).read(Lba(0)) == [9; 4096])
    })
}

#[test]
fn what_a_flush_or_fua_covers_is_durable() {
    assert!(survives(&[(WRITE, 8), (FLUSH, 0)]));
    assert!(survives(&[(WRITE | FUA, 8)]));
    assert!(!survives(&[(WRITE, 8)]), "the disk keeps what it likes");
}

/// At the end, requests that have begun are answered; the others wait for the next server.
#[test]
fn at_the_end_no_request_begins() {
    with_kernel(ExportOptions::default(), async |handle, kernel, _, serving| {
        kernel.writes(WRITE, 0, 1, 8).await;
        *kernel.data.borrow_mut() = vec![vec![2; 4096]; PLACES.into()];
        kernel.send(1, describe(WRITE, 8, 8));
        handle.sleep(Duration::ZERO).await;
        let ending = handle.spawn(serving.end());
        handle.yield_now().await;
        kernel.send(2, describe(WRITE, 8, 16));
        ending.await.unwrap();
        handle.sleep(Duration::from_secs(1)).await;
        assert_eq!(kernel.answers.1.try_recv().unwrap(), (1, 4096));
        assert!(kernel.answers.1.try_recv().is_err(), "the last request was not begun");
    });
}

/// Descriptions that look like some, and others.
fn description() -> impl Strategy<Value = Description> {
    let operations =
        prop_oneof![Just(READ), Just(WRITE), Just(WRITE | FUA), Just(DISCARD), 0..20_u32, any::<u32>()];
    let sectors = prop_oneof![0..700_u32, any::<u32>()];
    let firsts = prop_oneof![0..SECTORS + 9, any::<u64>()];
    prop_oneof![
        (operations, sectors, firsts)
            .prop_map(|(operation, sectors, first)| describe(operation, sectors, first)),
        any::<Description>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever comes in many places at a time, each request is answered by what it asked for or an error number, once.
    #[test]
    fn whatever_comes_is_answered(descriptions in vec(description(), 0..PLACES.into())) {
        with_kernel(ExportOptions::default(), async |_, kernel, _, _serving| {
            *kernel.data.borrow_mut() = vec![vec![7; DATA_BYTES_MAX as usize]; PLACES.into()];
            for (tag, description) in descriptions.iter().enumerate() {
                kernel.send(tag as u16, *description);
            }
            let mut answered = BTreeSet::new();
            for _ in &descriptions {
                let (tag, answer) = kernel.answers.1.recv().await.unwrap();
                assert!(answered.insert(tag) && usize::from(tag) < descriptions.len());
                assert!((-95..=DATA_BYTES_MAX as i32).contains(&answer), "{answer}");
            }
            kernel.writes(WRITE, 8, 3, 8).await;
            assert_eq!(kernel.reads(8, 8).await, [3; 4096]);
        });
    }
}
