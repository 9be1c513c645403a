/* libweir: order between writes, without waiting for the disk. The manual page is
 * crates/capi/man/fbarrier.3 in Weir's repository; man -l FILE shows it. */

#ifndef WEIR_H
#define WEIR_H

#include <sys/ioctl.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Orders everything that was written to the file, and its inode, before everything that is written later to the same
 * filesystem. Returns when it is ordered; it may not be durable for a while. On a filesystem that is not
 * Weir's it is fsync. 0, or -1 with errno as fsync sets it. */
int fbarrier(int fd);

/* The same of the file's data, and of what is needed to find it. Elsewhere it is fdatasync. */
int fdatabarrier(int fd);

/* Orders everything that was changed before on the filesystem of a file or directory, by any program, before everything that
 * is changed later, but for changes of atomic files (below) that are not synchronised. Elsewhere it is syncfs. 0, or -1 with errno as syncfs sets it; EOPNOTSUPP on a mount through FUSE that is not
 * Weir's, or of a server that is older than this call: the kernel does not pass syncfs on to it. So it is
 * on an overlay over a mount of Weir, which passes on neither call: name the mount. */
int weir_order_tree(int fd);

/* 1 if the file is on a mount of Weir, 0 if not, -1 with errno. */
int weir_is_mounted(int fd);

/* Atomic files: after a crash, all that was written to one between two calls of fsync, fdatasync, msync or their like is
 * there, or none of it. They need a mount of Weir, ENOTSUP elsewhere: nothing else can promise that.
 * The attribute user.weir.atomic with the value 1 says the same of a file, or of all files made in a directory. */
int weir_set_atomic(int fd, int atomic);
/* Writes to atomic files fail with EFBIG when all that is not synchronised would not fit the journal. */

/* Makes up to 127 files of one mount durable: after a crash the changes of all atomic ones among them are there, or none
 * is. All but the first have to be the caller's own. 0, or -1 with errno: EINVAL for none and too many, EPERM, EXDEV for
 * files of several mounts, EBUSY if an update of one was begun, and those of fsync. */
int weir_syncv(const int *fds, int count);

/* From weir_begin_update on, no fsync puts a part of an atomic file's changes on the disk (EBUSY), and
 * weir_abandon_update takes them back, as does closing the descriptor. weir_end_update makes them one change, which fsync
 * makes durable. The descriptor is open for writing (EBADF), and the one that began ends it (EINVAL). EBUSY if one was begun
 * already, EINVAL if the file is not atomic; on F2FS it need not be. */
int weir_begin_update(int fd);
int weir_end_update(int fd);
int weir_abandon_update(int fd);

/* What the library calls, for programs that cannot link it. */
#define WEIR_IOC_FBARRIER _IO('W', 1)
#define WEIR_IOC_FDATABARRIER _IO('W', 2)
/* What fsync of an open file promises until it is closed everywhere: 0 durable, 1 order, 2 durable in the object store, too
 * (EOPNOTSUPP where there is none). Only the file's owner and the superuser may set 1 and 2, and take 2 back; others get EPERM. */
#define WEIR_IOC_SET_SYNC _IOW('W', 3, unsigned int)
/* From now on fdatabarrier follows each write of this open file that does not make it longer. */
#define WEIR_IOC_ORDER_WRITES _IO('W', 4)
/* The first two, for a program that has called msync before, or from Linux 6.16 on sync_file_range. */
#define WEIR_IOC_FBARRIER_AFTER_PAGES _IO('W', 5)
#define WEIR_IOC_FDATABARRIER_AFTER_PAGES _IO('W', 6)
/* Updates of atomic files, and groups of files. */
#define WEIR_IOC_BEGIN_UPDATE _IO('W', 7)
#define WEIR_IOC_END_UPDATE _IO('W', 8)
#define WEIR_IOC_ABANDON_UPDATE _IO('W', 9)
struct weir_group {
    unsigned int mode;               /* 0 durable, 1 order, 2 in the store, too */
    unsigned int count;              /* files beside the one that the call is made on */
    unsigned long long inodes[126];  /* st_ino of each */
};
#define WEIR_IOC_SYNC_GROUP _IOW('W', 10, struct weir_group)
/* weir_order_tree. */
#define WEIR_IOC_ORDER_ALL _IO('W', 11)

#ifdef __cplusplus
}
#endif

#endif
