//! A device: it is made, or taken up from a server that was killed; shown; and at the end removed, or left to the next
//! server.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use futures_util::{FutureExt as _, select_biased};
use rustix::io::Errno;
use rustix::process::configure_io_flusher_behavior;
use tracing::warn;
use weir_export::Export;
use weir_runtime::{Handle, UblkControl, UblkQueue, control_ublk};
use weir_storage::Rules;
use zerocopy::{FromBytes as _, FromZeros as _, IntoBytes as _};

use crate::end_mark::EndMark;
use crate::error::UblkError;
use crate::mutants::UblkMutant;
use crate::places::Serving;
use crate::protocol::{DeviceInfo, PLACES, Parameters, features};
use crate::turn::{DeviceState, Turn, require_own};
use crate::users::{claim_within, holder_of};

/// When to look again at a device that another server may be leaving.
const RETRY: Duration = Duration::from_millis(10);
/// How long the end waits for other programs to let go of a device that is shown no more.
const REMOVED_WITHIN: Duration = Duration::from_secs(5);
/// How long the end waits for programs to close a device: udev and blkid read one that was just written, for a moment.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// What became of a device at the end of its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// It is gone.
    Nothing,
    /// It is used, by what is named here, so it waits for the next server.
    Waiting(String),
}

/// A block device that is served. Its requests are answered as long as its runtime runs.
pub struct UblkServer {
    device: Device,
    queue: Rc<UblkQueue>,
    serving: Serving,
    export: Rc<Export>,
}

/// The path of the block device with a number.
#[must_use]
pub fn path_of(number: u32) -> PathBuf {
    format!("/dev/ublkb{number}").into()
}

impl UblkServer {
    /// Refuses a number whose device belongs to another server or volume than the one with this identity.
    ///
    /// # Errors
    /// [`UblkError`]; also where the kernel has no ublk, or does not admit this process to it.
    pub async fn require_free(handle: &Handle, number: u32, volume: u64) -> Result<(), UblkError> {
        let device = Device::find(handle, number).await?;
        device.info().await?.map_or(Ok(()), |info| require_own(&info, volume, device.rules))
    }

    /// Shows an export as the device with a number, which returns when programs can use it. `volume` is the identity of
    /// what is exported: a device that a killed server of the same has left is taken up, and the requests that it had
    /// not answered come again. If that one's answers were not the disk's (N4), no flush succeeds after a kill (N7). When
    /// `is_ending` returns true, a device that another server has is not waited for, for up to a minute, any more.
    ///
    /// # Errors
    /// [`UblkError`]; [`UblkError::StartCancelled`] where `is_ending` said so. The device is as it was then.
    pub async fn start(
        handle: &Handle,
        (number, volume): (u32, u64),
        export: &Rc<Export>,
        answers_from_disk: bool,
        is_ending: impl FnMut() -> bool,
    ) -> Result<UblkServer, UblkError> {
        // So that writing back dirty pages, which this server is there for, waits for no memory that only this would
        // free. It is of this thread, which answers requests, and of those that it starts from now on. The kernel
        // refuses it to those who lack CAP_SYS_RESOURCE.
        let _ = configure_io_flusher_behavior(true);
        let device = Device::find(handle, number).await?;
        let is_new = device.prepare(volume, &Parameters::of(export), is_ending).await?;
        let has_ended = EndMark::new(number).take();
        let is_behind_loss = !is_new && !has_ended && !answers_from_disk;
        if is_behind_loss {
            warn!(
                name: "device_behind_loss",
                number,
                "the last server was killed, and writes that it had answered may be lost: no flush of this device succeeds; unmount, \
                 end this server, and start it anew with --answer disk"
            );
        }
        export.fail_flushes(is_behind_loss);
        let started = device.show(export, is_new).await;
        if started.is_err() && is_new {
            // What is left otherwise is removed by the next server.
            let _ = device.remove().await;
        }
        let (queue, serving) = started?;
        Ok(UblkServer { device, queue, serving, export: Rc::clone(export) })
    }

    /// Waits until the kernel takes the device away; why.
    pub async fn failed(&mut self) -> io::Error {
        self.serving.failed().await
    }

