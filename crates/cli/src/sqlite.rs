//! `weir bench sqlite`: the places for databases, and their results.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use weir_bench::{BenchOptions, FsPlan, Progress, ScratchDirectory, SqliteGrounds, SqliteReport};
use weir_runtime::Runtime;
use weir_volume::LossWindowSeen;

use crate::error::CliError;
use crate::status;

/// Where memory is a filesystem on most machines.
const MEMORY: &str = "/dev/shm";

/// Bytes of the filesystem that is mounted.
const MOUNT_SIZE: &str = "1G";

/// Measures, in whatever places there are; and says which are missing, and why.
pub(crate) fn measure(
    runtime: &Rc<Runtime>,
    plan: FsPlan,
    options: &BenchOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<SqliteReport, CliError> {
    let tmpfs = ScratchDirectory::look(Path::new(MEMORY))
        .ok()
        .filter(|place| place.filesystem.as_deref() == Some("tmpfs"));
    let tmpfs = tmpfs.and_then(|place| tempfile::tempdir_in(place.directory).ok());
    if tmpfs.is_none() {
        eprintln!("weir: left out: rows in memory, as {MEMORY} is not a tmpfs that can be written to");
    }
    let mount = Mount::new(&options.directory);
    if let Err(why) = &mount {
        eprintln!("weir: left out: rows on a mount: {why}");
    }
    let grounds = SqliteGrounds {
        tmpfs: tmpfs.as_ref().map(|directory| directory.path().to_owned()),
        mount: mount.as_ref().ok().map(Mount::path),
        mount_window: Some(loss_window),
    };
    Ok(weir_bench::sqlite(runtime, plan, options, &grounds, progress)?)
}

fn loss_window(mountpoint: &Path) -> Option<LossWindowSeen> {
    let seen = status::ask(mountpoint).ok()?.storage.volume?.loss_window?;
    let time_max = Duration::try_from_secs_f64(seen.ms / 1e3).ok()?;
    Some(LossWindowSeen { time_max, bytes_max: seen.bytes })
}

/// The extension beside the program, where cargo puts it; or, by its name, the one that is installed.
fn extension(program: &Path) -> PathBuf {
    const NAME: &str = "libweir_sqlite.so";
    let beside = program.with_file_name(NAME);
    if beside.exists() { beside } else { PathBuf::from(NAME) }
}

/// A new volume, mounted by a server of its own, and the extension loaded. Both go when it is dropped.
struct Mount {
    directory: tempfile::TempDir,
    server: Child,
}

impl Mount {
    fn new(on: &Path) -> Result<Mount, String> {
        let failed = |doing: &'static str| move |error: std::io::Error| format!("cannot {doing}: {error}");
        let program = std::env::current_exe().map_err(failed("find this program"))?;
        let extension = extension(&program);
        weir_sqlite_vfs::load_extension(&extension)
            .map_err(|error| format!("{}: {error}; cargo build --release makes it", extension.display()))?;
        let directory = tempfile::Builder::new().prefix("weir-bench-").tempdir_in(on);
        let directory = directory.map_err(failed("make a directory"))?;
        let (volume, mountpoint) = (directory.path().join("volume"), directory.path().join("mounted"));
        std::fs::create_dir(&mountpoint).map_err(failed("make a directory"))?;
        let made = Command::new(&program)
            .args(["mkfs", "--volume", "--fill", "--size", MOUNT_SIZE])
            .arg(&volume)
            .stdout(Stdio::null())
            .status();
        if !made.map_err(failed("run this program"))?.success() {
            return Err("weir mkfs failed".to_owned());
        }
        let server = Command::new(&program)
            .args(["mount", "--foreground", "--with-parent"])
            .args([&volume, &mountpoint])
            .stderr(Stdio::piped())
            .spawn();
        let mut server = server.map_err(failed("run this program"))?;
        let mut told = String::new();
        let heard = server.stderr.take().map(|messages| BufReader::new(messages).read_line(&mut told));
        let mount = Mount { directory, server };
        match heard {
            Some(Ok(_)) if told.contains("mounted on") => {
                // The server has it open: no large file is left, however this program ends.
                std::fs::remove_file(&volume).map_err(failed("unlink the volume"))?;
                Ok(mount)
            }
            _ => Err(told.trim_end().to_owned()),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }
}

impl Drop for Mount {
    /// The results are known by now: a failure here is not reported, and the mount is left.
    fn drop(&mut self) {
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("weir"));
        let _ = Command::new(program).arg("umount").arg(self.path()).stderr(Stdio::null()).status();
        let _ = self.server.wait();
    }
}
