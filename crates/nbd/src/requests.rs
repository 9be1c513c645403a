//! One request: what it asks for is checked and done, and its reply is made.

use std::ops::Range;

use tracing::{debug, warn};
use weir_export::{Export, RequestError};

use crate::negotiation::Agreed;
use crate::protocol::{PAYLOAD_MAX, RequestHeader, command, command_flags};
use crate::reply::{NO_ERROR, data_chunk, error_chunk, simple_reply, status_chunk};

/// Bytes of memory that a reply takes which tells extents, at most.
const STATUS_BYTES: usize = 16 << 10;

/// The protocol's number for what went wrong, which is the number that Linux has for it.
fn error_number(error: &RequestError, asked: u16) -> u32 {
    const EPERM: u32 = 1;
    const EIO: u32 = 5;
    const EINVAL: u32 = 22;
    const ENOSPC: u32 = 28;
    const ENOTSUP: u32 = 95;
    match error {
        RequestError::ReadOnly => EPERM,
        RequestError::BeyondEnd if !matches!(asked, command::WRITE | command::WRITE_ZEROES) => EINVAL,
        RequestError::BeyondEnd | RequestError::NoSpace(_) => ENOSPC,
        RequestError::Invalid(_) => EINVAL,
        RequestError::NotFast => ENOTSUP,
        RequestError::Storage(_) | RequestError::AnsweredLost => EIO,
    }
}

/// Bytes of memory that a request takes until it is answered, for what it writes or reads.
pub(crate) fn bytes_for(request: &RequestHeader) -> usize {
    match request.command.get() {
        command::READ | command::WRITE => request.length.get().min(PAYLOAD_MAX) as usize,
        command::BLOCK_STATUS => STATUS_BYTES,
        _ => 0,
    }
}

/// Does what is asked; the reply.
pub(crate) async fn answer(
    export: &Export,
    agreed: Agreed,
    request: &RequestHeader,
    payload: &[u8],
) -> Vec<u8> {
    let (cookie, command) = (request.cookie.get(), request.command.get());
    let _under_way = export.begin_request();
    let error = match perform(export, agreed, request, payload).await {
        Ok(reply) => return reply,
        Err(error) => error,
    };
    match error.is_of_storage() {
        true => warn!(name: "request_failed", %error, command, "a request failed"),
        false => debug!(name: "request_refused", %error, command, "a request was refused"),
    }
    let number = error_number(&error, command);
    if agreed.structured && matches!(command, command::READ | command::BLOCK_STATUS) {
        return error_chunk(cookie, number, &error.to_string());
    }
    simple_reply(cookie, number, 0)
}

async fn perform(
    export: &Export,
    agreed: Agreed,
    request: &RequestHeader,
    payload: &[u8],
) -> Result<Vec<u8>, RequestError> {
    let (cookie, offset) = (request.cookie.get(), request.offset.get());
    let bytes = check(export, agreed, request)?;
    let has = |flag| request.flags.get() & flag != 0;
    match request.command.get() {
        command::READ => {
            let length = request.length.get();
            let mut reply = match agreed.structured {
                true => data_chunk(cookie, offset, length),
                false => simple_reply(cookie, NO_ERROR, length as usize),
            };
            export.read(bytes, &mut reply).await?;
            return Ok(reply);
        }
        command::BLOCK_STATUS => {
            let most = if has(command_flags::ONE_EXTENT) { 1 } else { usize::MAX };
            return Ok(status_chunk(cookie, &export.extents(bytes, most)));
        }
        command::WRITE => export.write(offset, payload, has(command_flags::FUA)).await?,
        command::TRIM => export.discard(bytes).await?,
        command::WRITE_ZEROES => export.write_zeros(bytes, !has(command_flags::NO_HOLE)).await?,
        command::FLUSH => export.flush().await?,
        // What is read again is in memory already, or on a disk that is fast enough.
        _ => {}
    }
    if has(command_flags::FUA) && matches!(request.command.get(), command::TRIM | command::WRITE_ZEROES) {
        export.flush().await?;
    }
    Ok(simple_reply(cookie, NO_ERROR, 0))
}

/// The bytes that a request is about, if it is one that may be asked.
fn check(export: &Export, agreed: Agreed, request: &RequestHeader) -> Result<Range<u64>, RequestError> {
    use command_flags as flags;
    let length = request.length.get();
    let (known, changes) = match request.command.get() {
        command::READ => (flags::DONT_FRAGMENT, false),
        command::WRITE | command::TRIM => (0, true),
        command::WRITE_ZEROES => (flags::NO_HOLE | flags::FAST_ZERO, true),
        command::BLOCK_STATUS => (flags::ONE_EXTENT, false),
        command::CACHE => (0, false),
        command::FLUSH => return Ok(0..0),
        _ => return Err(RequestError::Invalid("an unknown command")),
    };
    // FUA may come with any command, and means nothing where nothing is changed.
    if request.flags.get() & !(known | flags::FUA) != 0 {
        return Err(RequestError::Invalid("a flag that the command has not"));
    }
    if changes {
        export.require_writable()?;
    }
    if length == 0 || request.command.get() == command::READ && length > PAYLOAD_MAX {
        return Err(RequestError::Invalid("a length of 0, or of more than 32 MiB"));
    }
    if request.command.get() == command::BLOCK_STATUS && !agreed.allocation {
        return Err(RequestError::Invalid("block status without a context that was agreed on"));
    }
    if request.flags.get() & flags::FAST_ZERO != 0
        && (request.flags.get() & flags::NO_HOLE != 0 || !export.discards())
    {
        return Err(RequestError::NotFast);
    }
    export.range(request.offset.get(), length.into())
}
