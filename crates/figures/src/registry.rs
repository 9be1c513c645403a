//! The *registry* makes an experiment from what `figure.toml` says of it.

use std::sync::Arc;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use toml::Value;

use crate::application::Application;
use crate::block_writes::BlockWrites;
use crate::calls::Calls;
use crate::cleaning::Cleaning;
use crate::crash_test::CrashTest;
use crate::experiment::Experiment;
use crate::fact::Fact;
use crate::fio::Fio;
use crate::innodb::InnoDb;
use crate::inserts::Inserts;
use crate::linkbench::LinkBench;
use crate::random_writes::RandomWrites;
use crate::recovery::Recovery;
use crate::varmail::Varmail;

/// Makes an experiment of its parameters.
type Make = fn(Value) -> Result<Arc<dyn Experiment>, toml::de::Error>;

/// The experiments with parameters, by their names in `figure.toml`; those at the block layer have a name alone.
const EXPERIMENTS: [(&str, Make); 12] = [
    ("Files", make::<Calls>),
    ("Sqlite", make::<Inserts>),
    ("Fio", make::<Fio>),
    ("Varmail", make::<Varmail>),
    ("InnoDb", make::<InnoDb>),
    ("LinkBench", make::<LinkBench>),
    ("Cleaning", make::<Cleaning>),
    ("App", make::<Application>),
    ("Random", make::<RandomWrites>),
    ("Recovery", make::<Recovery>),
    ("Fact", make::<Fact>),
    ("Crash", make::<CrashTest>),
];

fn make<E: Experiment + DeserializeOwned + 'static>(
    parameters: Value,
) -> Result<Arc<dyn Experiment>, toml::de::Error> {
    Ok(Arc::new(E::deserialize(parameters)?))
}

/// The experiment that `value` describes: a name, or a table with a name and its parameters.
pub(crate) fn from_value(value: Value) -> Result<Arc<dyn Experiment>, toml::de::Error> {
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
pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<dyn Experiment>, D::Error> {
    from_value(Value::deserialize(from)?).map_err(D::Error::custom)
}

/// Reads one that a file need not have.
pub(crate) fn read_option<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Arc<dyn Experiment>>, D::Error> {
    read(from).map(Some)
}
