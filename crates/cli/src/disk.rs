//! `weir disk`: a volume, an emulated device or the worst disk as one file, to put a loop device on.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Args;
use tracing::Level;
use weir_crash::LoggedStorage;
use weir_flash::Profile;
use weir_fuse::{DISK_NAME, REQUEST_BYTES_UNDER_WAY_MAX, Server, ServerOptions, SyncMode, absolute};
use weir_runtime::Handle;
use weir_stack::{Base, StackName, StackSpec};
use weir_storage::{Ordering, Storage};
use weir_volume::VolumeOptions;

use crate::cuts::Cuts;
use crate::error::CliError;
use crate::log_line::LogLine;
use crate::service::{self, MountServiceArguments, Service};
use crate::size::Size;
use crate::stack::{self, Stack};
use crate::status;

/// Arguments of `weir disk`.
#[derive(Debug, Args)]
#[group(id = "ground", required = true, multiple = false, args = ["device", "worst", "stack", "volume"])]
pub(crate) struct DiskArguments {
    /// The directory in which the file `disk` appears
    mountpoint: PathBuf,
    /// An emulated device, by name or by a profile that ends in .toml. Its bytes are in memory, and are gone with
    /// the mount
    #[arg(long, value_name = "NAME|FILE")]
    device: Option<String>,
    /// The worst disk that the contract allows: a power cut leaves any of the blocks that were not flushed. Its bytes
    /// are in memory, and are gone with the mount
    #[arg(long)]
    worst: bool,
    /// What lies in memory, by its description: the name of a device, or adversary, legacy or prefix for the worst disk of that
    /// order; a volume on it with volume+ before the name, as in volume+legacy
    #[arg(long, value_name = "STACK", value_parser = parse_stack)]
    stack: Option<StackName>,
    /// With --device, --worst or --stack: its size [default: the device's own, or 256M]
    #[arg(long, conflicts_with = "volume")]
    size: Option<Size>,
    /// With --device, --worst or --stack: at each SIGUSR1, write an image into DIR (cut-1.img, cut-2.img, ...) that holds what a
    /// power cut at that moment would leave of the disk. The disk goes on
    #[arg(long, value_name = "DIR", conflicts_with = "volume")]
    cuts: Option<PathBuf>,
    /// With --device, --worst or --stack: append each request to FILE, a block that is written or a flush, as the example
    /// kernel_table2 of the crate weir-crash reads it
    #[arg(long, value_name = "FILE", conflicts_with = "volume")]
    requests: Option<PathBuf>,
    /// A volume, in a file or on a block device
    #[arg(long, value_name = "PATH")]
    volume: Option<PathBuf>,
    /// With --volume: open a copy that was made while the volume was mounted, as a crash would have left it
    #[arg(long, requires = "volume")]
    after_crash: bool,
    #[command(flatten)]
    service: MountServiceArguments,
}

/// Parses the description of a stack in memory.
fn parse_stack(text: &str) -> Result<StackName, String> {
    let is_in_memory = |name: &StackName| match &name.base {
        Base::Worst(_) => true,
        Base::Device(device) => device.ends_with(".toml") || Profile::NAMES.contains(&device.as_str()),
        Base::File(_) => false,
    };
    let name = text.parse::<StackName>().ok().filter(is_in_memory);
    name.ok_or_else(|| {
        format!(
            "it describes no stack in memory: write DISK or volume+DISK, where DISK is adversary, legacy or prefix for the worst \
             disk of that order, the name of a device ({}), or a file with a device's profile, which ends in .toml; for a volume in a \
             file or on a block device use --volume PATH",
            Profile::NAMES.join(", ")
        )
    })
}

/// Runs the command.
pub(crate) fn run(arguments: &DiskArguments) -> Result<(), CliError> {
    arguments.service.log_format().set();
    let mountpoint = &arguments.mountpoint;
    service::run_mount(&arguments.service, mountpoint, async |handle, service| {
        serve(handle, arguments, service).await
    })?;
    if !arguments.service.is_foreground() {
        let disk = mountpoint.join(DISK_NAME);
        let message = format!(
            "the disk is {0}; `losetup --find --show --direct-io=on {0}` makes a block device of it",
            disk.display()
        );
        LogLine::new(Level::INFO, "serving", message).with_path(&disk).print();
    }
    Ok(())
}

