//! What tasks see of their runtime.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rand::Rng as _;

use crate::clock::{cpu_time, peak_memory_bytes};
use crate::cores::{CoreScheduler, Cores};
use crate::executor::Executor;
use crate::random::kernel_entropy;
use crate::trace::{finish, mix};
use crate::{Cancelled, CpuTime, Instant, Random, Remote, Ring, Sleep, Task, ThreadCounts, Work};

/// A reference to a runtime, cheap to clone, for use on the runtime's own thread.
///
/// A handle may outlive its runtime: then spawned tasks are [`Cancelled`] at once and the ring is full.
#[derive(Clone, Debug)]
pub struct Handle(pub(crate) Rc<Executor>);

/// Time.
impl Handle {
    /// Nanoseconds since the runtime started, on its own clock.
    pub fn now(&self) -> Instant {
        self.0.clock.now()
    }

    /// Finishes when `duration` has passed.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now() + duration)
    }

    /// Finishes at `deadline`, at once if it has passed.
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep::new(Rc::clone(&self.0), deadline)
    }

    /// Lets every task that is ready now run once.
    pub fn yield_now(&self) -> YieldNow {
        YieldNow(false)
    }

    /// Lets all others run that have something to do: the tasks that are ready, or else other threads of the
    /// machine; then looks at timers and completions, too. This is for a caller that looks again and again for
    /// something that nothing will wake it for. In virtual time it is [`yield_now`](Self::yield_now).
    pub fn give_way(&self) -> GiveWay {
        GiveWay { handle: self.clone(), given: false }
    }

    /// Whether another program had the processor for long when all here [gave way](Self::give_way), within the last tenth of
    /// a second; or the time of the processors is [limited](crate::Wall::quota). A caller that looks again and again had better sleep then: the system lets a thread that is woken run
    /// at once, and one that gives way when the others have had their turns, which are milliseconds.
    pub fn is_crowded(&self) -> bool {
        self.0.is_crowded()
    }

    /// Whether time is virtual: it then passes only by timers, and the run is deterministic.
    pub fn is_virtual(&self) -> bool {
        self.0.clock.is_virtual()
    }

    /// The time since a moment in the past, with that which the machine was suspended: [`now`](Self::now) stands still
    /// then. Steps of the machine's date do not change it. In virtual time it is [`now`](Self::now).
    pub fn now_with_suspensions(&self) -> Instant {
        self.0.clock.with_suspensions()
    }

    /// Unix time in nanoseconds, for the times of files: the machine's date now, as of its last timer interrupt, up to
    /// 10 ms ago. It follows every step of that date, so it may go back, and counts the time that the machine was
    /// suspended; [`now`](Self::now) does neither. In virtual time it starts at a date derived from the seed and passes
    /// with the virtual clock.
    pub fn wall_clock_nanos(&self) -> u64 {
        self.0.clock.unix_nanos(self.seed())
    }

    /// The same in milliseconds, for file headers.
    pub fn wall_clock_millis(&self) -> u64 {
        self.wall_clock_nanos() / 1_000_000
    }

    /// Steps the date that this runtime sees by so many nanoseconds, as setting the machine's clock steps the date of
    /// everybody. No timer notices. It is there for tests.
    pub fn step_wall_clock(&self, nanos: i64) {
        self.0.clock.step(nanos);
    }

    /// Processor time this process has used. It is real in either clock, so never let a simulated result
    /// depend on it.
    pub fn cpu_time(&self) -> CpuTime {
        cpu_time()
    }

    /// The most memory that this process had resident so far, in bytes. As with
    /// [`cpu_time`](Self::cpu_time), never let a simulated result depend on it.
    pub fn peak_memory_bytes(&self) -> u64 {
        peak_memory_bytes()
    }
}

