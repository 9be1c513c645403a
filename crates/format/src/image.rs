//! An image of a filesystem, as a check reads it.

use crate::error::FormatError;

/// Bytes in a block; the only block size of both formats' subsets.
pub const BLOCK_BYTES: usize = 4096;

/// Reads an image: a file, a device, or anything else that has blocks.
#[allow(async_fn_in_trait, reason = "everything runs on one thread, so no future needs to be Send")]
pub trait ImageReader {
    /// What the reader gets when the storage fails, or when the image is not a filesystem of the subset.
    type Error: From<FormatError>;

    /// Whole blocks of 4,096 bytes in the image.
    fn blocks(&self) -> u64;

    /// Reads the blocks from `block` on that fill `bytes`, a multiple of 4,096 and never beyond the end.
    async fn read(&self, block: u64, bytes: &mut [u8]) -> Result<(), Self::Error>;
}

impl<R: ImageReader> ImageReader for &R {
    type Error = R::Error;

    fn blocks(&self) -> u64 {
        (**self).blocks()
    }

    async fn read(&self, block: u64, bytes: &mut [u8]) -> Result<(), R::Error> {
        (**self).read(block, bytes).await
    }
}
