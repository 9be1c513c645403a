//! What a service manager that started this process, such as systemd, is told: that it serves, that it still runs, that it ends. Where
//! none asked (`NOTIFY_SOCKET`, `WATCHDOG_USEC`), nothing.

use sd_notify::{NotifyState, notify, watchdog_enabled};
use weir_runtime::Handle;

/// Says that programs may use the service.
pub(crate) fn notify_ready() {
    send(&[NotifyState::Ready]);
}

/// Says from now on, as often as the manager's watchdog asks, that the runtime's thread still does its work. A disk that does not
/// answer is no reason to end it: a server that is started anew would wait for the same disk.
pub(crate) fn keep_watchdog(handle: &Handle) {
    if let Some(limit) = watchdog_enabled() {
        let handle = handle.clone();
        drop(handle.clone().spawn(async move {
            loop {
                send(&[NotifyState::Watchdog]);
                handle.sleep(limit / 3).await;
            }
        }));
    }
}

/// Says that the service ends, which may take its time.
pub(crate) fn notify_stopping() {
    send(&[NotifyState::Stopping]);
}

/// The manager finds out by itself what it was not told.
fn send(state: &[NotifyState<'_>]) {
    let _ = notify(state);
}
