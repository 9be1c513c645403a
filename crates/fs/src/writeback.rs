//! Writeback: dirty pages go to the disk without anybody waiting, as pdflush did it, and without order as long as no call
//! has promised any. The file whose pages have been dirty longest comes first, when they are too old or there are too
//! many.

use std::rc::{Rc, Weak};
use std::time::Duration;

use event_listener::EventListener;
use futures_util::{FutureExt, select_biased};
use weir_block::Class;
use weir_runtime::{Handle as Clock, Instant};

use crate::cache::PageCache;
use crate::error::FsError;
use crate::filesystem::Mounted;
use crate::node::Node;

/// Pages are written back when they have been dirty so long: Linux's `dirty_expire_centisecs`.
const EXPIRES: Duration = Duration::from_secs(30);

impl PageCache {
    /// The node to write back now; or when there will be one, if nothing happens before.
    fn due(&self) -> Result<Rc<Node>, Option<Instant>> {
        let Some((since, node)) = self.oldest_dirty() else { return Err(None) };
        let expires = since + EXPIRES;
        if self.has_too_many_dirty() || expires <= self.disk.handle().now() {
            Ok(node)
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
            Ok(node) => {
                // What fails is remembered, and whoever synchronises the file is told.
                let _ = node.submit_unasked().await;
                // Others may want the node's turn, or have something to do with what was written.
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

/// Sleeps until then, for ever if there is no such time, or until something is wanted.
async fn sleep(clock: &Clock, until: Option<Instant>, wanted: EventListener) {
    match until {
        None => wanted.await,
        Some(until) => select_biased! {
            () = wanted.fuse() => {}
            () = clock.sleep_until(until).fuse() => {}
        },
    }
}

impl Mounted {
    /// Submits all dirty pages, and waits until all pages on their way are transferred.
    ///
    /// # Errors
    /// Those of any write of a page that is in memory still.
    pub(crate) async fn write_back_everything(&self) -> Result<(), FsError> {
        // A call: what was ordered before it comes first.
        let is_dual = self.changes.as_ref().is_ok_and(|journal| journal.engine().uses_barriers());
        let class = if is_dual { Class::Ordered } else { Class::Orderless };
        for node in self.cache.dirty_nodes() {
            node.submit_dirty(class, class).await?;
        }
        for node in self.nodes.all() {
            let tickets = node.on_the_way();
            self.disk.transferred(&tickets).await?;
            node.check_written()?;
        }
        Ok(())
    }
}
