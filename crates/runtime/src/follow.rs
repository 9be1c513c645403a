//! Being where one is needed.
//!
//! Who serves one caller at a time sleeps while that works, and works while that sleeps: both have room on one core.
//! On two, each request wakes a core up that sleeps, and each answer another one. On a machine of its own that costs
//! microseconds, and on a virtual one tens of them: more than most requests take. The system's scheduler prefers the
//! core that is free, so a server that knows better says so.

use std::fs::File;
use std::io::Read as _;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Requests of one caller, one at a time, after which it is looked whether they would go faster, or still do.
const STRETCH: u32 = 64;
/// The longest pause between two tries that do not help, in stretches.
const PAUSE_MAX: u32 = 1024;
/// Bytes of `/proc/PID/stat` that are read; it has some 50 numbers.
const STAT_MAX: usize = 1024;

/// Moves the thread that it was made on to the core of whom it serves, as long as that makes it faster.
///
/// It is measured: the first stretch of requests that one caller makes alone says what they take now; if the next one,
/// on the caller's core, takes longer, the thread goes back to where it may be by itself, and tries again later.
#[derive(Debug)]
pub struct Follower {
    /// Where the thread may be by itself; none if the system does not tell, and then it stays there.
    anywhere: Option<CpuSet>,
    caller: u32,
    /// Requests of the stretch so far, and when it began.
    requests: u32,
    began: Instant,
    trial: Trial,
    at: Option<u32>,
}

impl Follower {
    /// Follows with the thread that calls this, and no other.
    #[must_use]
    pub fn new() -> Follower {
        Follower {
            anywhere: sched_getaffinity(None).ok().filter(|cores| cores.count() > 1),
            caller: 0,
            requests: 0,
            began: Instant::now(),
            trial: Trial::default(),
            at: None,
        }
    }

    /// A request has come, from the thread with this number. `alone` says that no other is being answered.
    pub fn asked_by(&mut self, caller: u32, alone: bool) {
        if !alone || caller != self.caller {
            self.caller = if alone { caller } else { 0 };
            self.requests = 0;
            self.let_go();
            return;
        }
        if self.requests == 0 {
            self.began = Instant::now();
        }
        self.requests += 1;
        if self.requests > STRETCH {
            self.requests = 0;
            match self.trial.took(self.began.elapsed()) {
                Next::Stay => {}
                Next::Follow => self.follow(),
                Next::LetGo => self.let_go(),
            }
        }
    }

    /// Goes to the caller's core. A caller that cannot be found, as it is another machine's or is not to be seen, is
    /// not followed.
    fn follow(&mut self) {
        let Some(anywhere) = self.anywhere else { return self.trial.stop() };
        let Some(core) = core_of(self.caller).filter(|core| anywhere.is_set(*core as usize)) else {
            return self.let_go();
        };
        if self.at == Some(core) {
            return;
        }
        let mut only = CpuSet::new();
        only.set(core as usize);
        if sched_setaffinity(None, &only).is_ok() {
            self.at = Some(core);
        }
    }

    fn let_go(&mut self) {
        self.trial.stop();
        if let (Some(_), Some(anywhere)) = (self.at.take(), self.anywhere) {
            // It was the thread's own place before.
            let _ = sched_setaffinity(None, &anywhere);
        }
    }
}

impl Default for Follower {
    fn default() -> Self {
        Follower::new()
    }
}

/// What a stretch has taught.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Stay,
    Follow,
    LetGo,
}

/// Whether to follow helps.
#[derive(Debug, Default)]
struct Trial {
    /// What the last stretch took that was not followed, while one is.
    before: Option<Duration>,
    /// Stretches until the next try, and how many it was the last time.
    wait: u32,
    pause: u32,
}

