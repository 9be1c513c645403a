/* Changes files in every way that Linux has, as several users, and prints what each call gives, and which privileges the file
 * has afterwards: set-ID bits and `security.capability`.
 *
 * Usage: change DIRECTORY. Run by the superuser. A way that the kernel does not offer prints "absent". */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/aio_abi.h>
#include <linux/capability.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define SIZE 5000
#define BLOCK 4096

static char *block; /* Aligned, for direct IO. */

static int open_file(const char *path, int flags) {
    int file = open(path, flags);
    if (file < 0) {
        printf("open: %s ", strerror(errno));
        exit(1);
    }
    return file;
}

/* A file of its own with content, to copy from. */
static int source(void) {
    int file = memfd_create("source", 0);
    if (file < 0 || write(file, block, BLOCK) != BLOCK || lseek(file, 0, SEEK_SET) != 0) exit(2);
    return file;
}

static long by_aio(const char *path, int flags) {
    aio_context_t context = 0;
    if (syscall(SYS_io_setup, 1, &context) != 0) return -1;
    struct iocb control = {.aio_fildes = open_file(path, O_WRONLY | flags), .aio_lio_opcode = IOCB_CMD_PWRITE,
                           .aio_buf = (uintptr_t)block, .aio_nbytes = BLOCK};
    struct iocb *controls[] = {&control};
    struct io_event event;
    if (syscall(SYS_io_submit, context, 1, controls) != 1) return -1;
    if (syscall(SYS_io_getevents, context, 1, 1, &event, NULL) != 1) return -1;
    if (event.res < 0) errno = -event.res;
    return event.res < 0 ? -1 : event.res;
}