    /// Removes the device. One that is still used after a second is left instead, with all begun requests answered:
    /// what programs ask for then waits for the next server.
    ///
    /// # Errors
    /// [`UblkError::Held`] where the device is shown no more and a program that was not found keeps its number;
    /// [`UblkError::Kernel`] where the kernel keeps the device.
    pub async fn stop(self) -> Result<Left, UblkError> {
        let UblkServer { device, queue, serving, export } = self;
        let claimed = claim_within(&device.handle, path_of(device.number), CLOSED_WITHIN).await;
        let used = match claimed {
            Ok(claimed) => device.hide(claimed).await?,
            Err(user) => Some(user),
        };
        if let Some(user) = used {
            serving.end().await;
            // Without the mark, the next server takes this one for killed.
            if export.make_durable().await.is_ok() {
                let _ = EndMark::new(device.number).leave();
            }
            return Ok(Left::Waiting(user));
        }
        serving.ended().await;
        drop(queue);
        device.remove().await?;
        Ok(Left::Nothing)
    }
}

/// A device, by its number.
struct Device {
    handle: Handle,
    number: u32,
    /// Whether the kernel itself refuses to stop a device that is open somewhere.
    refuses_stop: bool,
    rules: Rules<UblkMutant>,
}

impl Device {
    /// The device with a number, which need not be there, of a kernel that can do what is needed.
    async fn find(handle: &Handle, number: u32) -> Result<Device, UblkError> {
        let mut device = Device { handle: handle.clone(), number, refuses_stop: false, rules: Rules::all() };
        device.refuses_stop = device.require_features().await? & features::SAFE_STOP != 0;
        Ok(device)
    }

    /// Sends a command on a thread of its own, since it may wait for requests to be answered.
    async fn try_control(&self, command: UblkControl, data: u64, buffer: Vec<u8>) -> io::Result<Vec<u8>> {
        let number = self.number;
        let sent = self.handle.blocking(move || control_ublk(command, number, data, buffer)).await;
        sent.unwrap_or_else(|cancelled| Err(io::Error::other(cancelled)))
    }

    async fn control(
        &self,
        doing: &'static str,
        command: UblkControl,
        data: u64,
        buffer: Vec<u8>,
    ) -> Result<Vec<u8>, UblkError> {
        let sent = self.try_control(command, data, buffer).await;
        sent.map_err(|source| self.refused(doing, source))
    }

