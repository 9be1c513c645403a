//! What signals do to a command that serves a mount. A signal that does nothing here by itself would end the program at once,
//! and take with it what programs have written and not synchronised.

use rustix::process::Signal;
use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU,
};
use signal_hook::iterator::Signals;

use crate::messages::Log;

/// These make everything durable, and unmount.
const ENDING: [i32; 5] = [SIGTERM, SIGINT, SIGQUIT, SIGXCPU, Signal::POWER.as_raw()];
/// These do nothing; of SIGUSR1, `weir disk --cuts` makes something else. SIGPIPE and SIGXFSZ do nothing in any command.
const IGNORED: [i32; 7] = [SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, Signal::STKFLT.as_raw()];

/// Catches the signals from now on; they are pending until [`until_end`] reads them.
pub(crate) fn take() -> std::io::Result<Signals> {
    Signals::new(ENDING.iter().chain(&IGNORED).chain(&[SIGHUP]))
}

/// Waits for a signal that ends the service. SIGHUP opens the log anew, as a program that rotates logs wants it. Without a log it
/// ends a service in the foreground, whose terminal has gone, and does nothing to one in the background.
pub(crate) fn until_end(mut signals: Signals, log: Option<&Log>, in_foreground: bool) {
    for signal in signals.forever() {
        match (signal, log) {
            (SIGHUP, Some(log)) => log.reopen(),
            (SIGHUP, None) if in_foreground => return,
            (ending, _) if ENDING.contains(&ending) => return,
            _ => {}
        }
    }
}
