//! Messages of a server about its own work: events of the libraries, as lines on standard error or in its log.
//!
//! `RUST_LOG` says which. Where a person will read them, in a log or on the terminal of a server in the foreground,
//! warnings are among them unless it says otherwise. Nothing but the runtime reads a clock, so the date of a line is the
//! runtime's.

use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use humantime::format_rfc3339_millis;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use weir_runtime::Handle;

use crate::error::CliError;
use crate::report_file;

/// The events that are written besides those of `RUST_LOG`: for a log that a person reads, and for commands, which print their errors
/// themselves.
const READ: &str = "warn";
const UNREAD: &str = "off";

thread_local! {
    /// The runtime of this thread: a subscriber is shared by all threads, and a runtime stays on its own.
    static RUNTIME: RefCell<Option<Handle>> = const { RefCell::new(None) };
}

/// Has events written to `log`, or else to standard error, which a server in the background closes when it has
/// mounted: so nothing is written there that was not asked for. Once in a process.
pub(crate) fn send_to(log: Option<&Log>, in_background: bool) -> io::Result<()> {
    let always = if log.is_none() && in_background { UNREAD } else { READ };
    let writer = match log {
        Some(log) => {
            let log = log.clone();
            BoxMakeWriter::new(move || log.clone())
        }
        None => BoxMakeWriter::new(io::stderr),
    };
    let asked = std::env::var("RUST_LOG").unwrap_or_default();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::builder().parse_lossy(format!("{always},{asked}")))
        .with_timer(RuntimeDate)
        .with_writer(writer)
        // A line that cannot be written is nothing to fail for.
        .log_internal_errors(false);
    subscriber.try_init().map_err(io::Error::other)
}

/// Writes a line of the program itself to standard error. Where that is closed, as a terminal or a pipe may be, a service
/// continues.
pub(crate) fn print_message(text: &str) {
    let _ = writeln!(io::stderr(), "weir: {text}");
}

/// The file that a service's messages go to.
#[derive(Clone)]
pub(crate) struct Log {
    /// Absolute, as a service changes its directory.
    path: Arc<Path>,
    file: Arc<Mutex<File>>,
}

impl Log {
    pub(crate) fn open(path: &Path) -> Result<Log, CliError> {
        let file = report_file::append(path)?;
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Ok(Log { path: path.into(), file: Arc::new(Mutex::new(file)) })
    }

    /// Opens what has its path by now, and writes there from now on; to the old file where that fails.
    pub(crate) fn reopen(&self) {
        match report_file::append(&self.path) {
            Ok(file) => {
                *self.file() = file;
                self.take_standard_error();
            }
            Err(error) => print_message(&format!("the log stays in the old file: {error}")),
        }
    }

    /// What the program writes to standard error goes into the log from now on.
    pub(crate) fn take_standard_error(&self) {
        let _ = rustix::stdio::dup2_stderr(&*self.file());
    }

    fn file(&self) -> MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// As long as it lives, lines that this thread writes bear the date of a runtime.
#[must_use]
pub(crate) struct Dated(());

/// Lines that this thread writes bear the date of the runtime of `handle`.
pub(crate) fn dated_by(handle: &Handle) -> Dated {
    RUNTIME.set(Some(handle.clone()));
    Dated(())
}

impl Drop for Dated {
    fn drop(&mut self) {
        RUNTIME.set(None);
    }
}

/// The date in UTC, to the millisecond; none on a thread without a runtime.
struct RuntimeDate;

impl FormatTime for RuntimeDate {
    fn format_time(&self, line: &mut Writer<'_>) -> fmt::Result {
        match RUNTIME.with_borrow(|runtime| runtime.as_ref().map(Handle::wall_clock_nanos)) {
            Some(nanos) => {
                write!(line, "{}", format_rfc3339_millis(UNIX_EPOCH + Duration::from_nanos(nanos)))
            }
            None => Ok(()),
        }
    }
}
