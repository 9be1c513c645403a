//! An *experiment* is what a series of a figure runs: it says which filesystem it needs, on which of a host's parameters it
//! depends and which metrics it gives, and it runs. The registry here makes one from what `figure.toml` says of it.

use std::fmt;
use std::rc::Rc;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use toml::Value;
use weir_flash::FlashOptions;

use crate::application::Application;
use crate::block_writes::BlockWrites;
use crate::calls::{Calls, On};
use crate::crash_test::CrashTest;
use crate::error::FigureError;
use crate::fact::Fact;
use crate::fio::Fio;
use crate::innodb::InnoDb;
use crate::inserts::Inserts;
use crate::metric::Metric;
use crate::random_writes::RandomWrites;
use crate::recovery::Recovery;
use crate::run::{Outcome, Run};
use crate::varmail::Varmail;

/// What a series of a figure runs. Two whose `Debug` texts are equal are the same; `Display` is the name in errors, curves
/// and progress.
pub trait Experiment: fmt::Debug + fmt::Display {
    /// The metrics that it gives.
    fn metrics(&self) -> Vec<Metric>;

    /// The filesystem that it needs, which reads what it has written; none if it needs a device alone, or nothing.
    fn filesystem(&self) -> Option<On> {
        None
    }

    /// Whether it keeps order by barriers.
    fn has_barriers(&self) -> bool {
        self.filesystem().is_some_and(On::has_barriers)
    }

    /// Whether each write waits for more than its dispatch, so that fewer of them are run.
    fn waits(&self) -> bool {
        self.filesystem().is_some()
    }

    /// What it is called in the unit of a share of it.
    fn ground(&self) -> String {
        self.filesystem().map_or_else(|| self.to_string(), |on| on.to_string())
    }

    /// Whether it depends on the host's parameter of this name.
    fn depends_on(&self, parameter: &str) -> bool {
        depends_on(self.filesystem(), parameter)
    }

    /// Runs it, on the device and the host of `run`.
    ///
    /// # Errors
    /// [`FigureError::Order`] if order was not kept; what the block layer, the filesystem or the device answered.
    fn run(&self, run: &Run, seed: u64, options: FlashOptions) -> Result<Outcome, FigureError>;
}

/// Whether what runs on this filesystem, without SQLite, depends on the host's parameter of this name.
pub(crate) fn depends_on(filesystem: Option<On>, parameter: &str) -> bool {
    match parameter {
        "compose_us" => filesystem.is_some(),
        "scan_us" => filesystem == Some(On::OptFs),
        "sqlite_insert_us" | "small_call_us" => false,
        _ => true,
    }
}

/// Makes an experiment of its parameters.
type Make = fn(Value) -> Result<Rc<dyn Experiment>, toml::de::Error>;

/// The experiments with parameters, by their names in `figure.toml`; those at the block layer have a name alone.
const EXPERIMENTS: [(&str, Make); 10] = [
    ("Files", make::<Calls>),
    ("Sqlite", make::<Inserts>),
    ("Fio", make::<Fio>),
    ("Varmail", make::<Varmail>),
    ("InnoDb", make::<InnoDb>),
    ("App", make::<Application>),
    ("Random", make::<RandomWrites>),
    ("Recovery", make::<Recovery>),
    ("Fact", make::<Fact>),
    ("Crash", make::<CrashTest>),
];

fn make<E: Experiment + DeserializeOwned + 'static>(
    parameters: Value,
) -> Result<Rc<dyn Experiment>, toml::de::Error> {
    Ok(Rc::new(E::deserialize(parameters)?))
}

/// The experiment that `value` describes: a name, or a table with a name and its parameters.
pub(crate) fn from_value(value: Value) -> Result<Rc<dyn Experiment>, toml::de::Error> {
    let Value::Table(table) = value else { return make::<BlockWrites>(value) };
    let mut entries = table.into_iter();
    let (Some((name, parameters)), None) = (entries.next(), entries.next()) else {
        return Err(toml::de::Error::custom("name one experiment"));
    };
    let Some((_, make)) = EXPERIMENTS.iter().find(|(known, _)| *known == name) else {
        let known = EXPERIMENTS.map(|(name, _)| name).join(", ");
        return Err(toml::de::Error::custom(format!("there is no experiment {name:?}; there are {known}")));
    };
    make(parameters)
}

/// Reads an experiment from a file.
pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Rc<dyn Experiment>, D::Error> {
    from_value(Value::deserialize(from)?).map_err(D::Error::custom)
}

/// Reads one that a file need not have.
pub(crate) fn read_option<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Rc<dyn Experiment>>, D::Error> {
    read(from).map(Some)
}
