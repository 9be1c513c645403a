//! Lines of a log, as text or as JSON objects. A write of a line never waits for its reader.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use clap::ValueEnum;
use humantime::format_rfc3339_millis;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;
use tracing::Level;
use tracing::field::{Field, Visit};
use weir_runtime::machine_date_nanos;

/// Bytes of a line at most. A pipe that says that it can be written to takes a page without a wait.
const LINE_BYTES_MAX: usize = 4096;
/// Bytes of the message of a line that would be longer. Each may take six in JSON.
const CUT_MESSAGE_BYTES: usize = 512;

/// How this process writes the lines of its log.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();
/// Whether standard error is a log.
static IN_LOG: AtomicBool = AtomicBool::new(false);
/// Lines that were left out since the last one that was written.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// How lines of a log are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Text,
    /// Each line a JSON object, see docs/operators.md
    Json,
}

impl LogFormat {
    /// Makes this the format of the process. The first call counts.
    pub(crate) fn set(self) {
        let _ = FORMAT.set(self);
    }

    /// The format of the process.
    pub(crate) fn of_process() -> LogFormat {
        FORMAT.get().copied().unwrap_or_default()
    }
}

/// Standard error is a log from now on, where a line of text bears a date.
pub(crate) fn date_lines() {
    IN_LOG.store(true, Ordering::Relaxed);
}

/// Whether standard error is a log.
pub(crate) fn are_dated() -> bool {
    IN_LOG.load(Ordering::Relaxed)
}

/// What a line says.
#[derive(Debug)]
pub(crate) struct LogLine {
    level: Level,
    /// The name of the event, which stays the same from version to version.
    event: &'static str,
    /// The module that it comes from; none for the program itself.
    target: Option<&'static str>,
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl LogLine {
    /// A line of the program itself, with a message that says it all.
    pub(crate) fn new(level: Level, event: &'static str, message: impl Into<String>) -> LogLine {
        LogLine { level, event, target: None, message: message.into(), fields: Vec::new() }
    }

    /// The line of an event of a library.
    pub(crate) fn from_event(event: &tracing::Event<'_>) -> LogLine {
        let metadata = event.metadata();
        let mut line = LogLine::new(*metadata.level(), metadata.name(), String::new());
        line.target = Some(metadata.target());
        event.record(&mut line);
        line
    }

    /// With a part of the message that programs may look for.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> LogLine {
        self.fields.push((name, value.into()));
        self
    }

    /// With the path that it is about.
    pub(crate) fn with_path(self, path: &Path) -> LogLine {
        self.with("path", path.display().to_string())
    }

    /// Writes it to standard error. Where that is closed, as a terminal or a pipe may be, a service continues.
    pub(crate) fn print(&self) {
        write_line(io::stderr(), &self.to_text(LogFormat::of_process()));
    }

    /// With the end of the line.
    fn to_text(&self, format: LogFormat) -> String {
        match format {
            LogFormat::Json => self.to_json() + "\n",
            LogFormat::Text if are_dated() => {
                format!("{} {:>5} weir: {}\n", date(), self.level, self.message)
            }
            LogFormat::Text => format!("weir: {}\n", self.message),
        }
    }

    /// As a JSON object. Of one that would be too long the beginning of the message is left.
    pub(crate) fn to_json(&self) -> String {
        let whole = serde_json::to_string(self).unwrap_or_default();
        if whole.len() < LINE_BYTES_MAX {
            return whole;
        }
        let message = beginning(&self.message, CUT_MESSAGE_BYTES).to_owned();
        let cut = LogLine { message, fields: Vec::new(), ..*self };
        serde_json::to_string(&cut.with("cut", true)).unwrap_or_default()
    }
}

impl Serialize for LogLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("time", &date())?;
        map.serialize_entry("level", self.level.as_str())?;
        map.serialize_entry("event", self.event)?;
        map.serialize_entry("message", &self.message)?;
        self.target.iter().try_for_each(|target| map.serialize_entry("target", target))?;
        self.fields.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        map.end()
    }
}

