//! *Stop condition*: when a command has to end, whatever it does: at the end of a time, or when the user says so.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

/// Flags that end commands, and perhaps a time that does. The kernel keeps the time, for all threads.
#[derive(Clone, Debug)]
pub struct StopCondition {
    flags: Vec<Arc<AtomicBool>>,
    timer: Option<Arc<OwnedFd>>,
}

impl StopCondition {
    /// Of a flag, which becomes true when commands have to end.
    #[must_use]
    pub fn from_flag(flag: &Arc<AtomicBool>) -> StopCondition {
        StopCondition { flags: vec![Arc::clone(flag)], timer: None }
    }

    /// Of another flag besides.
    #[must_use]
    pub(crate) fn or_flag(mut self, flag: &Arc<AtomicBool>) -> StopCondition {
        self.flags.push(Arc::clone(flag));
        self
    }

    /// Of the same flags, and a time from now on.
    ///
    /// # Errors
    /// What making a timer fails by.
    pub fn after(&self, time: Duration) -> io::Result<StopCondition> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        // A time of nothing would be no timer.
        let time = time.max(Duration::from_nanos(1));
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let it_value = Timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
        Ok(StopCondition { flags: self.flags.clone(), timer: Some(Arc::new(timer)) })
    }

    /// A flag says so.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.flags.iter().any(|flag| flag.load(Ordering::Relaxed))
    }

    /// Commands have to end.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.is_interrupted() || self.timer().is_some_and(|timer| is_readable(timer).unwrap_or(true))
    }

    /// Becomes readable when the time is over.
    pub(crate) fn timer(&self) -> Option<BorrowedFd<'_>> {
        self.timer.as_ref().map(|timer| timer.as_fd())
    }
}

fn is_readable(descriptor: BorrowedFd<'_>) -> io::Result<bool> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = retry_on_intr(|| poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&now)))?;
    Ok(ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_or_a_time_stops() {
        let flag = Arc::new(AtomicBool::new(false));
        let stop = StopCondition::from_flag(&flag);
        let (soon, late) = (stop.after(Duration::ZERO).unwrap(), stop.after(Duration::MAX).unwrap());
        let timer = PollFd::new(soon.timer.as_ref().unwrap(), PollFlags::IN);
        assert_eq!(poll(&mut [timer], None), Ok(1));
        assert!(soon.is_met() && !soon.is_interrupted() && !late.is_met() && !stop.is_met());
        flag.store(true, Ordering::Relaxed);
        assert!(late.is_met() && late.is_interrupted() && stop.is_met());
    }
}
