//! The papers' figures, run in virtual time and put beside what the papers print.
//!
//! A [`Figure`] is a folder below `figures/`: what is run, what the paper prints, and notes. Its rows are devices
//! by series. A series is an [`Experiment`] and the name of one of the metrics that it gives. A [`Run`] is an experiment
//! on one emulated device, by one [`Host`], and its [`Outcome`] has the values of the metrics; a gauge at the device's
//! command queue measures a window of it, and the order recorder watches every run with barriers. The [`Lab`] runs each
//! distinct run once and makes [`Row`]s of it.
//!
//! A new figure is a folder, and a line in `figure.rs`. If it needs a new experiment, that is one more file, and a line in
//! `registry.rs`.
//!
//! | noun | file |
//! |---|---|
//! | figure, series | `figure.rs`, `series.rs` |
//! | what a paper prints; the order of its bars | `paper.rs`, `order.rs` |
//! | a host's costs; a parameter and its source | `host.rs`, `parameter.rs` |
//! | experiments, and their registry; metrics, and what reads them | `experiment.rs`, `registry.rs`, `metric.rs` |
//! | a run and its outcome; the gauge at the device's queue, and the device's counts | `run.rs`, `gauge.rs`, `device_window.rs` |
//! | writes at the block layer | `block_writes.rs` |
//! | calls to a filesystem, a run of them, the stage they run on, and the tap that measures commands | `calls.rs`, `files.rs`, `stage.rs`, `tap.rs` |
//! | inserts of SQLite, and a run of them | `inserts.rs`, `sqlite.rs` |
//! | applications of a phone, what they do, their run, SQLite's calls in it, the steps of calls, and series | `application.rs`, `behaviour.rs`, `database.rs`, `steps.rs`, `variants.rs` |
//! | varmail, InnoDB, their runs, the log of the latter, and series on several filesystems | `varmail.rs`, `innodb.rs`, `server_log.rs`, `servers.rs` |
//! | LinkBench on InnoDB | `linkbench.rs` |
//! | cleaning of F2FS | `cleaning.rs` |
//! | random writes with flushes, a run of them, and series | `random_writes.rs`, `sweep.rs`, `take.rs` |
//! | what recovery reads after them | `recovery.rs` |
//! | what is counted and not measured | `fact.rs` |
//! | power cuts, and what is left of a filesystem | `crash_test.rs` |
//! | the lab, its rows, and how far they depend on what was assumed | `lab.rs`, `row.rs`, `vary.rs` |
//! | all papers' numbers, and how they stand; rows that were recorded | `summary.rs`, `record.rs` |
//! | plots, notes, and the report | `plot.rs`, `notes.rs`, `html.rs` |
//!
//! # What a row proves
//!
//! Parameters of devices and hosts are *sourced*, *fitted* to legacy rows, or *assumed*. A row that was fitted
//! proves nothing and says "fitted". Every other row is predicted, and its error is shown where the paper prints
//! a number: one that it measured, one that rests on an assumed cost of barriers, or a bound in its text.
//!
//! # What is not the paper's
//!
//! P is orderless at full depth, without a page cache; the papers' P is buffered, and the kernel merges it.
//! At the block layer one thread writes in every way, so such a row says nothing about how ways scale over
//! threads.

mod application;
mod behaviour;
mod block_writes;
mod calls;
mod cleaning;
mod crash_test;
mod database;
mod device_window;
mod error;
mod experiment;
mod fact;
mod figure;
mod files;
mod fio;
mod gauge;
mod host;
mod html;
mod innodb;
mod inserts;
mod intervals;
mod lab;
mod linkbench;
mod metric;
mod mounting;
mod notes;
mod order;
mod paper;
mod parameter;
mod plot;
mod random_writes;
mod record;
mod recovery;
mod registry;
mod row;
mod run;
mod series;
mod server_log;
mod servers;
mod sqlite;
mod stage;
mod steps;
mod summary;
mod sweep;
mod take;
mod tap;
mod variants;
mod varmail;
mod vary;

pub use application::{App, Application};
pub use behaviour::Behaviour;
pub use block_writes::BlockWrites;
pub use calls::{Call, Calls, Change, On, OtherProgram};
pub use cleaning::{Cleaning, Drawn, FlushCount};
pub use crash_test::{CrashTest, CrashTests, Cuts, Scenario, Tested};
pub use database::Rollback;
pub use error::FigureError;
pub use experiment::Experiment;
pub use fact::Fact;
pub use figure::{Config, Described, Figure, Plot, Testbed};
pub use fio::Fio;
pub use gauge::Depth;
pub use host::{Host, HostChanges};
pub use html::report;
pub use innodb::{InnoDb, Pages};
pub use inserts::{Inserts, Journal, Synchronous, Syncs, Table};
pub use intervals::{Intervals, Paced};
pub use lab::{Curve, Lab, Origin, Progress, Sheet};
pub use linkbench::LinkBench;
pub use metric::Metric;
pub use mounting::{Mode, Mounting};
pub use order::{Bar, Bars};
pub use paper::{Explanation, Names, Order, Paper, Printed, PrintedKind};
pub use parameter::Parameter;
pub use plot::{PlotBar, plot_bars};
pub use random_writes::{RandomWrites, Size};
pub use record::Record;
pub use recovery::Recovery;
pub use row::{Ours, Row};
pub use run::{Outcome, Run};
pub use series::{Beside, Series};
pub use servers::{Servers, System, Workload};
pub use summary::{EXPLAINED_WITHIN, Standing, Summary, SummaryRow};
pub use sweep::{Sweep, Swept};
pub use take::Take;
pub use variants::{Program, Variant, VariantSeries, Variants};
pub use varmail::Varmail;
