//! `weir mount` of F2FS.

use std::path::Path;
use std::rc::Rc;

use weir_fuse::{REQUEST_BYTES_UNDER_WAY_MAX, Server, ServerOptions};
use weir_lfs::{Cleaner, F2fs, F2fsOptions};
use weir_runtime::Handle;
use weir_vfs::Filesystem;

use crate::error::CliError;
use crate::memory::Limit;
use crate::mount::{MountArguments, require_mounted, serve_until_unmounted};
use crate::replication::Shipping;
use crate::service::Service;
use crate::stack::Stack;
use crate::{status, volume_calls};

/// Mounts what is on a stack.
pub(crate) async fn mount(
    handle: &Handle,
    arguments: &MountArguments,
    source: &Path,
    stack: &Stack,
) -> Result<F2fs, CliError> {
    if let Some(option) = arguments.journal_options().first() {
        return Err(CliError::OptionOfExt4 { path: source.to_owned(), option });
    }
    let default = if stack.storage().capabilities().share { Cleaner::Share } else { Cleaner::Copy };
    let options = F2fsOptions {
        read_only: arguments.is_read_only(),
        cleaner: arguments.cleaner().unwrap_or(default),
        ..F2fsOptions::default()
    };
    stack.f2fs(handle, source, options).await
}

/// Mounts what is on a stack, and serves it.
pub(crate) async fn serve(
    handle: Handle,
    arguments: &MountArguments,
    service: Service,
    (source, mountpoint): (&Path, &Path),
    (stack, shipping): (Rc<Stack>, Option<Shipping>),
) -> Result<(), CliError> {
    let filesystem = mount(&handle, arguments, source, &stack).await?;
    let store = shipping.as_ref().and_then(|shipping| shipping.remote_sync(stack.volume()));
    // It keeps no access times.
    let options = ServerOptions {
        access_times: false,
        ..arguments.server_options(source, REQUEST_BYTES_UNDER_WAY_MAX, store)
    };
    let status = {
        let (handle, stack, filesystem) = (handle.clone(), Rc::clone(&stack), filesystem.clone());
        let promises = (arguments.sync, options.writeback_cache);
        async move |load, files| status::of_f2fs(&handle, &stack, &filesystem, promises, (load, files)).await
    };
    let trim = {
        let filesystem = filesystem.clone();
        async move |range, minimum| filesystem.trim(range, minimum).await
    };
    let filesystem = Filesystem::from(filesystem);
    let change_volume = volume_calls::serving(Rc::clone(&stack), filesystem.clone(), Limit::Usual);
    let successor = arguments.successor((source, mountpoint), None, shipping.is_some());
    let at = (mountpoint, None);
    let server = Server::mount(&handle, filesystem.clone(), at, &options, status, trim, change_volume).await;
    let server = require_mounted(server, &filesystem).await?;
    let mounted = (filesystem, server, successor);
    serve_until_unmounted(handle, arguments, service, (source, &stack), mounted, shipping).await
}
