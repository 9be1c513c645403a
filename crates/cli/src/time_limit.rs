//! A time limit on a command that waits for another process: the command runs as a process of its own, which this one leaves behind
//! if it takes too long. The kernel may wait for a FUSE server without an end, and lets no signal through then.
//!
//! What is left behind keeps nothing of this process open: its output goes to memory, and from there on, once it has ended. So a
//! pipe behind this process ends with it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use weir_program::ends_within;

use crate::error::CliError;

/// A command that has ended in time.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    output: File,
    errors: File,
}

impl Ended {
    /// Writes its output and its errors to those of this process.
    ///
    /// # Errors
    /// [`CliError::Output`].
    pub(crate) fn pass_on(mut self) -> Result<ExitStatus, CliError> {
        for file in [&mut self.output, &mut self.errors] {
            file.rewind()?;
        }
        io::copy(&mut self.output, &mut io::stdout())?;
        // Where standard error is closed, too, the exit code still says it.
        let _ = io::copy(&mut self.errors, &mut io::stderr());
        Ok(self.status)
    }
}

/// Runs this program anew with these arguments. None if it takes longer than the limit.
///
/// # Errors
/// What starting it or waiting for it failed by.
pub(crate) fn run_within(seconds: u32, arguments: &[OsString]) -> io::Result<Option<Ended>> {
    let in_memory = |name: &str| Ok::<_, io::Error>(File::from(memfd_create(name, MemfdFlags::CLOEXEC)?));
    let (output, errors) = (in_memory("output")?, in_memory("errors")?);
    let mut command = Command::new("/proc/self/exe");
    command.arg0("weir").args(arguments).stdin(Stdio::null());
    let mut child = command.stdout(output.try_clone()?).stderr(errors.try_clone()?).spawn()?;
    if !ends_within(&child, Duration::from_secs(seconds.into()))? {
        // It ends when the server answers again, at the latest.
        child.kill()?;
        return Ok(None);
    }
    Ok(Some(Ended { status: child.wait()?, output, errors }))
}
