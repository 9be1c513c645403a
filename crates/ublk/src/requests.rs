//! One request: its description is checked, and what it asks for is done.

use std::io;
use std::rc::Rc;

use thiserror::Error;
use tracing::{debug, warn};
use weir_export::{Export, RequestError};

use crate::places::Places;
use crate::protocol::{DATA_BYTES_MAX, Request, operation};

/// Why a request fails.
#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Export(#[from] RequestError),
    #[error("its data cannot be copied: {0}")]
    Copy(#[from] io::Error),
}

impl Failure {
    /// Whether it is no fault of the program that asked.
    fn is_of_server(&self) -> bool {
        match self {
            Failure::Export(error) => error.is_of_storage(),
            Failure::Copy(_) => true,
        }
    }

    /// The number that Linux has for it.
    fn number(&self) -> i32 {
        const EPERM: i32 = 1;
        const EIO: i32 = 5;
        const EINVAL: i32 = 22;
        const ENOSPC: i32 = 28;
        const EOPNOTSUPP: i32 = 95;
        match self {
            Failure::Export(RequestError::ReadOnly) => EPERM,
            Failure::Export(RequestError::Invalid(_) | RequestError::BeyondEnd) => EINVAL,
            Failure::Export(RequestError::NotFast) => EOPNOTSUPP,
            Failure::Export(RequestError::NoSpace(_)) => ENOSPC,
            Failure::Export(RequestError::Storage(_) | RequestError::AnsweredLost) | Failure::Copy(_) => EIO,
        }
    }
}

/// Does what the request in a place asks for; the answer: bytes that were read or written, or a negative error number.
pub(crate) async fn answer(export: &Export, places: &Rc<impl Places>, tag: u16, request: Request) -> i32 {
    let _under_way = export.begin_request();
    match perform(export, places, tag, request).await {
        // No request has more than 2 GiB of data.
        Ok(bytes) => i32::try_from(bytes).unwrap_or(i32::MAX),
        Err(error) => {
            let operation = request.operation;
            match error.is_of_server() {
                true => warn!(name: "request_failed", %error, operation, "a request failed"),
                false => debug!(name: "request_refused", %error, operation, "a request was refused"),
            }
            -error.number()
        }
    }
}

async fn perform(
    export: &Export,
    places: &Rc<impl Places>,
    tag: u16,
    request: Request,
) -> Result<u64, Failure> {
    let Request { operation, length, offset, .. } = request;
    if operation == operation::FLUSH {
        export.flush().await?;
        return Ok(0);
    }
    let offset = offset.ok_or(RequestError::BeyondEnd)?;
    let bytes = export.range(offset, length)?;
    if length == 0 {
        return Err(RequestError::Invalid("a length of 0").into());
    }
    if has_data(operation) {
        export.require_data_within(length, DATA_BYTES_MAX.into())?;
    }
    if operation != operation::READ {
        export.require_writable()?;
    }
    match operation {
        operation::READ => {
            let mut found = Vec::with_capacity(length as usize);
            export.read(bytes, &mut found).await?;
            places.give_data(tag, &found)?;
            return Ok(length);
        }
        operation::WRITE => {
            let mut new = vec![0; length as usize];
            places.take_data(tag, &mut new)?;
            export.write(offset, &new, request.has(operation::FUA)).await?;
            return Ok(length);
        }
        operation::DISCARD => export.discard(bytes).await?,
        operation::WRITE_ZEROES => export.write_zeros(bytes, !request.has(operation::NO_UNMAP)).await?,
        _ => return Err(RequestError::Invalid("an unknown operation").into()),
    }
    if request.has(operation::FUA) {
        export.flush().await?;
    }
    Ok(0)
}

/// Whether an operation reads or writes data.
fn has_data(operation: u8) -> bool {
    matches!(operation, operation::READ | operation::WRITE)
}
