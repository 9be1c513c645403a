//! What can go wrong with a figure.

use thiserror::Error;
use weir_block::BlockError;
use weir_flash::ProfileError;
use weir_runtime::Stalled;
use weir_storage::{Rejected, Violation};
use weir_vfs::FsError;

/// Why a figure gives no result.
#[derive(Debug, Error)]
pub enum FigureError {
    /// There is no such figure.
    #[error("there is no figure `{name}`; there are {}", known.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// A file of the figure, or a host profile, cannot be read.
    #[error("{file}: {source}")]
    File {
        /// The file, below `figures/`.
        file: String,
        /// What is wrong, and where.
        source: Box<toml::de::Error>,
    },
    /// The recorded rows of a figure cannot be read.
    #[error("{file}: {source}")]
    Record {
        /// The file, below the folder of the figures.
        file: String,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
    /// A file names something that is not there.
    #[error("{file}: there is no {what} {name:?}; there are {known}")]
    Name {
        /// The file, below `figures/`.
        file: String,
        /// What the name should stand for.
        what: &'static str,
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// The device's profile cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The block layer cannot work on the device in this way.
    #[error("{run}: {source}")]
    Block {
        /// The run.
        run: String,
        /// The block layer's answer.
        source: BlockError,
    },
    /// A command failed.
    #[error("{run}: {source}")]
    Command {
        /// The run.
        run: String,
        /// The answer to the command.
        source: Rejected,
    },
    /// Crash tests could not be made or judged.
    #[error("{run}: {what}")]
    CrashTest {
        /// The tests.
        run: String,
        /// What kept them.
        what: String,
    },
    /// A call to the filesystem failed.
    #[error("{run}: {source}")]
    Files {
        /// The run.
        run: String,
        /// The filesystem's answer.
        source: FsError,
    },
    /// SQLite failed.
    #[error("{run}: {source}")]
    Sqlite {
        /// The run.
        run: String,
        /// SQLite's answer.
        source: weir_sqlite_vfs::rusqlite::Error,
    },
    /// The run cannot go on: a wake-up was lost.
    #[error("{run}: {source}")]
    Stalled {
        /// The run.
        run: String,
        /// Where it stopped.
        source: Stalled,
    },
    /// Order was not kept: Eq. 1 does not hold.
    #[error("{run}: order was not kept: {source}")]
    Order {
        /// The run.
        run: String,
        /// The first breach.
        source: Violation,
    },
    /// A plot could not be drawn.
    #[error("the plot of {figure}: {why}")]
    Plot {
        /// The figure.
        figure: String,
        /// What the plotting library says.
        why: String,
    },
}

impl FigureError {
    pub(crate) fn toml(file: String, source: toml::de::Error) -> FigureError {
        FigureError::File { file, source: Box::new(source) }
    }
}