/* One request through a ring of its own. */
static long by_ring(struct io_uring_sqe request) {
    struct io_uring_params given = {0};
    int ring = syscall(SYS_io_uring_setup, 1, &given);
    if (ring < 0) {
        printf("absent ");
        exit(0);
    }
    size_t length = given.sq_off.array + given.sq_entries * sizeof(unsigned);
    size_t completed = given.cq_off.cqes + given.cq_entries * sizeof(struct io_uring_cqe);
    int both = PROT_READ | PROT_WRITE;
    char *submission = mmap(NULL, length, both, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *completion = mmap(NULL, completed, both, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *requests = mmap(NULL, given.sq_entries * sizeof(*requests), both, MAP_SHARED, ring, IORING_OFF_SQES);
    if (submission == MAP_FAILED || completion == MAP_FAILED || requests == MAP_FAILED) return -1;
    requests[0] = request;
    ((unsigned *)(submission + given.sq_off.array))[0] = 0;
    __atomic_store_n((unsigned *)(submission + given.sq_off.tail), 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1) return -1;
    int result = ((struct io_uring_cqe *)(completion + given.cq_off.cqes))[0].res;
    if (result < 0) errno = -result;
    return result < 0 ? -1 : result;
}

static long ring_write(const char *path, int flags, unsigned char more) {
    return by_ring((struct io_uring_sqe){.opcode = IORING_OP_WRITE, .flags = more, .fd = open_file(path, O_WRONLY | flags),
                                         .addr = (uintptr_t)block, .len = BLOCK});
}

static long spliced(const char *path) {
    int ends[2];
    if (pipe(ends) != 0 || write(ends[1], "x", 1) != 1) return -1;
    return splice(ends[0], NULL, open_file(path, O_WRONLY), NULL, 1, 0);
}

static long stored(const char *path) {
    int file = open_file(path, O_RDWR);
    char *mapped = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) return -1;
    mapped[7] = 'm';
    long done = msync(mapped, BLOCK, MS_SYNC);
    return munmap(mapped, BLOCK) == 0 ? done : -1;
}

static long copied(const char *path) {
    /* From a file of the same filesystem, as others are refused by some kernels. */
    return copy_file_range(open_file("from", O_RDONLY), NULL, open_file(path, O_WRONLY), NULL, 100, 0);
}

static long allocated(const char *path, int mode) { return fallocate(open_file(path, O_RDWR), mode, 0, BLOCK); }

static const char *const WAYS[] = {
    "nothing", "open for writing", "write", "write of nothing", "append", "vector", "write at once durable", "direct write",
    "direct append", "truncating open", "truncate", "truncate to the same size", "ftruncate longer", "aio", "direct aio",
    "ring", "direct ring", "ring by a worker", "ring fallocate", "splice", "sendfile", "copy_file_range", "store in a mapping",
    "fallocate", "fallocate beyond the end", "fallocate keeping the size", "punch a hole", "zero a range",
    "zero a range keeping the size", "collapse a range", "insert a range", "unshare a range", "set times", "set an attribute",
    "link", "rename", "change the owner", "change the group", "change the mode"};

static long change(const char *way, const char *path) {
    int keep = FALLOC_FL_KEEP_SIZE;
#define IS(name) (strcmp(way, name) == 0)
    if (IS("nothing")) return 0;
    if (IS("open for writing")) return close(open_file(path, O_RDWR));
    if (IS("write")) return write(open_file(path, O_WRONLY), "x", 1);
    if (IS("write of nothing")) return write(open_file(path, O_WRONLY), "", 0);
    if (IS("append")) return write(open_file(path, O_WRONLY | O_APPEND), "x", 1);
    if (IS("vector")) {
        struct iovec parts[] = {{"ab", 2}, {"c", 1}};
        return pwritev(open_file(path, O_WRONLY), parts, 2, 10);
    }
    if (IS("write at once durable")) return write(open_file(path, O_WRONLY | O_SYNC), "x", 1);
    if (IS("direct write")) return write(open_file(path, O_WRONLY | O_DIRECT), block, BLOCK);
    if (IS("direct append")) return pwrite(open_file(path, O_WRONLY | O_DIRECT), block, BLOCK, 2 * BLOCK);
    if (IS("truncating open")) return close(open_file(path, O_WRONLY | O_TRUNC));
    if (IS("truncate")) return truncate(path, 7);
    if (IS("truncate to the same size")) return truncate(path, SIZE);
    if (IS("ftruncate longer")) return ftruncate(open_file(path, O_WRONLY), 3 * SIZE);
    if (IS("aio")) return by_aio(path, 0);
    if (IS("direct aio")) return by_aio(path, O_DIRECT);
    if (IS("ring")) return ring_write(path, 0, 0);
    if (IS("direct ring")) return ring_write(path, O_DIRECT, 0);
    if (IS("ring by a worker")) return ring_write(path, 0, IOSQE_ASYNC);
    if (IS("ring fallocate"))
        return by_ring((struct io_uring_sqe){.opcode = IORING_OP_FALLOCATE, .fd = open_file(path, O_WRONLY), .addr = 3 * BLOCK});
    if (IS("splice")) return spliced(path);
    if (IS("sendfile")) return sendfile(open_file(path, O_WRONLY), source(), NULL, 100);
    if (IS("copy_file_range")) return copied(path);
    if (IS("store in a mapping")) return stored(path);
    if (IS("fallocate")) return allocated(path, 0);
    if (IS("fallocate beyond the end")) return fallocate(open_file(path, O_WRONLY), 0, 0, 4 * BLOCK);
    if (IS("fallocate keeping the size")) return fallocate(open_file(path, O_WRONLY), keep, 0, 4 * BLOCK);
    if (IS("punch a hole")) return allocated(path, FALLOC_FL_PUNCH_HOLE | keep);
    if (IS("zero a range")) return allocated(path, FALLOC_FL_ZERO_RANGE);
    if (IS("zero a range keeping the size")) return allocated(path, FALLOC_FL_ZERO_RANGE | keep);
    if (IS("collapse a range")) return allocated(path, FALLOC_FL_COLLAPSE_RANGE);
    if (IS("insert a range")) return allocated(path, FALLOC_FL_INSERT_RANGE);
    if (IS("unshare a range")) return allocated(path, FALLOC_FL_UNSHARE_RANGE);
    if (IS("set times")) return utimensat(AT_FDCWD, path, NULL, 0);
    if (IS("set an attribute")) return setxattr(path, "user.x", "y", 1, 0);
    if (IS("link")) return link(path, "linked");
    if (IS("rename")) return rename(path, "renamed") ?: rename("renamed", path);
    if (IS("change the owner")) return chown(path, 7, -1);
    if (IS("change the group")) return chown(path, -1, getgid());
    if (IS("change the mode")) return chmod(path, 06755);
    exit(3);
}

struct user {
    const char *name;
    uid_t uid;
    gid_t gid;
    int more;    /* A further group, or -1. */
    int without; /* A capability that this user does not have, or -1. */
};

static void become(const struct user *user) {
    if (user->without >= 0) {
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct sets[2];
        if (syscall(SYS_capget, &header, sets) != 0) exit(4);
        sets[0].effective &= ~(1u << user->without);
        if (syscall(SYS_capset, &header, sets) != 0) exit(4);
    }
    gid_t more = user->more;
    if (setgroups(user->more >= 0, &more) != 0 || setgid(user->gid) != 0 || (user->uid != 0 && setuid(user->uid) != 0)) exit(4);
}

static void make_file(const char *path, mode_t mode, uid_t owner) {
    /* Version 2, with CAP_CHOWN permitted. */
    static const char capability[20] = {0, 0, 0, 2, 1};
    int file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (file < 0 || write(file, block, SIZE) != SIZE || fchown(file, owner, 0) != 0 || fchmod(file, mode) != 0 ||
        fsetxattr(file, "security.capability", capability, sizeof capability, 0) != 0 || close(file) != 0) {
        perror(path);
        exit(5);
    }
}

int main(int count, char **arguments) {
    static const struct user users[] = {{"stranger", 65534, 65534, -1, -1},
                                        {"stranger of the group", 65534, 0, -1, -1},
                                        {"stranger with the group as a further one", 65534, 65534, 0, -1},
                                        {"superuser", 0, 0, -1, -1},
                                        {"superuser without FSETID", 0, 0, -1, CAP_FSETID},
                                        {"superuser of another group without FSETID", 0, 7, 8, CAP_FSETID}};
    static const mode_t modes[] = {06777, 02767, 04666};
    static const uid_t owners[] = {0, 65534};
    if (count != 2 || chdir(arguments[1]) != 0 || posix_memalign((void **)&block, BLOCK, 2 * BLOCK) != 0) return 6;
    memset(block, 1, 2 * BLOCK);
    umask(0);
    make_file("from", 0666, 0);
    for (size_t way = 0; way < sizeof WAYS / sizeof *WAYS; way++)
        for (size_t user = 0; user < sizeof users / sizeof *users; user++)
            for (size_t mode = 0; mode < sizeof modes / sizeof *modes; mode++)
                for (size_t owner = 0; owner < 2; owner++) {
                    if (users[user].uid == 0 && owners[owner] != 0) continue;
                    make_file("file", modes[mode], owners[owner]);
                    printf("%s by %s%s, %04o: ", WAYS[way], users[user].name, owners[owner] ? " that is the owner" : "",
                           (unsigned)modes[mode]);
                    fflush(stdout);
                    pid_t child = fork();
                    if (child == 0) {
                        become(&users[user]);
                        long done = change(WAYS[way], "file");
                        if (done < 0) printf("%s ", strerror(errno));
                        else printf("%ld ", done);
                        exit(0);
                    }
                    int status;
                    struct stat found;
                    char value[64];
                    if (child < 0 || waitpid(child, &status, 0) != child || stat("file", &found) != 0) return 7;
                    printf("%d, %04o %s\n", status, (unsigned)found.st_mode & 07777,
                           getxattr("file", "security.capability", value, sizeof value) >= 0 ? "capable" : "plain");
                    fflush(stdout);
                    unlink("linked");
                }
    return 0;
}
