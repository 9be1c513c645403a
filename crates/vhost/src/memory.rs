//! The guest's memory, as the frontend shares it.

use std::fs::File;
use std::sync::Arc;

use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap};

use crate::error::VhostError;

/// The memory as it is mapped here. It stays mapped as long as there is a clone.
pub(crate) type Mapped = Arc<GuestMemoryMmap>;

/// Whether so many bytes from `offset` on are in a file: memory that is mapped beyond its end must not be touched.
pub(crate) fn is_in_file(file: &File, offset: u64, bytes: u64) -> bool {
    let end = offset.checked_add(bytes);
    end.is_some_and(|end| file.metadata().is_ok_and(|found| end <= found.len()))
}

/// The memory, and where the frontend itself has it.
pub(crate) struct SharedMemory {
    pub(crate) mapped: Mapped,
    /// Address in the frontend, bytes, address in the guest.
    windows: Vec<(u64, u64, u64)>,
}

impl SharedMemory {
    /// Maps regions, each of a file.
    ///
    /// # Errors
    /// [`VhostError::Memory`] for regions that overlap, or are not in their files.
    pub(crate) fn map(
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
    ) -> Result<SharedMemory, VhostError> {
        let mut with_files = regions.iter().zip(&files);
        if !with_files.all(|(region, file)| is_in_file(file, region.mmap_offset, region.memory_size)) {
            return Err(VhostError::Memory("a region is not in its file".to_owned()));
        }
        let windows =
            regions.iter().map(|region| (region.user_addr, region.memory_size, region.guest_phys_addr));
        let ranges = regions.iter().zip(files).map(|(region, file)| {
            let bytes = usize::try_from(region.memory_size).unwrap_or(usize::MAX);
            (GuestAddress(region.guest_phys_addr), bytes, Some(FileOffset::new(file, region.mmap_offset)))
        });
        let mut ranges: Vec<_> = ranges.collect();
        ranges.sort_by_key(|(address, ..)| *address);
        let mapped = GuestMemoryMmap::from_ranges_with_files(ranges)
            .map_err(|error| VhostError::Memory(error.to_string()))?;
        Ok(SharedMemory { mapped: Arc::new(mapped), windows: windows.collect() })
    }

    /// The guest's address of what the frontend has at `user`.
    pub(crate) fn guest_address(&self, user: u64) -> Option<GuestAddress> {
        self.windows.iter().find_map(|(start, bytes, guest)| {
            let offset = user.checked_sub(*start).filter(|offset| offset < bytes)?;
            guest.checked_add(offset).map(GuestAddress)
        })
    }
}
