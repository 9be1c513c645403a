//! `weir trace`: one run on an emulated device as a timeline, for Perfetto or Chrome's tracing page.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::rc::Rc;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use weir_bench::{FileCall, JournalProbe, JournalWrite, WeirCalls, trace, trace_files};
use weir_flash::{Busy, Probe, Profile, Subject};

use crate::error::CliError;
use crate::{print, report_file};

/// Events of a timeline at most; what comes later is not written.
const EVENTS_MAX: usize = 2_000_000;

/// Arguments of `weir trace`.
#[derive(Debug, Args)]
pub(crate) struct TraceArguments {
    /// A device's name, or a profile of your own that ends in .toml
    #[arg(long, value_name = "NAME|FILE", default_value = "ufs20")]
    device: String,
    /// What follows each write
    #[arg(long, value_enum, default_value_t = Calls::B)]
    calls: Calls,
    /// Number of writes of 4 KiB: at random addresses, or with a call of the filesystem appended to a file
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    writes: u64,
    /// Seed of the addresses that are written
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The file for the timeline. An older timeline is overwritten, any other file is refused
    #[arg(value_name = "FILE", default_value = "weir-trace.json")]
    file: PathBuf,
}

/// What the timeline begins with.
const BEGINNING: &str = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";

/// The papers' four ways to write, and two calls of the filesystem.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Calls {
    /// Write, wait for the transfer, flush
    Xnf,
    /// Write, wait for the transfer
    X,
    /// Write with a barrier, wait for nothing but queue space
    B,
    /// Write orderless, wait for nothing but queue space
    P,
    /// Append to a file and call fsync: D, JD and JC on rows of their own
    Fsync,
    /// Append to a file and call fbarrier: D, JD and JC on rows of their own
    Fbarrier,
}

/// Collects a timeline: one row for the link, the controller, each channel and each die, and two curves.
#[derive(Default)]
struct Timeline {
    events: RefCell<Vec<Value>>,
    rows: RefCell<BTreeMap<u32, String>>,
}

/// Rows in their order: flushes, controller, link, D, JD, JC, home, channels, dies.
fn row(what: Busy) -> (u32, String, &'static str) {
    match what {
        Busy::Flush => (1, "flush".to_owned(), "flush"),
        Busy::Controller(_) => (2, "controller".to_owned(), "decode"),
        Busy::Link(_) => (3, "link".to_owned(), "transfer"),
        Busy::Channel { channel } => (100 + channel, format!("channel {channel}"), "carry"),
        Busy::Read { die } => (1000 + die, format!("die {die}"), "read"),
        Busy::Program { die } => (1000 + die, format!("die {die}"), "program"),
        Busy::Move { die } => (1000 + die, format!("die {die}"), "move"),
        Busy::Erase { die } => (1000 + die, format!("die {die}"), "erase"),
        Busy::System { die } => (1000 + die, format!("die {die}"), "checkpoint"),
    }
}

/// Trace files count in microseconds.
fn micros(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// What a slice is about, for the panel that shows it: address, epoch and barrier, where there are such.
fn about(subject: Subject) -> Value {
    let Subject { block, blocks, epoch, barrier } = subject;
    let mut about = serde_json::Map::new();
    if let Some(block) = block {
        about.insert("block".to_owned(), block.into());
        about.insert("blocks".to_owned(), blocks.into());
    }
    if let Some(epoch) = epoch {
        about.insert("epoch".to_owned(), epoch.into());
    }
    if epoch.is_some() || barrier {
        about.insert("barrier".to_owned(), barrier.into());
    }
    about.into()
}

impl Timeline {
    fn add(&self, event: Value) {
        let mut events = self.events.borrow_mut();
        if events.len() < EVENTS_MAX {
            events.push(event);
        }
    }

    fn curve(&self, name: &str, at_ns: u64, value: u64) {
        self.add(json!({"ph": "C", "pid": 1, "name": name, "ts": micros(at_ns), "args": {name: value}}));
    }
}

impl Probe for Timeline {
    fn busy(&self, what: Busy, subject: Subject, from_ns: u64, to_ns: u64) {
        let (thread, row, name) = row(what);
        self.rows.borrow_mut().entry(thread).or_insert(row);
        let (from, duration) = (micros(from_ns), micros(to_ns.saturating_sub(from_ns)));
        self.add(json!({"ph": "X", "pid": 1, "tid": thread, "name": name, "ts": from, "dur": duration, "args": about(subject)}));
    }

    fn queue_depth(&self, at_ns: u64, commands: u32) {
        self.curve("queue depth", at_ns, u64::from(commands));
    }

    fn cached(&self, at_ns: u64, blocks: u64) {
        self.curve("blocks in the cache", at_ns, blocks);
    }
}

impl JournalProbe for Timeline {
    fn written(&self, what: JournalWrite, subject: Subject, from_ns: u64, to_ns: u64) {
        let (thread, name) = match what {
            JournalWrite::D => (10, "D"),
            JournalWrite::JD => (20, "JD"),
            JournalWrite::JC => (30, "JC"),
            JournalWrite::Home => (40, "home"),
        };
        self.rows.borrow_mut().entry(thread).or_insert_with(|| name.to_owned());
        // Many are on their way at once: each has an arrow of its own.
        let id = self.events.borrow().len();
        for (phase, at) in [("b", from_ns), ("e", to_ns)] {
            self.add(json!({
                "ph": phase, "pid": 1, "tid": thread, "cat": name, "id": id, "name": name, "ts": micros(at),
                "args": about(subject)
            }));
        }
    }
}

/// Runs, and writes the timeline.
pub(crate) fn run(arguments: &TraceArguments) -> Result<(), CliError> {
    let (profile, _) = Profile::load(&arguments.device)?;
    let timeline = Rc::new(Timeline::default());
    let probe = Rc::clone(&timeline) as Rc<dyn Probe>;
    let (writes, seed) = (arguments.writes, arguments.seed);
    let blocks = |calls| trace(&profile, calls, writes, seed, Rc::clone(&probe));
    let files = |call| {
        let journal = Rc::clone(&timeline) as Rc<dyn JournalProbe>;
        trace_files(&profile, call, writes, seed, Rc::clone(&probe), journal)
    };
    match arguments.calls {
        Calls::Xnf => blocks(WeirCalls::Xnf),
        Calls::X => blocks(WeirCalls::X),
        Calls::B => blocks(WeirCalls::B),
        Calls::P => blocks(WeirCalls::P),
        Calls::Fsync => files(FileCall::Fsync),
        Calls::Fbarrier => files(FileCall::Fbarrier),
    }?;
    let failed = |doing| move |source| CliError::File { doing, path: arguments.file.clone(), source };
    let mut output = BufWriter::new(report_file::create(&arguments.file, BEGINNING)?);
    write!(output, "{BEGINNING}").map_err(failed("write"))?;
    let names = timeline.rows.borrow();
    let rows = names.iter().map(
        |(thread, name)| json!({"ph": "M", "pid": 1, "tid": thread, "name": "thread_name", "args": {"name": name}}),
    );
    let process = json!({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": profile.name}});
    let events = timeline.events.borrow();
    for (place, event) in std::iter::once(process).chain(rows).chain(events.iter().cloned()).enumerate() {
        let separator = if place == 0 { "\n" } else { ",\n" };
        write!(output, "{separator}{event}").map_err(failed("write"))?;
    }
    writeln!(output, "\n]}}").and_then(|()| output.flush()).map_err(failed("write"))?;
    let path = arguments.file.display();
    print(&format!("{} events in {path}: open it at ui.perfetto.dev or chrome://tracing", events.len()))
}
