//! The places of a device's queue: each holds one request at a time, and a task of its own answers it.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use futures_util::future::select_all;
use weir_export::{Export, Load, UnderWay};
use weir_runtime::{Handle, Task, UBLK_DESCRIPTION_BYTES, UblkQueue};

use crate::protocol::{DATA_BYTES_MAX, PLACES, Request};
use crate::requests::answer;

/// Where requests come from: the kernel, or a test.
pub trait Places: 'static {
    /// Answers the last request in a place, if `answer` says so, by its bytes or a negative error number; and waits for
    /// the next one: its description.
    ///
    /// # Errors
    /// No request comes any more, and why.
    fn next(
        &self,
        tag: u16,
        answer: Option<i32>,
    ) -> impl Future<Output = io::Result<[u8; UBLK_DESCRIPTION_BYTES]>>;

    /// Copies the data of a write out of its request.
    ///
    /// # Errors
    /// The request has less.
    fn take_data(&self, tag: u16, data: &mut [u8]) -> io::Result<()>;

    /// Copies data into the request of a read.
    ///
    /// # Errors
    /// The request takes less.
    fn give_data(&self, tag: u16, data: &[u8]) -> io::Result<()>;
}

impl Places for UblkQueue {
    async fn next(&self, tag: u16, answer: Option<i32>) -> io::Result<[u8; UBLK_DESCRIPTION_BYTES]> {
        self.next(tag, answer).await
    }

    fn take_data(&self, tag: u16, data: &mut [u8]) -> io::Result<()> {
        self.take_data(tag, data)
    }

    fn give_data(&self, tag: u16, data: &[u8]) -> io::Result<()> {
        self.give_data(tag, data)
    }
}

/// The tasks that answer the requests of a device.
pub struct Serving {
    tasks: Vec<Task<io::Error>>,
    load: Rc<Load>,
    is_ending: Rc<Cell<bool>>,
}

impl Serving {
    /// Answers requests from now on.
    #[must_use]
    pub fn start(handle: &Handle, export: &Rc<Export>, places: &Rc<impl Places>) -> Serving {
        let (load, is_ending) = (Rc::new(Load::new(export.rules())), Rc::<Cell<bool>>::default());
        let serve = |tag| {
            let (export, places) = (Rc::clone(export), Rc::clone(places));
            let (load, is_ending) = (Rc::clone(&load), Rc::clone(&is_ending));
            handle.spawn(async move {
                let mut answered = None;
                loop {
                    let description = match places.next(tag, answered).await {
                        Ok(description) => description,
                        Err(error) => return error,
                    };
                    if is_ending.get() {
                        // The kernel keeps it for the next server.
                        return io::ErrorKind::Interrupted.into();
                    }
                    let request = Request::decode(description);
                    let under_way = UnderWay::new(&load, request.length.min(DATA_BYTES_MAX.into()) as usize);
                    answered = Some(answer(&export, &places, tag, request).await);
                    drop(under_way);
                }
            })
        };
        Serving { tasks: (0..PLACES).map(serve).collect(), load, is_ending }
    }

    /// Waits until a place takes no more requests; why.
    pub async fn failed(&mut self) -> io::Error {
        let (ended, _, _) = select_all(self.tasks.iter_mut()).await;
        ended.unwrap_or_else(io::Error::other)
    }

    /// Begins no more requests, and waits until those that have begun are answered.
    pub async fn end(self) {
        self.is_ending.set(true);
        self.load.is_idle().await;
        self.tasks.iter().for_each(Task::cancel);
    }

    /// Waits until no request comes any more: the device is not shown.
    pub async fn ended(self) {
        for task in self.tasks.into_iter().filter(|task| !task.is_finished()) {
            // It is cancelled only with the runtime.
            let _ = task.await;
        }
    }
}