impl Trial {
    fn took(&mut self, time: Duration) -> Next {
        match self.before {
            Some(before) if time > before => {
                self.before = None;
                self.pause = (self.pause * 2).clamp(1, PAUSE_MAX);
                self.wait = self.pause;
                Next::LetGo
            }
            // Again, as the system may have moved the caller.
            Some(_) => {
                self.pause = 0;
                Next::Follow
            }
            None if self.wait > 0 => {
                self.wait -= 1;
                Next::Stay
            }
            None => {
                self.before = Some(time);
                Next::Follow
            }
        }
    }

    /// Nobody is followed any more, for another reason than time.
    fn stop(&mut self) {
        self.before = None;
    }
}

/// The core that a thread ran on last.
fn core_of(thread: u32) -> Option<u32> {
    let mut bytes = [0; STAT_MAX];
    let length = File::open(format!("/proc/{thread}/stat")).ok()?.read(&mut bytes).ok()?;
    core_in(std::str::from_utf8(&bytes[..length]).ok()?)
}

/// The core in a line of `/proc/PID/stat`: its 39th field. The second is a name in parentheses that may hold anything.
fn core_in(stat: &str) -> Option<u32> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Duration = Duration::from_micros(700);
    const SLOW: Duration = Duration::from_millis(3);

    #[test]
    fn the_core_is_read_behind_any_name() {
        // Each number is the number of its field.
        let numbers: Vec<String> = (4..=52).map(|field: u32| field.to_string()).collect();
        assert_eq!(core_in(&format!("17 (a) b (c) S {}", numbers.join(" "))), Some(39));
        assert_eq!(core_in("17 (a) S 1"), None);
        assert_eq!(core_in(""), None);
        assert!(core_of(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()).is_some());
        assert_eq!(core_of(0), None);
    }

    #[test]
    fn what_is_faster_is_kept() {
        let mut trial = Trial::default();
        assert_eq!(trial.took(SLOW), Next::Follow);
        for _ in 0..10 {
            assert_eq!(trial.took(FAST), Next::Follow);
        }
        assert_eq!(trial.took(SLOW * 2), Next::LetGo);
        assert_eq!(trial.took(SLOW), Next::Stay);
        assert_eq!(trial.took(SLOW), Next::Follow);
    }

    #[test]
    fn what_is_slower_is_tried_ever_more_rarely() {
        let mut trial = Trial::default();
        let mut tries = Vec::new();
        for stretch in 0..8000 {
            let following = trial.before.is_some();
            if trial.took(if following { SLOW } else { FAST }) == Next::Follow {
                tries.push(stretch);
            }
        }
        assert!((10..20).contains(&tries.len()), "{tries:?}");
        assert!(tries.windows(3).all(|three| three[2] - three[1] >= three[1] - three[0]), "{tries:?}");
    }

    /// The follower's thread is on the caller's core, if it has let two stretches pass, and gone when another calls.
    #[test]
    fn it_goes_where_the_caller_is() {
        let own = sched_getaffinity(None).expect("a thread has cores");
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| own.is_set(*core)).collect();
        let [.., last] = cores[..] else { return };
        if cores.len() < 2 {
            eprintln!("skipped: it takes two cores");
            return;
        }
        let caller = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let mut only = CpuSet::new();
        only.set(last);
        sched_setaffinity(None, &only).expect("its own core");
        let served = std::thread::spawn(move || {
            sched_setaffinity(None, &own).expect("all cores");
            let mut follower = Follower::new();
            let places = || sched_getaffinity(None).expect("a thread has cores").count();
            let before = places();
            // Twice as long as needed: of two stretches the second may be the slower one.
            let followed = (0..64 * STRETCH).any(|_| {
                follower.asked_by(caller, true);
                places() == 1
            });
            let at = follower.at;
            follower.asked_by(caller, false);
            (before, followed, at, places())
        });
        let (before, followed, at, after) = served.join().expect("it does not panic");
        sched_setaffinity(None, &own).expect("its own cores");
        assert!(followed && before == after, "{before} {after}");
        assert_eq!(at, Some(last as u32));
    }
}
