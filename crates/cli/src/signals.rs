//! What signals do to a command that serves a mount. A signal that does nothing here by itself would end the program at once,
//! and take with it what programs have written and not synchronised.

use nix::sys::signal::SigSet;
use rustix::process::Signal;
use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU,
};
use signal_hook::iterator::Signals;

use crate::messages::Log;

/// These make everything durable, and unmount.
const ENDING: [i32; 5] = [SIGTERM, SIGINT, SIGQUIT, SIGXCPU, Signal::POWER.as_raw()];
/// These do nothing; of SIGUSR1, `weir disk --cuts` makes something else. SIGPIPE and SIGXFSZ do nothing in any command.
const IGNORED: [i32; 6] = [SIGUSR1, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, Signal::STKFLT.as_raw()];

/// What a signal tells a service to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instruction {
    End,
    /// Hand over to the program that is installed by now (SIGUSR2). Only the mount of a filesystem does.
    Restart,
}

/// Catches the signals from now on, and those that the server before has [left](block); they are pending until [`next_instruction`] reads
/// them.
pub(crate) fn take() -> std::io::Result<Signals> {
    let signals = Signals::new(ENDING.iter().chain(&IGNORED).chain(&[SIGHUP, SIGUSR2]))?;
    SigSet::all().thread_unblock()?;
    Ok(signals)
}

/// Leaves signals pending for the program that takes the place of this one.
pub(crate) fn block() {
    // It fails for no set that there is.
    let _ = SigSet::all().thread_block();
}

/// Lets signals through again, where no program has taken the place.
pub(crate) fn unblock() {
    let _ = SigSet::all().thread_unblock();
}

/// Whether a signal that ends the service has come. Those before it are read, too, and do what they do.
pub(crate) fn end_is_pending(signals: &mut Signals, log: Option<&Log>, in_foreground: bool) -> bool {
    signals.pending().any(|signal| instruction_of(signal, log, in_foreground) == Some(Instruction::End))
}

/// Waits for a signal that tells the service something.
pub(crate) fn next_instruction(signals: &mut Signals, log: Option<&Log>, in_foreground: bool) -> Instruction {
    let instruction = signals.forever().find_map(|signal| instruction_of(signal, log, in_foreground));
    instruction.unwrap_or(Instruction::End)
}

/// What a signal tells the service, if it does. SIGHUP opens the log anew, as a program that rotates logs wants it. Without a
/// log it ends a service in the foreground, whose terminal has gone, and does nothing to one in the background.
fn instruction_of(signal: i32, log: Option<&Log>, in_foreground: bool) -> Option<Instruction> {
    match (signal, log) {
        (SIGHUP, Some(log)) => {
            log.reopen();
            None
        }
        (SIGHUP, None) => in_foreground.then_some(Instruction::End),
        (SIGUSR2, _) => Some(Instruction::Restart),
        (ending, _) => ENDING.contains(&ending).then_some(Instruction::End),
    }
}