    fn refused(&self, doing: &'static str, source: io::Error) -> UblkError {
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT) => UblkError::NoModule,
            Some(Errno::ACCESS | Errno::PERM) => UblkError::NotPermitted(source),
            _ => UblkError::Kernel { doing, number: self.number, source },
        }
    }

    /// What the kernel can do, as bits.
    async fn require_features(&self) -> Result<u64, UblkError> {
        let needed = features::NEEDED;
        let found = match self.try_control(UblkControl::GetFeatures, 0, vec![0; 8]).await {
            Ok(found) => u64::read_from_bytes(&found).unwrap_or(0),
            // Kernels before 6.5 do not know the command.
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::NODEV) => 0,
                _ => return Err(self.refused("look for", error)),
            },
        };
        if found & needed == needed { Ok(found) } else { Err(UblkError::OldKernel { found, needed }) }
    }

    /// What the device is; none if it is not there.
    async fn info(&self) -> Result<Option<DeviceInfo>, UblkError> {
        let buffer = DeviceInfo::new_zeroed().as_bytes().to_vec();
        match self.try_control(UblkControl::GetInfo, 0, buffer).await {
            Ok(found) => Ok(DeviceInfo::read_from_bytes(&found).ok()),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => Ok(None),
            Err(error) => Err(self.refused("look at", error)),
        }
    }

    /// Makes the device, or takes it up; whether it is new. Devices of others are left alone. It can end only between turns: the kernel
    /// is done then with what it was asked.
    async fn prepare(
        &self,
        volume: u64,
        parameters: &Parameters,
        mut is_ending: impl FnMut() -> bool,
    ) -> Result<bool, UblkError> {
        let began = self.handle.now();
        loop {
            let info = self.info().await?;
            let server_runs = info.is_some_and(|info| runs(info.process));
            let waited = self.handle.now().since(began);
            let found =
                DeviceState { number: self.number, info, server_runs, waited, is_ending: is_ending() };
            match found.next_turn(volume, self.rules)? {
                Turn::Make => {
                    self.add(volume, parameters).await?;
                    return Ok(true);
                }
                Turn::Remove => self.remove().await?,
                Turn::TakeUp if self.take_up(parameters).await? => return Ok(false),
                Turn::TakeUp | Turn::Wait => {}
            }
            self.handle.sleep(RETRY).await;
        }
    }

    async fn add(&self, volume: u64, parameters: &Parameters) -> Result<(), UblkError> {
        let info = DeviceInfo::new(self.number, volume, self.rules).as_bytes().to_vec();
        self.control("make", UblkControl::Add, 0, info).await?;
        let parameters = parameters.as_bytes().to_vec();
        let set = self.control("describe", UblkControl::SetParameters, 0, parameters).await;
        if set.is_err() {
            let _ = self.remove().await;
        }
        set.map(drop)
    }

    /// Takes up a device whose server is gone; whether the kernel is ready for that.
    async fn take_up(&self, parameters: &Parameters) -> Result<bool, UblkError> {
        let buffer = parameters.as_bytes().to_vec();
        let found = self.control("look at", UblkControl::GetParameters, 0, buffer).await?;
        let found = Parameters::read_from_bytes(&found).unwrap_or_default();
        // The volume may have grown.
        if found.bytes() > parameters.bytes() || found.is_read_only() != parameters.is_read_only() {
            return Err(UblkError::Changed {
                number: self.number,
                device: found.bytes(),
                export: parameters.bytes(),
                read_only: (found.is_read_only(), parameters.is_read_only()),
            });
        }
        match self.try_control(UblkControl::StartRecovery, 0, Vec::new()).await {
            Ok(_) => Ok(true),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => Ok(false),
            Err(error) => Err(self.refused("take up", error)),
        }
    }

    /// Begins to answer requests, and shows the device to programs.
    async fn show(&self, export: &Rc<Export>, is_new: bool) -> Result<(Rc<UblkQueue>, Serving), UblkError> {
        let queue = UblkQueue::open(&self.handle, self.number, PLACES);
        let opened = queue.map_err(|source| UblkError::Kernel { doing: "open", number: self.number, source });
        let queue = Rc::new(opened?);
        let serving = Serving::start(&self.handle, export, &queue);
        let command = if is_new { UblkControl::Start } else { UblkControl::EndRecovery };
        let process = u64::from(std::process::id());
        match self.control("show", command, process, Vec::new()).await {
            Ok(_) => Ok((queue, serving)),
            Err(error) => {
                serving.end().await;
                Err(error)
            }
        }
    }

    /// Shows the device no more, unless it is used; by what. As long as it is claimed, nothing mounts it.
    async fn hide(&self, claimed: Option<File>) -> Result<Option<String>, UblkError> {
        if !self.refuses_stop {
            self.control("stop", UblkControl::Stop, 0, Vec::new()).await?;
            return Ok(None);
        }
        // The kernel counts this process, too.
        drop(claimed);
        match self.try_control(UblkControl::TryStop, 0, Vec::new()).await {
            Ok(_) => Ok(None),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {
                Ok(Some("a program, as the kernel says".to_owned()))
            }
            Err(error) => Err(self.refused("stop", error)),
        }
    }

    /// Removes the device, which is not shown. A program that still has it open keeps its number: then this is given
    /// up, and the kernel frees the number when that program lets go.
    async fn remove(&self) -> Result<(), UblkError> {
        select_biased! {
            removed = self.control("remove", UblkControl::Delete, 0, Vec::new()).fuse() => removed.map(drop),
            () = self.handle.sleep(REMOVED_WITHIN).fuse() => {
                let number = self.number;
                let holder = self.handle.blocking(move || holder_of(number)).await.unwrap_or_default();
                Err(UblkError::Held { number, holder: holder.unwrap_or_else(|| "a program".to_owned()) })
            }
        }
    }
}

/// Whether a process runs; one that has ended and waits for its parent has no program.
fn runs(process: i32) -> bool {
    fs::read_link(format!("/proc/{process}/exe")).is_ok()
}
