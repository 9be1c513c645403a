//! Messages of a server about its own work: events of the libraries, as lines on standard error or in its log.
//!
//! `RUST_LOG` says which. Where a person will read them, in a log or on the terminal of a server in the foreground,
//! warnings are among them unless it says otherwise.

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::registry::LookupSpan;

use crate::error::CliError;
use crate::log_line::{LogFormat, LogLine, date, write_line};
use crate::{log_line, report_file};

/// The events that are written besides those of `RUST_LOG`: for a log that a person reads, and for commands, which print their errors
/// themselves.
const READ: &str = "warn";
const UNREAD: &str = "off";

/// Has events written to `log`, or else to standard error, which a server in the background closes when it has
/// mounted: so nothing is written there that was not asked for. Once in a process.
pub(crate) fn send_to(log: Option<&Log>, in_background: bool) -> io::Result<()> {
    let always = if log.is_none() && in_background { UNREAD } else { READ };
    let output = Output(log.cloned());
    let asked = std::env::var("RUST_LOG").unwrap_or_default();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::builder().parse_lossy(format!("{always},{asked}")))
        .with_writer(move || output.clone())
        // A line that cannot be written is nothing to fail for.
        .log_internal_errors(false);
    let begun = match LogFormat::of_process() {
        LogFormat::Text => subscriber.with_timer(DateOfLine).try_init(),
        LogFormat::Json => subscriber.event_format(JsonEvents).try_init(),
    };
    begun.map_err(io::Error::other)
}

/// An event as a JSON object.
struct JsonEvents;

impl<S, N> FormatEvent<S, N> for JsonEvents
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut line: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        writeln!(line, "{}", LogLine::from_event(event).to_json())
    }
}

/// Where events go: to a log, or to standard error.
#[derive(Clone)]
struct Output(Option<Log>);

impl io::Write for Output {
    /// Takes a whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        match &self.0 {
            Some(log) => write_line(&*log.file(), &text),
            None => write_line(io::stderr(), &text),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a line of a command to standard error, which may be closed. A service has [`LogLine::print`].
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
            Err(error) => {
                let message = format!("the log stays in the old file: {error}");
                LogLine::new(Level::WARN, "log_not_reopened", message).print();
            }
        }
    }

    /// What the program writes to standard error goes into the log from now on.
    pub(crate) fn take_standard_error(&self) {
        let _ = rustix::stdio::dup2_stderr(&*self.file());
        log_line::date_lines();
    }

    fn file(&self) -> MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The date of a line of text.
struct DateOfLine;

impl FormatTime for DateOfLine {
    fn format_time(&self, line: &mut Writer<'_>) -> fmt::Result {
        write!(line, "{}", date())
    }
}
