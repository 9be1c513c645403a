//! A server that reads requests from the device, as `weir mount` does.

use std::error::Error;
use std::fs::File;
use std::io::{self, IoSlice, Write as _};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use weir_runtime::{Event, Runtime, Wall};

use crate::answers::{Answer, TRANSFER_BYTES, answer, has_ended, request};

/// Sends an answer. That the request was given up does not matter.
pub fn write(mut device: &File, answer: &Answer) -> io::Result<()> {
    match device.write_vectored(&[IoSlice::new(&answer.header), IoSlice::new(answer.body())]) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub fn serve(device: File, watch: Duration, gives_way: bool) -> Result<(), Box<dyn Error>> {
    fcntl_setfl(&device, fcntl_getfl(&device)? | OFlags::NONBLOCK)?;
    let device = Arc::new(device);
    let runtime = Runtime::wall(Wall::default())?;
    let handle = runtime.handle();
    let ring = handle.ring().ok_or("there is no ring")?;
    let mut buffer = vec![0; TRANSFER_BYTES + 4096];
    let served: io::Result<()> = runtime.block_on(async {
        let mut active = handle.now();
        loop {
            match rustix::io::read(&*device, &mut buffer) {
                Ok(length) => {
                    let asked = request(&buffer[..length]).ok_or(io::ErrorKind::InvalidData)?;
                    if let Some(answer) = answer(asked, false) {
                        write(&device, &answer)?;
                    }
                    active = handle.now();
                }
                Err(rustix::io::Errno::AGAIN) => {
                    if handle.now() >= active + watch {
                        let stirred = Rc::new(Event::new());
                        let (readable, notified) = (stirred.listen(), Rc::clone(&stirred));
                        ring.readable(&device, move |_| {
                            notified.notify(1);
                        })
                        .map_err(io::Error::other)?;
                        readable.await;
                    } else if gives_way {
                        handle.give_way().await;
                    }
                }
                Err(rustix::io::Errno::INTR | rustix::io::Errno::NOENT) => {}
                Err(errno) if has_ended(&errno.into()) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    })?;
    Ok(served?)
}
