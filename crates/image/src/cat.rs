//! The content of one file.

use std::io::Write;

use futures_util::future::LocalBoxFuture;
use weir_vfs::FilesystemCalls;

use crate::error::{ImageError, in_image};
use crate::holes::chunk_of;

/// Writes a file of the image to `output`; holes as zeros.
///
/// # Errors
/// [`ImageError::InImage`] for what cannot be read or is no file, [`ImageError::Output`] from `output`.
pub fn cat<'a>(
    filesystem: &'a dyn FilesystemCalls,
    inside: &'a [u8],
    output: &'a mut dyn Write,
) -> LocalBoxFuture<'a, Result<(), ImageError>> {
    Box::pin(async move {
        let inode = filesystem.resolve(inside).await.map_err(in_image(inside))?;
        let size = filesystem.attributes(inode).await.map_err(in_image(inside))?.size;
        let mut bytes = chunk_of(size);
        let mut offset = 0;
        loop {
            match filesystem.read(inode, offset, &mut bytes).await.map_err(in_image(inside))? {
                0 => return Ok(output.flush()?),
                length => {
                    output.write_all(&bytes[..length])?;
                    offset += length as u64;
                }
            }
        }
    })
}
