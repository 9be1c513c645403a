//! Ships a volume to an object store while it is in use, by `--replicate` of `weir mount` and `weir serve` or by `--cache` of `weir
//! mount`, and what its status says of that.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use tracing::Level;
use weir_fuse::RemoteSync;
use weir_replica::{
    RemoteFlush, ReplicaError, ReplicaOptions, ReplicaStorage, Replication, ReplicationStatus, Shipper,
    Uploader, WritersReleased,
};
use weir_runtime::{Handle, Task};
use weir_storage::Storage;
use weir_volume::{TapBounds, Volume};

use crate::error::CliError;
use crate::log_line::LogLine;
use crate::plain::counted;
use crate::replica::{
    ReadArguments, RequestCounts, WriteArguments, open_store, parse_duration, tell_of_passed_over,
};
use crate::size::Size;

/// Bytes that the store may be behind.
pub(crate) const BACKLOG_MAX: u64 = 64 << 20;
/// And for how long.
pub(crate) const LAG_DEFAULT: Duration = Duration::from_secs(1);

/// How long a mount whose writers never wait waits for the first answer of the store.
const REACHED_WITHIN: Duration = Duration::from_secs(10);

/// How long after everything was made durable no writer waits for the store.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(5);

/// Options of a mount or a server whose volume is shipped.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReplicationArguments {
    /// Ship the volume to an object store meanwhile, see docs/replicate.md: s3://BUCKET[/PREFIX], or file:///DIRECTORY with its whole path
    #[arg(long = "replicate", value_name = "URL", group = "shipped")]
    url: Option<String>,
    /// For a volume that is shipped: how long data that is durable here may be missing from the store; then writers wait
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration, requires = "shipped")]
    lag: Duration,
    /// For a volume that is shipped: writers never wait for the store. If it is more than 64 MiB behind, what changed is looked up and
    /// shipped when it answers again
    #[arg(long, requires = "shipped")]
    never_wait: bool,
    #[command(flatten)]
    write: WriteArguments,
}

/// A volume that is being shipped.
pub(crate) struct Shipping {
    pub(crate) replication: Replication,
    task: Task<Result<(), ReplicaError>>,
    pub(crate) url: String,
    /// The state in the store that the volume lies on, with --cache.
    base: Option<ReplicaStorage>,
    /// How long the end of the mount waits for the store.
    patience: Duration,
    /// Once the mount is ending.
    released: RefCell<Option<WritersReleased>>,
}

impl ReplicationArguments {
    /// Whether the volume is shipped.
    pub(crate) fn is_given(&self) -> bool {
        self.url.is_some()
    }

    /// How a replica is read.
    pub(crate) fn read(&self) -> &ReadArguments {
        &self.write.read
    }

    /// Begins to ship an open volume, if that was asked for. With `stops`, not for longer than the store answers.
    pub(crate) async fn begin(
        &self,
        handle: &Handle,
        volume: Option<Rc<Volume>>,
        stops: bool,
    ) -> Result<Option<Shipping>, CliError> {
        let Some(url) = &self.url else { return Ok(None) };
        let Some(volume) = volume else {
            return Err(CliError::Usage("--replicate ships a volume: this is a filesystem without one"));
        };
        let options = self.options(stops)?;
        let store = open_store(handle, url, options.unfenced)?;
        let shipper: Shipper = match self.never_wait {
            true => {
                let bounds = (self.bounds(), REACHED_WITHIN);
                Shipper::open(handle, volume, store, bounds, options).await?
            }
            // Without an answer no bound can be held.
            false => match Uploader::open(handle, volume, store, self.bounds(), options).await {
                Err(ReplicaError::Store(source)) if source.is_transient() => {
                    return Err(CliError::StoreSilent(source));
                }
                opened => opened?.into(),
            },
        };
        if let Some(why) = shipper.why_not_reached() {
            let message = format!(
                "{url}: {why}. It is served without the store; what that lacks is shipped when it answers, and until then is not there"
            );
            LogLine::new(Level::WARN, "store_not_reached", message).with("url", url.as_str()).print();
        }
        Ok(Some(self.ship(handle, shipper, url, None)))
    }

    /// How the replica is written. With `stops`, not for longer than the store answers.
    pub(crate) fn options(&self, stops: bool) -> Result<ReplicaOptions, CliError> {
        if self.lag < Duration::from_millis(10) {
            return Err(CliError::Usage("--lag: 10ms at least"));
        }
        Ok(ReplicaOptions { lag: self.lag, stops, ..self.write.options()? })
    }

    /// How far the store may be behind.
    pub(crate) fn bounds(&self) -> TapBounds {
        TapBounds { bytes: BACKLOG_MAX, time: self.lag, never_wait: self.never_wait }
    }

    /// Begins to ship a volume, on this state of the store if it lies on one.
    pub(crate) fn ship(
        &self,
        handle: &Handle,
        shipper: Shipper,
        url: &str,
        base: Option<ReplicaStorage>,
    ) -> Shipping {
        tell_of_passed_over(url, shipper.passed_over());
        let replication = shipper.replication();
        let task = handle.spawn(shipper.run());
        let (patience, released) = (self.write.read.patience, RefCell::default());
        Shipping { replication, task, url: url.to_owned(), base, patience, released }
    }
}

impl Shipping {
    /// The volume, with flushes that wait for the store.
    pub(crate) fn remote_flush(&self, handle: &Handle, volume: Rc<Volume>) -> Rc<dyn Storage> {
        Rc::new(RemoteFlush::new(handle, volume, self.replication.clone()))
    }

