//! *Disk options*: the mount options that a filesystem on a disk may have, as far as they say how it works. None says what is
//! mounted, gives rights, or has the machine stop: a trace may come from anybody.

use crate::disk_ground::DiskFilesystem;

/// Those of all filesystems of the kernel.
const COMMON: &str =
    "async sync dirsync atime noatime diratime nodiratime relatime strictatime lazytime nolazytime noexec";
const EXT4: &str = "data commit barrier nobarrier journal_checksum nojournal_checksum journal_async_commit delalloc nodelalloc \
                    auto_da_alloc noauto_da_alloc discard nodiscard dioread_lock dioread_nolock block_validity \
                    noblock_validity stripe max_batch_time min_batch_time journal_ioprio user_xattr nouser_xattr acl noacl \
                    init_itable noinit_itable inode_readahead_blks data_err max_dir_size_kb";
const XFS: &str = "allocsize attr2 noattr2 barrier nobarrier discard nodiscard filestreams ikeep noikeep inode32 inode64 \
                   largeio nolargeio logbufs logbsize noalign sunit swidth swalloc wsync";
const BTRFS: &str = "acl noacl autodefrag noautodefrag barrier nobarrier clear_cache commit compress compress-force datacow \
                     nodatacow datasum nodatasum discard nodiscard flushoncommit noflushoncommit max_inline metadata_ratio \
                     treelog notreelog space_cache nospace_cache ssd nossd ssd_spread nossd_spread thread_pool";
/// Options of `weir mount`.
const BARRIERFS: &str = "sync engine journal journal-coalition forced-commits writeback-cache no-open-requests no-file-handles \
                         no-exec noatime relatime discard no-discard discard-below memory moment";
const F2FS: &str = "sync cleaner writeback-cache no-open-requests no-file-handles no-exec noatime no-discard";

/// Whether a filesystem takes an option of that name.
pub(crate) fn takes_option(filesystem: DiskFilesystem, name: &str) -> bool {
    let lists: &[&str] = match filesystem {
        DiskFilesystem::Ext4 => &[COMMON, EXT4],
        DiskFilesystem::Xfs => &[COMMON, XFS],
        DiskFilesystem::Btrfs => &[COMMON, BTRFS],
        DiskFilesystem::BarrierFs => &[BARRIERFS],
        DiskFilesystem::F2fs => &[F2FS],
    };
    lists.iter().flat_map(|list| list.split_whitespace()).any(|taken| taken == name)
}