/// Tasks.
impl Handle {
    /// Starts a task.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        Task::spawn(&self.0, None, future)
    }

    /// Polls a future once, here and now; what is left of it then is a task. For work that mostly need not wait.
    pub fn begin(&self, future: impl Future<Output = ()> + 'static) {
        let mut future: Pin<Box<dyn Future<Output = ()>>> = Box::pin(future);
        // What wakes it before it is a task wakes no task, but a new task is ready in any case.
        if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            drop(self.spawn(future));
        }
    }

    /// Starts a task that stands for a host thread: on simulated cores it needs a core to run and pays for
    /// context switches (see [`Cores`](crate::Cores)). Otherwise the same as [`spawn`](Self::spawn).
    pub fn spawn_thread<T: 'static>(&self, name: &str, future: impl Future<Output = T> + 'static) -> Task<T> {
        Task::spawn(&self.0, Some(name), future)
    }

    /// Spends `duration` of processor time: the current simulated thread keeps its core that long. Does
    /// nothing elsewhere: in wall time, without simulated cores, in plain tasks.
    pub fn work(&self, duration: Duration) -> Work {
        Work::new(Rc::clone(&self.0), duration)
    }

    /// Spends what a request to the device costs the current simulated thread ([`Cores::dispatch`](crate::Cores)).
    /// Nothing elsewhere: a machine's own cores do their work in their own time.
    pub async fn spend_dispatch(&self) {
        self.spend(|cores| cores.dispatch).await;
    }

    /// Spends what the end of a request costs the current simulated thread, which waited for it
    /// ([`Cores::completion`](crate::Cores)). Nothing elsewhere.
    pub async fn spend_completion(&self) {
        self.spend(|cores| cores.completion).await;
    }

    /// Spends what it costs the current simulated thread to make `blocks` blocks of a journal's log
    /// ([`Cores::compose`](crate::Cores)). Nothing elsewhere.
    pub async fn spend_compose(&self, blocks: usize) {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        self.spend(|cores| cores.compose.saturating_mul(blocks)).await;
    }

    /// Spends what it costs the current simulated thread to look at `pages` dirty pages ([`Cores::scan`](crate::Cores)).
    /// Nothing elsewhere.
    pub async fn spend_scan(&self, pages: u64) {
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        self.spend(|cores| cores.scan.saturating_mul(pages)).await;
    }

    async fn spend(&self, cost: impl FnOnce(Cores) -> Duration) {
        let cost = self.0.cores.as_ref().map(|scheduler| cost(scheduler.cores()));
        if let Some(cost) = cost.filter(|cost| !cost.is_zero()) {
            self.work(cost).await;
        }
    }

    /// Context switches of simulated threads so far.
    pub fn switches(&self) -> ThreadCounts {
        self.0.cores.as_ref().map(CoreScheduler::counts).unwrap_or_default()
    }

    /// Runs `job` on an operating-system thread of its own and gives its result, or [`Cancelled`] if the job
    /// panicked or the system has no thread left. In virtual time the job runs here and now, so that the run
    /// stays deterministic.
    ///
    /// Every call is a thread: callers bound how many they start.
    #[expect(clippy::disallowed_methods, reason = "all others ask here")]
    pub fn blocking<T: Send + 'static, J: FnOnce() -> T + Send + 'static>(
        &self,
        job: J,
    ) -> impl Future<Output = Result<T, Cancelled>> + use<T, J> {
        let (sender, receiver) = async_channel::bounded(1);
        // A failed send means that no task waits for the result any more.
        let work = move || drop(sender.try_send(job()));
        if self.is_virtual() {
            work();
        } else {
            // If no thread can be started, the closure and its sender are dropped, and the receiver sees it.
            drop(std::thread::Builder::new().name("weir-blocking".to_owned()).spawn(work));
        }
        async move { receiver.recv().await.map_err(|_| Cancelled) }
    }

    /// The runtime as other threads see it.
    pub fn remote(&self) -> Remote {
        Remote::new(self.0.ready.clone())
    }

    /// The io_uring; none in virtual time.
    pub fn ring(&self) -> Option<Ring> {
        self.0.ring.clone()
    }
}

/// Determinism.
impl Handle {
    /// The seed of this run.
    pub fn seed(&self) -> u64 {
        self.0.streams.seed
    }

    /// An independent random stream. It depends on the seed, the label, and how many streams of this label
    /// were taken before.
    pub fn random(&self, label: &str) -> Random {
        self.0.streams.take(label)
    }

    /// A number that no caller draws twice, for identities that must differ from those of other runs. In virtual
    /// time it comes from the seeded stream `entropy`. In wall time it comes from the kernel, whatever the
    /// seed; where a sandbox forbids that, from the time and the process.
    pub fn entropy(&self) -> u64 {
        let seeded = || self.random("entropy").next_u64();
        if self.is_virtual() {
            return seeded();
        }
        kernel_entropy().unwrap_or_else(|| {
            let now = self.now().as_nanos() ^ u64::from(std::process::id()).rotate_left(32);
            finish(mix(mix(seeded(), self.wall_clock_millis()), now))
        })
    }

    /// Folds `words` into the trace hash. Does nothing in wall time, where no two runs are alike.
    pub fn trace(&self, words: &[u64]) {
        if self.is_virtual() {
            self.0.trace.fold(words);
        }
    }

    /// A hash of everything that happened so far: every poll with its time and task, and all that was traced.
    pub fn trace_hash(&self) -> u64 {
        self.0.trace.value()
    }
}

/// See [`Handle::yield_now`].
#[derive(Debug)]
#[must_use = "nothing is yielded unless awaited"]
pub struct YieldNow(bool);

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// See [`Handle::give_way`].
#[derive(Debug)]
#[must_use = "no other task is given way unless awaited"]
pub struct GiveWay {
    handle: Handle,
    given: bool,
}

impl Future for GiveWay {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.given, true) {
            return Poll::Ready(());
        }
        self.handle.0.give_way(context.waker());
        Poll::Pending
    }
}
