//! The mark that a server leaves beside a device which is still used: that it has ended, with everything durable that it had
//! answered. A server that was killed leaves none (N7).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Where the marks are: gone with the devices when the machine is started again.
const DIRECTORY: &str = "/run";

/// The mark of one device.
pub(crate) struct EndMark {
    path: PathBuf,
}

impl EndMark {
    /// That of the device with a number.
    pub(crate) fn new(number: u32) -> EndMark {
        EndMark::within(Path::new(DIRECTORY), number)
    }

    fn within(directory: &Path, number: u32) -> EndMark {
        EndMark { path: directory.join(format!("weir-ublk{number}.ended")) }
    }

    /// Leaves the mark.
    ///
    /// # Errors
    /// What the system says; the next server then takes this one for killed.
    pub(crate) fn leave(&self) -> io::Result<()> {
        File::create(&self.path).map(drop)
    }

    /// Takes the mark away, before anything is answered; whether it was there.
    pub(crate) fn take(&self) -> bool {
        fs::remove_file(&self.path).is_ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_mark_is_taken_once_and_is_of_one_device() {
        let directory = tempfile::tempdir().unwrap();
        let mark = |number| EndMark::within(directory.path(), number);
        assert!(!mark(0).take(), "a server that was killed has left none");
        mark(0).leave().unwrap();
        assert!(!mark(1).take());
        assert!(mark(0).take() && !mark(0).take());
        assert!(EndMark::within(Path::new("/nowhere"), 0).leave().is_err());
    }
}
