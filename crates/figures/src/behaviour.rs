//! A *behaviour* says what an application asks of storage, in *rounds*: what it does for one thing that its user does.
//!
//! Counts are averages over rounds: 1.5 are one or two, each half of the time. Bytes are averages too: between none
//! and twice as many are written.

use serde::Deserialize;

use crate::application::App;
use crate::database::Rollback;
use crate::error::FigureError;
use crate::parameter::Parameter;

/// What an application does in a round, and with what files.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Behaviour {
    /// The name it is chosen by.
    pub name: String,
    /// What kind of application it is.
    pub title: String,
    /// Databases of SQLite.
    pub databases: Parameter,
    /// Pages of each, of 4 KiB.
    pub database_pages: Parameter,
    /// How SQLite keeps a transaction whole.
    pub journal: Parameter<Rollback>,
    /// Transactions of SQLite, each in one of the databases.
    pub transactions: Parameter,
    /// Pages that a transaction changes, with the first of the database, which each of them changes.
    pub transaction_pages: Parameter,
    /// Files of preferences that are written anew.
    pub preferences: Parameter,
    /// Bytes of such a file.
    pub preferences_bytes: Parameter,
    /// Appends to a file, each synchronised.
    pub appends: Parameter,
    /// Bytes of an append.
    pub append_bytes: Parameter,
    /// Files of a cache that are made, and not synchronised. The oldest gives way.
    pub cache_files: Parameter,
    /// Bytes of such a file.
    pub cache_bytes: Parameter,
    /// Files that the cache has.
    pub cache_kept: Parameter,
    /// Files of the cache that are read.
    pub reads: Parameter,
    /// Milliseconds in which the application computes, or waits for the network or its user.
    pub think_ms: Parameter,
}

impl Behaviour {
    /// The behaviour of an application.
    ///
    /// # Errors
    /// [`FigureError::File`] if its file is damaged.
    pub fn of(app: App) -> Result<Behaviour, FigureError> {
        toml::from_str(app.text()).map_err(|source| FigureError::File {
            file: format!("apps/{}.toml", app.name()),
            source: Box::new(source),
        })
    }

    /// All its numbers, by name.
    #[must_use]
    pub fn parameters(&self) -> [(&'static str, &Parameter); 13] {
        [
            ("databases", &self.databases),
            ("database_pages", &self.database_pages),
            ("transactions", &self.transactions),
            ("transaction_pages", &self.transaction_pages),
            ("preferences", &self.preferences),
            ("preferences_bytes", &self.preferences_bytes),
            ("appends", &self.appends),
            ("append_bytes", &self.append_bytes),
            ("cache_files", &self.cache_files),
            ("cache_bytes", &self.cache_bytes),
            ("cache_kept", &self.cache_kept),
            ("reads", &self.reads),
            ("think_ms", &self.think_ms),
        ]
    }
}

#[cfg(test)]
mod tests {
    use weir_flash::Kind;

    use super::*;

    #[test]
    fn behaviours_say_where_their_numbers_come_from() {
        for app in App::ALL {
            let behaviour = Behaviour::of(app).unwrap();
            assert_eq!(behaviour.name, app.name());
            for (key, parameter) in behaviour.parameters() {
                assert!(parameter.value >= 0.0 && parameter.source.len() > 10, "{app} {key}");
                assert_eq!(parameter.kind == Kind::Assumed, parameter.range.is_some(), "{app} {key}");
                if let Some([low, high]) = parameter.range {
                    assert!(low <= parameter.value && parameter.value <= high, "{app} {key}");
                }
            }
        }
    }
}
