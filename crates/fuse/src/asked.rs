//! Requests and answers as bytes, without a mount: as tests and the fuzz target ask, in virtual time.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use rustix::io::Errno;
use weir_runtime::Handle;
use weir_storage::Rules;
use weir_vfs::Filesystem;

use crate::calls::{Calls, Hooks, SyncHook};
use crate::control::SyncMode;
use crate::files::Files;
use crate::kernel::KernelCache;
use crate::mutants::FuseMutant;
use crate::notice_threads::NoticeThreads;
use crate::notifier::Notifier;
use crate::protocol::{Answer, Header, forgotten, opcode};
use crate::remote_sync::RemoteSync;
use crate::serve::{Service as _, answer_operation};

/// A filesystem that is asked as `/dev/fuse` brings requests, by a stand-in for the kernel.
pub struct Asked {
    calls: Rc<Calls>,
    /// What was opened and may be still.
    opened: RefCell<BTreeSet<u64>>,
    handovers: Rc<Cell<u32>>,
}

impl Asked {
    /// `writeback_cache` says that the kernel keeps what programs write; it cannot be asked for its pages. `store` is waited for where
    /// a file is to be there.
    pub fn new(
        handle: &Handle,
        filesystem: Filesystem,
        promises: (SyncMode, Option<RemoteSync>),
        writeback_cache: bool,
    ) -> LocalBoxFuture<'_, Asked> {
        Asked::new_with_notices(handle, filesystem, promises, (writeback_cache, None), Rules::all())
    }

    /// The same for a kernel that gets notices by a file, if there is one, and need not heed them. Requests are answered by these rules.
    pub fn new_with_notices(
        handle: &Handle,
        filesystem: Filesystem,
        (sync, store): (SyncMode, Option<RemoteSync>),
        (writeback_cache, notices): (bool, Option<File>),
        rules: Rules<FuseMutant>,
    ) -> LocalBoxFuture<'_, Asked> {
        Box::pin(async move {
            let trimmed = filesystem.clone();
            let gate = Rc::default();
            let threads = NoticeThreads::new(handle, &gate);
            let notifier = Rc::new(OnceCell::new());
            let _ = notices.map(|file| notifier.set(Notifier::new(Arc::new(file))));
            let kernel = KernelCache::new(&filesystem, writeback_cache, notifier, threads, rules);
            let (handovers, counted) = (Rc::<Cell<u32>>::default(), Rc::<OnceCell<Box<SyncHook>>>::default());
            let count = Rc::clone(&handovers);
            let hook = move || -> Box<dyn Any> {
                count.set(count.get() + 1);
                Box::new(())
            };
            let _ = counted.set(Box::new(hook));
            let hooks = Hooks {
                status: Box::new(|_| Box::pin(async { "{}".to_owned() })),
                trim: Box::new(move |range, minimum| {
                    let filesystem = trimmed.clone();
                    Box::pin(async move { filesystem.trim(range, minimum).await })
                }),
                change_volume: Box::new(|_| {
                    Box::pin(async { Err(weir_vfs::FsError::Unsupported("a volume")) })
                }),
                sync: counted,
            };
            let calls =
                Calls::new(handle, &gate, (filesystem, kernel), Files::new(true), (sync, store), hooks).await;
            Asked { calls, opened: RefCell::default(), handovers }
        })
    }

    /// How often everything was made durable as before an unmount.
    #[must_use]
    pub fn handovers(&self) -> u32 {
        self.handovers.get()
    }

    /// Answers one request; `None` where the kernel waits for no answer, or cannot be answered.
    pub fn answer<'a>(&'a self, request: &'a [u8]) -> LocalBoxFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let (header, body) = Header::split(request)?;
            let answer = match header.opcode {
                opcode::FORGET | opcode::BATCH_FORGET => {
                    forgotten(&header, body).for_each(|(node, count)| self.calls.forget(node, count));
                    return None;
                }
                opcode::NOTIFY_REPLY => return None,
                opcode::DESTROY => Ok(Answer::Done),
                _ => answer_operation(&*self.calls, &header, body).await,
            };
            self.opened.borrow_mut().extend(answer.as_ref().ok().and_then(Answer::handle));
            let body = answer.as_ref().map_or(&[][..], Answer::body);
            Some([&Answer::header(header.unique, answer.as_ref().err().copied(), body), body].concat())
        })
    }

    /// Closes all that is open, as the kernel does when the last program ends.
    ///
    /// # Errors
    /// The first error of the filesystem.
    pub fn close_all(&self) -> LocalBoxFuture<'_, Result<(), i32>> {
        Box::pin(async move {
            let opened = self.opened.take();
            let mut outcome = Ok(());
            for handle in opened {
                match self.calls.release(handle).await {
                    // It was closed by a request.
                    Ok(()) | Err(Errno::BADF) => {}
                    Err(error) => outcome = outcome.and(Err(error.raw_os_error())),
                }
            }
            outcome
        })
    }
}
