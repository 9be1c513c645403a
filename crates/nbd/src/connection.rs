//! One client: its requests are taken in, many are under way, and each is answered when it is done.

use std::rc::Rc;
use std::time::Duration;

use futures_util::{FutureExt as _, select_biased};
use weir_export::{Export, Load, UnderWay};
use weir_runtime::Handle;
use zerocopy::FromBytes as _;

use crate::error::NbdError;
use crate::inbox::Inbox;
use crate::negotiation::{Agreed, negotiate};
use crate::outbox::Outbox;
use crate::protocol::{PAYLOAD_MAX, REQUEST_MAGIC, RequestHeader, command};
use crate::requests::{answer, bytes_for};
use crate::transport::Transport;

/// How long a client may take to say what it wants.
const NEGOTIATION_MAX: Duration = Duration::from_secs(10);
/// Requests that are taken in a row before others have their turn.
const IN_A_ROW: u32 = 32;

/// Serves one client until it disconnects, or sends no more. Requests that are under way then are answered first; one of which only a
/// part has come is not begun.
///
/// # Errors
/// [`NbdError`] where the client does not keep to the protocol, or the connection failed. It is closed then; what is under
/// way is carried out, and answered after [`NbdError::Ended`].
pub async fn serve_connection<T: Transport>(
    handle: &Handle,
    export: &Rc<Export>,
    transport: &Rc<T>,
) -> Result<(), NbdError> {
    let mut inbox = Inbox::new(transport);
    let agreed = select_biased! {
        agreed = negotiate(&mut inbox, &**transport, export).fuse() => agreed,
        () = handle.sleep(NEGOTIATION_MAX).fuse() => Err(NbdError::Slow),
    };
    let served = match agreed {
        Ok(Some(agreed)) => serve_requests(handle, export, transport, inbox, agreed).await,
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    transport.close();
    served
}

async fn serve_requests<T: Transport>(
    handle: &Handle,
    export: &Rc<Export>,
    transport: &Rc<T>,
    mut inbox: Inbox<T>,
    agreed: Agreed,
) -> Result<(), NbdError> {
    let load = Rc::new(Load::new(export.rules()));
    let outbox = Rc::new(Outbox::new(&load));
    let sending = handle.spawn(Rc::clone(&outbox).run(Rc::clone(transport)));
    let mut in_a_row = 0;
    let ended = loop {
        load.has_room().await;
        let (request, payload) = match next_request(&mut inbox).await {
            Ok(Some(next)) => next,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        let under_way = UnderWay::new(&load, bytes_for(&request));
        let (export, outbox) = (Rc::clone(export), Rc::clone(&outbox));
        // Most need not wait for anything.
        handle.begin(async move {
            let reply = answer(&export, agreed, &request, &payload).await;
            outbox.push(reply);
            drop(under_way);
        });
        in_a_row += 1;
        if in_a_row == IN_A_ROW {
            in_a_row = 0;
            handle.give_way().await;
        }
    };
    if ended.as_ref().is_err_and(|error| !matches!(error, NbdError::Ended)) {
        // What such a client takes of its replies is not known, so none is waited for.
        transport.close();
    }
    load.is_idle().await;
    outbox.close();
    // It is cancelled only with the runtime.
    let _ = sending.await;
    ended
}

/// The next request, and what it writes; none at the end.
async fn next_request<T: Transport>(
    inbox: &mut Inbox<T>,
) -> Result<Option<(RequestHeader, Vec<u8>)>, NbdError> {
    if !inbox.fill(size_of::<RequestHeader>()).await? {
        return Ok(None);
    }
    let header = inbox.take(size_of::<RequestHeader>()).await?;
    let Ok(request) = RequestHeader::read_from_bytes(header) else { return Err(NbdError::Ended) };
    if request.magic != REQUEST_MAGIC {
        return Err(NbdError::Magic { what: "a request", found: request.magic.get().into() });
    }
    match request.command.get() {
        command::DISCONNECT => Ok(None),
        command::WRITE if request.length > PAYLOAD_MAX => Err(NbdError::PayloadTooLong(request.length.get())),
        command::WRITE => {
            let payload = inbox.take_payload(request.length.get() as usize).await?;
            Ok(Some((request, payload)))
        }
        _ => Ok(Some((request, Vec::new()))),
    }
}