    /// What `fsync` of a file waits for that is to be in the store.
    pub(crate) fn remote_sync(&self, volume: Option<Rc<Volume>>) -> Option<RemoteSync> {
        let (volume, replication, patience) = (volume?, self.replication.clone(), self.patience);
        // The status says why not.
        Some(RemoteSync::new(async move || replication.ship_placed(&volume, patience).await.is_ok()))
    }

    /// The mount serves: from here on reads of the store wait for it without end, as shipping does. One that a write needs would end
    /// the journal if it failed.
    pub(crate) fn begin_serving(&self) {
        self.base.iter().for_each(|base| base.set_patience(None));
    }

    /// Releases writers while everything is made durable here, as before an unmount: none waits for the store then, nor for some
    /// seconds more, in which the kernel hands over what it keeps.
    pub(crate) fn release_writers_hook(&self, handle: &Handle) -> impl Fn() -> Box<dyn Any> + 'static {
        let (handle, replication) = (handle.clone(), self.replication.clone());
        move || {
            let (sync, unmount) = (replication.release_writers(), replication.release_writers());
            let over = handle.sleep(HANDED_OVER_WITHIN);
            drop(handle.spawn(async move {
                over.await;
                drop(unmount);
            }));
            Box::new(sync)
        }
    }

    /// The mount is ending: no writer waits for the store any more, and when patience is over nothing more is shipped.
    pub(crate) fn begin_end(&self, handle: &Handle) {
        self.released.replace(Some(self.replication.release_writers()));
        self.base.iter().for_each(|base| base.set_patience(Some(self.patience)));
        let (over, replication) = (handle.sleep(self.patience), self.replication.clone());
        drop(handle.spawn(async move {
            over.await;
            replication.give_up();
        }));
    }

    /// Ships what is left until patience is over.
    pub(crate) async fn end(self) {
        self.replication.stop();
        if !matches!(self.task.await, Ok(Ok(()))) {
            let trouble = self.replication.status().trouble.unwrap_or_default();
            let next = match self.base.is_some() {
                true => "the next mount with its --cache",
                false => "the next mount or server, or `weir replicate`,",
            };
            let message =
                format!("{}: not everything was shipped; {next} ships the rest: {trouble}", self.url);
            LogLine::new(Level::WARN, "not_all_shipped", message)
                .with("url", self.url)
                .with("reason", trouble)
                .print();
        }
    }
}

/// How far the store is behind, as a status tells it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct ReplicationLine {
    /// The store's, which holds no credentials; none of a server that does not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    pub(crate) lag_ms: u64,
    pub(crate) lag_bytes: u64,
    /// It is overdue, or catches up.
    pub(crate) behind: bool,
    /// It is further behind than it may be.
    #[serde(default)]
    pub(crate) overdue: bool,
    /// The newest request in the store.
    pub(crate) shipped: u64,
    /// Nothing more is shipped.
    pub(crate) stopped: bool,
    /// How long the oldest request to the store has been waiting for its answer.
    #[serde(default)]
    pub(crate) longest_wait_ms: u64,
    /// Why nothing is shipped now.
    pub(crate) trouble: Option<String>,
    pub(crate) requests: RequestCounts,
}

impl ReplicationLine {
    /// That of the store at a URL.
    pub(crate) fn new(url: &str, status: ReplicationStatus) -> ReplicationLine {
        ReplicationLine {
            url: Some(url.to_owned()),
            lag_ms: u64::try_from(status.lag.as_millis()).unwrap_or(u64::MAX),
            lag_bytes: status.lag_bytes,
            behind: status.behind,
            overdue: status.overdue,
            shipped: status.shipped,
            stopped: status.stopped,
            longest_wait_ms: status.longest_wait.as_millis() as u64,
            trouble: status.trouble,
            requests: status.requests.into(),
        }
    }

    /// For people: where the store is, and how far it is behind.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let store = self.url.iter().map(|url| ("object store", url.clone()));
        store.chain([("replication", self.text())]).collect()
    }
}

/// For how long a request to a store has had no answer, if that is long; behind other words.
pub(crate) fn wait_text(longest_wait_ms: u64) -> String {
    match longest_wait_ms / 1000 {
        0 => String::new(),
        seconds => format!(", the oldest one without an answer for {seconds} s"),
    }
}

impl ReplicationLine {
    /// What an unmount leaves to be shipped later, as far as that is known before it: while the store has no trouble the server
    /// ships everything.
    pub(crate) fn left_text(&self) -> Option<String> {
        let left = match self.lag_bytes {
            0 if self.behind || self.stopped => "not everything is in the store".to_owned(),
            0 => return None,
            bytes => format!("{} are not in the store", Size(bytes)),
        };
        let trouble = self.trouble.as_ref()?;
        let now = if self.stopped { "" } else { "the server tries for --patience; then " };
        Some(format!(
            "{left} ({trouble}): {now}the next mount with --replicate or --cache, or `weir replicate`, has to ship the rest"
        ))
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let state = match (self.stopped, self.overdue) {
            (true, _) => "STOPPED",
            (_, true) => "BEHIND",
            _ if self.behind => "catching up",
            _ if self.lag_bytes == 0 => "up to date",
            _ => "within --lag",
        };
        let trouble = self.trouble.as_ref().map_or_else(String::new, |trouble| format!("; {trouble}"));
        let wait = wait_text(self.longest_wait_ms);
        format!(
            "{state}: {} ms, {} not in the store; {} to the store{wait}{trouble}",
            self.lag_ms,
            Size(self.lag_bytes),
            counted(self.requests.total(), "call", "calls")
        )
    }
}
