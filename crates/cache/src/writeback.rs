//! Writeback: dirty pages go to the disk without anybody waiting, as pdflush did it, and without order as long as no call
//! has promised any. The file whose pages have been dirty longest comes first, when they are too old or there are too
//! many.

use std::rc::{Rc, Weak};
use std::time::Duration;

use event_listener::EventListener;
use futures_util::{FutureExt, select_biased};
use weir_runtime::{Handle as Clock, Instant};

use crate::file::CachedFile;
use crate::page_cache::PageCache;

/// Pages are written back when they have been dirty so long: Linux's `dirty_expire_centisecs`.
const EXPIRES: Duration = Duration::from_secs(30);

impl PageCache {
    /// The file to write back now; or when there will be one, if nothing happens before.
    fn due(&self) -> Result<Rc<CachedFile>, Option<Instant>> {
        let Some((since, file)) = self.oldest_dirty() else { return Err(None) };
        let expires = since + EXPIRES;
        if self.has_too_many_dirty() || expires <= self.disk.handle().now() {
            Ok(file)
        } else {
            Err(Some(expires))
        }
    }
}

/// Writes back whatever is due, for as long as the cache lives.
pub(crate) async fn writeback_task(cache: Weak<PageCache>) {
    loop {
        let Some(now) = cache.upgrade() else { return };
        let wanted = now.wanted.listen();
        match now.due() {
            Ok(file) => {
                // A failure is remembered, and reported to a caller that synchronises the file.
                let _ = file.submit_unasked().await;
                // Others may want the file's turn, or have something to do with what was written.
                now.disk.handle().yield_now().await;
            }
            Err(expires) => {
                let clock = now.disk.handle().clone();
                drop(now);
                sleep(&clock, expires, wanted).await;
            }
        }
    }
}

/// Sleeps until a time, or without end if there is none, or until writeback is wanted.
async fn sleep(clock: &Clock, until: Option<Instant>, wanted: EventListener) {
    match until {
        None => wanted.await,
        Some(until) => select_biased! {
            () = wanted.fuse() => {}
            () = clock.sleep_until(until).fuse() => {}
        },
    }
}
