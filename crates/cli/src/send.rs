//! `weir send` and `weir receive`: a snapshot of one volume, whole or what has changed, into another one.

use std::io::{IsTerminal as _, stdin, stdout};
use std::path::{Path, PathBuf};

use clap::Args;
use weir_runtime::Handle;
use weir_storage::BLOCK_BYTES;
use weir_volume::{StreamError, StreamReport, VolumeOptions, receive, send};

use crate::error::CliError;
use crate::size::Size;
use crate::stack::Stack;
use crate::{in_wall_time, messages};

/// Arguments of `weir send`.
#[derive(Debug, Args)]
pub(crate) struct SendArguments {
    /// The volume's file or block device, not mounted
    #[arg(value_name = "VOLUME")]
    path: PathBuf,
    /// The snapshot
    name: String,
    /// Send what has changed since this earlier snapshot, which the receiving volume must have
    #[arg(long, value_name = "SNAPSHOT")]
    from: Option<String>,
}

/// Arguments of `weir receive`.
#[derive(Debug, Args)]
pub(crate) struct ReceiveArguments {
    /// The volume's file or block device, not mounted: one that holds nothing (weir volume create), or that has the snapshot that the
    /// stream builds on. It goes back to that first
    #[arg(value_name = "VOLUME")]
    path: PathBuf,
}

/// Runs `weir send`: the stream goes to standard output.
pub(crate) fn run_send(arguments: &SendArguments) -> Result<(), CliError> {
    if stdout().is_terminal() {
        return Err(CliError::Usage(
            "a stream is no text: send it to a file or a pipe, as in `weir send V NAME > FILE`",
        ));
    }
    let SendArguments { path, name, from } = arguments;
    in_wall_time(0, async |handle: Handle| {
        let stack = Stack::open(&handle, path, true).await?;
        let sent = send(&stack.require_volume(path)?, name, from.as_deref(), &mut stdout().lock()).await;
        report("sent", &sent.map_err(failed(path))?);
        Ok(())
    })
}

/// Runs `weir receive`: the stream comes from standard input.
pub(crate) fn run_receive(arguments: &ReceiveArguments) -> Result<(), CliError> {
    if stdin().is_terminal() {
        return Err(CliError::Usage("the stream comes from standard input, as in `weir receive V < FILE`"));
    }
    let path = &arguments.path;
    in_wall_time(0, async |handle: Handle| {
        let stack = Stack::open_volume(&handle, path, VolumeOptions::default()).await?;
        let received = receive(&stack.require_volume(path)?, &mut stdin().lock()).await;
        stack.close(path).await?;
        report("received", &received.map_err(failed(path))?);
        Ok(())
    })
}

fn failed(path: &Path) -> impl Fn(StreamError) -> CliError {
    |source| CliError::Stream { path: path.to_owned(), source }
}

fn report(done: &str, report: &StreamReport) {
    let StreamReport { name, from, blocks, zeros } = report;
    let since = from.as_ref().map_or_else(String::new, |from| format!(" since {from}"));
    let size = |blocks: u64| Size(blocks * BLOCK_BYTES as u64);
    messages::print_message(&format!(
        "{done} {name}{since}: {} of data, and {} that read zeros now",
        size(*blocks),
        size(*zeros)
    ));
}
