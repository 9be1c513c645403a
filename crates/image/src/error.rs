//! Why something could not be copied.

use std::path::{Path, PathBuf};

use thiserror::Error;
use weir_format::FormatError;
use weir_vfs::FsError;

/// Why a call failed.
#[derive(Debug, Error)]
pub enum ImageError {
    /// Something in the image could not be read or changed.
    #[error("{inside}: {source}")]
    InImage {
        /// The path in the image, with control characters escaped.
        inside: String,
        /// What is wrong.
        source: FsError,
    },
    /// The image gives more than it has room for. Nothing more of it is copied: check it.
    #[error("{inside}: the image returns more data than its size allows: it is damaged, or made to attack")]
    Overfull {
        /// The path in the image where that was noticed.
        inside: String,
    },
    /// A file of the host could not be read or written.
    #[error("cannot {doing} {}: {source}", path.display())]
    Host {
        /// What was tried.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// A directory is copied only with what is in it: allow that.
    #[error("{} is a directory", path.display())]
    Directory {
        /// The path.
        path: PathBuf,
    },
    /// What is read cannot be passed on.
    #[error("cannot write to the output: {0}")]
    Output(#[from] std::io::Error),
}

/// An error about a path in the image.
pub(crate) fn in_image(inside: &[u8]) -> impl FnOnce(FsError) -> ImageError {
    // Most callers never need it.
    move |source| ImageError::InImage { inside: shown(inside), source }
}

/// A damaged inode at a path in the image.
pub(crate) fn damaged(inside: &[u8], inode: u32, what: &'static str) -> ImageError {
    let place = weir_format::Place::Inode(inode);
    in_image(inside)(FormatError::corrupt(weir_format::Structure::Inode, place, what).into())
}

/// An error about a file of the host.
pub(crate) fn on_host(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ImageError {
    move |source| ImageError::Host { doing, path: path.to_owned(), source }
}

/// A path in an image, for people: names come from the program that made it, so no control characters reach a terminal.
pub(crate) fn shown(inside: &[u8]) -> String {
    String::from_utf8_lossy(inside)
        .chars()
        .flat_map(|letter| {
            let escaped = letter.is_control().then(|| letter.escape_default());
            let plain = escaped.is_none().then_some(letter);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(shown(b"/a\n\x1b[31mb c\xFF"), "/a\\n\\u{1b}[31mb c\u{FFFD}");
    }
}