/// What is served, its name, and its description, if it is in memory.
async fn open_stack(
    handle: &Handle,
    arguments: &DiskArguments,
) -> Result<(Stack, PathBuf, Option<StackSpec>), CliError> {
    if let Some(path) = &arguments.volume {
        let options = VolumeOptions { after_crash: arguments.after_crash, ..VolumeOptions::default() };
        return Ok((Stack::open_volume(handle, path, options).await?, path.clone(), None));
    }
    let name = match (&arguments.stack, &arguments.device) {
        (Some(name), _) => name.clone(),
        (None, Some(name)) => StackName { volume: false, base: Base::Device(name.clone()) },
        (None, None) => StackName { volume: false, base: Base::Worst(Ordering::Legacy) },
    };
    if let (true, Base::Device(device)) = (name.volume, &name.base) {
        let message = format!(
            "making a volume on {device}: it takes as long as on the device itself, and less with a smaller --size"
        );
        LogLine::new(Level::INFO, "volume_making", message).print();
    }
    let spec = stack::describe(handle, &name, arguments.size, arguments.cuts.is_some())?;
    let shown = arguments.device.clone().unwrap_or_else(|| match arguments.worst {
        true => "worst".to_owned(),
        false => name.to_string(),
    });
    Ok((Stack::make(handle, &spec).await?, PathBuf::from(shown), Some(spec)))
}

/// A storage whose requests are appended to a file.
fn log_before(storage: Rc<dyn Storage>, path: &Path) -> Result<Rc<dyn Storage>, CliError> {
    let opened = File::options().create(true).append(true).open(path);
    let failed = |source| CliError::File { doing: "write requests to", path: path.to_owned(), source };
    let mut file = opened.map_err(failed)?;
    let (logged, name) = (LoggedStorage::before(storage), path.display().to_string());
    logged.send_to(move |request| {
        if let Err(error) = request.write_to(&mut file) {
            let message = format!("a request is missing in {name}: {error}");
            LogLine::new(Level::WARN, "request_not_logged", message).with("path", name.clone()).print();
        }
    });
    Ok(logged)
}

async fn serve(handle: Handle, arguments: &DiskArguments, service: Service) -> Result<(), CliError> {
    let (stack, name, spec) = open_stack(&handle, arguments).await?;
    let cuts = match (&arguments.cuts, spec) {
        (Some(directory), Some(spec)) => {
            Some(Cuts::new(&handle, (stack.disk().clone(), spec.disk), &absolute(directory))?)
        }
        _ => None,
    };
    let options = ServerOptions {
        name: name.display().to_string(),
        allow_other: false,
        read_only: false,
        no_exec: false,
        access_times: false,
        sync: SyncMode::Durable,
        store: None,
        writeback_cache: false,
        open_requests: true,
        file_handles: true,
        awake: arguments.service.awake(),
        request_bytes_max: REQUEST_BYTES_UNDER_WAY_MAX,
    };
    let stack = Rc::new(stack);
    let storage = match &arguments.requests {
        Some(path) => log_before(stack.storage(), &absolute(path))?,
        None => stack.storage(),
    };
    let status = {
        let (handle, stack) = (handle.clone(), Rc::clone(&stack));
        async move |load| status::of_disk(&handle, &stack, load).await
    };
    let server = Server::mount_disk(&handle, storage, &arguments.mountpoint, &options, status).await?;
    if let Some(cuts) = cuts {
        drop(handle.spawn(cuts.serve()));
    }
    stack.warn_of_readers(&handle, &name).await;
    stack.tell_of_unused().await;
    let served = service.until_unmounted(&handle, server, async |_, _| Ok(()), || ()).await;
    let flushed = weir_storage::flush(&*stack.storage()).await;
    let flushed = flushed.map_err(|error| CliError::Image { path: name.clone(), source: error.into() });
    let closed = stack.close(Path::new(&name)).await;
    served.and(flushed).and(closed)
}
