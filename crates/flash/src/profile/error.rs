//! What can be wrong with a profile.

use thiserror::Error;

use super::document::Parameter;

/// Why a profile is refused: which key, what was found, what is right.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProfileError {
    /// There is no profile of this name, nor such a file.
    #[error("there is no device `{name}`; there are {known}, and files that end in .toml")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The file cannot be read.
    #[error("cannot read the profile {path}: {why}")]
    File {
        /// Its path.
        path: String,
        /// What the system said.
        why: String,
    },
    /// A file was read and is wrong.
    #[error("{path}: {error}")]
    In {
        /// Its path.
        path: String,
        /// What is wrong.
        error: Box<ProfileError>,
    },
    /// Not TOML, a key that is missing, or one that does not exist.
    #[error("{0}")]
    Format(String),
    /// A value that its key cannot have.
    #[error("`{key}` is {found}; it must be {right}")]
    Value {
        /// The key.
        key: String,
        /// What was found.
        found: String,
        /// What is right.
        right: String,
    },
    /// Values that do not go together.
    #[error("impossible device: {0}")]
    Geometry(String),
}

impl ProfileError {
    /// The same with the value as the file writes it, where the key has one.
    pub(super) fn echoing(self, parameters: &[Parameter]) -> ProfileError {
        match self {
            ProfileError::Value { key, found, right } => {
                let written = parameters.iter().find(|parameter| parameter.key == key);
                let found = written.map_or(found, |parameter| parameter.value.clone());
                ProfileError::Value { key, found, right }
            }
            other => other,
        }
    }
}