/// The fields of an event.
impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let told = format!("{value:?}");
        match field.name() {
            "message" => self.message = told,
            name => self.fields.push((name, told.into())),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.push((field.name(), value.into()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.push((field.name(), value.into()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.push((field.name(), value.into()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.fields.push((field.name(), value.into()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.fields.push((field.name(), value.into()));
    }
}

/// The date in UTC, to the millisecond.
pub(crate) fn date() -> String {
    format_rfc3339_millis(UNIX_EPOCH + Duration::from_nanos(machine_date_nanos())).to_string()
}

/// Writes a line without waiting for its reader. A pipe, a socket or a terminal that is full does not get the line, and the next
/// line that is written says so. The end of a long one is left out.
pub(crate) fn write_line(output: impl AsFd, line: &str) {
    let left_out = LEFT_OUT.load(Ordering::Relaxed);
    if left_out > 0 {
        let message = format!("{left_out} lines were left out: the log was not read");
        let told = LogLine::new(Level::WARN, "log_lines_left_out", message).with("lines", left_out);
        if !write_if_ready(&output, &told.to_text(LogFormat::of_process())) {
            LEFT_OUT.fetch_add(1, Ordering::Relaxed);
            return;
        }
        LEFT_OUT.fetch_sub(left_out, Ordering::Relaxed);
    }
    if !write_if_ready(&output, line) {
        LEFT_OUT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether the output took the line, or is closed.
fn write_if_ready(output: &impl AsFd, line: &str) -> bool {
    let mut polled = [PollFd::new(output, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut polled, Some(&at_once)) == Ok(0) {
        return false;
    }
    let cut = (line.len() > LINE_BYTES_MAX).then(|| beginning(line, LINE_BYTES_MAX - 1).to_owned() + "\n");
    // What cannot be written is nothing to fail for.
    let _ = rustix::io::write(output, cut.as_deref().unwrap_or(line).as_bytes());
    true
}

/// The beginning of a text, of so many bytes at most.
fn beginning(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn parsed(line: &LogLine) -> Value {
        let json = line.to_json();
        assert!(json.len() < LINE_BYTES_MAX && !json.contains('\n'), "{json}");
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn a_line_is_an_object_with_its_fields() {
        let line =
            LogLine::new(Level::WARN, "space_unused", "a \"b\"\nc").with("path", "/a\t").with("bytes", 7_u64);
        let json = parsed(&line);
        assert_eq!(json["level"], "WARN");
        assert_eq!(json["event"], "space_unused");
        assert_eq!(json["message"], "a \"b\"\nc");
        assert_eq!((&json["path"], &json["bytes"]), (&"/a\t".into(), &7.into()));
        let time = json["time"].as_str().unwrap();
        assert!(
            time.starts_with("20") && time.ends_with('Z') && humantime::parse_rfc3339(time).is_ok(),
            "{time}"
        );
        assert_eq!(line.to_text(LogFormat::Text), "weir: a \"b\"\nc\n");
    }

    #[test]
    fn a_long_line_is_cut_and_still_an_object() {
        for character in ["a", "\u{1}", "\u{10ffff}"] {
            let line =
                LogLine::new(Level::ERROR, "failed", character.repeat(LINE_BYTES_MAX)).with("path", "/a");
            let json = parsed(&line);
            assert_eq!((&json["cut"], &json["path"]), (&true.into(), &Value::Null));
            assert!(json["message"].as_str().unwrap().starts_with(character));
        }
    }

    /// The socket is not read, and has room for some lines. The test that counts them is the only one that writes lines.
    #[test]
    fn lines_that_nobody_reads_are_left_out_and_counted() {
        let (reader, writer) = UnixStream::pair().unwrap();
        let line = "a".repeat(LINE_BYTES_MAX + 9) + "\n";
        (0..1_000).for_each(|_| write_line(&writer, &line));
        reader.set_nonblocking(true).unwrap();
        let mut read = Vec::new();
        let _ = io::Read::read_to_end(&mut &reader, &mut read);
        let taken = read.split_inclusive(|byte| *byte == b'\n').collect::<Vec<_>>();
        assert!(
            !taken.is_empty()
                && taken.iter().all(|line| line.len() == LINE_BYTES_MAX && line.ends_with(b"\n"))
        );
        let left_out = 1_000 - taken.len();
        write_line(&writer, "next\n");
        let mut told = [0; 4096];
        let bytes = io::Read::read(&mut &reader, &mut told).unwrap();
        let expected = format!("weir: {left_out} lines were left out: the log was not read\nnext\n");
        assert_eq!(String::from_utf8_lossy(&told[..bytes]), expected);
    }
}
