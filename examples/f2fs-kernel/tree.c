/* Trees for judge.py: made, listed, and changed with synchronisation calls. Linked statically, it runs on the host and in the guest.
 *
 *     tree make ROOT FILES MIB    make a tree with FILES small files and one of MIB mebibytes
 *     tree list ROOT              print one line for each name below ROOT, in the order of names
 *     tree sync ROOT STEPS        change files and synchronise them, and say so
 *
 * `sync` prints "begin PATH" before it changes a file, and behind the synchronisation call "done" with the line that `list` would print,
 * or "gone PATH". What it says is done must outlive a cut. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

enum { BLOCK = 4096, DEEP = 200, MANY_LINKS = 300, FOLDER_FILES = 500 };

static void fail(const char *what, const char *path) {
    fprintf(stderr, "tree: %s %s: %s\n", what, path, strerror(errno));
    exit(1);
}

/* Fails with the name of the call that returned a negative number. */
#define MUST(call, path)                                                                                               \
    do {                                                                                                               \
        if ((call) < 0)                                                                                                \
            fail(#call, path);                                                                                         \
    } while (0)

static __attribute__((format(printf, 1, 2))) const char *path_of(const char *format, ...) {
    static char paths[8][PATH_MAX];
    static unsigned turn;
    char *path = paths[turn++ % 8];
    va_list values;
    va_start(values, format);
    vsnprintf(path, PATH_MAX, format, values);
    va_end(values);
    return path;
}

/* ---- Content ---- */

static uint64_t state = 88172645463325252ULL;

static uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void write_at(int file, const char *path, off_t at, size_t bytes) {
    static uint64_t buffer[(1 << 20) / 8];
    while (bytes > 0) {
        size_t part = bytes < sizeof buffer ? bytes : sizeof buffer;
        for (size_t word = 0; word < (part + 7) / 8; word++)
            buffer[word] = draw();
        ssize_t written = pwrite(file, buffer, part, at);
        if (written <= 0)
            fail("pwrite", path);
        at += written;
        bytes -= (size_t)written;
    }
}

static int open_file(const char *path, int flags) {
    int file = open(path, flags | O_CLOEXEC, 0644);
    MUST(file, path);
    return file;
}

static void make_file(const char *path, off_t at, size_t bytes) {
    int file = open_file(path, O_RDWR | O_CREAT);
    write_at(file, path, at, bytes);
    MUST(close(file), path);
}

static void make_folder(const char *path) {
    MUST(mkdir(path, 0755), path);
}

/* ---- A list ---- */

/* A sum over the blocks that are not zero, and their places: a hole and a block of zeros are the same. */
static uint64_t sum_file(const char *path, off_t size) {
    static uint64_t block[BLOCK / 8];
    int file = open(path, O_RDONLY | O_NOATIME | O_CLOEXEC);
    MUST(file, path);
    uint64_t sum = 14695981039346656037ULL;
    for (off_t at = lseek(file, 0, SEEK_DATA); at >= 0 && at < size;) {
        at -= at % BLOCK;
        memset(block, 0, sizeof block);
        ssize_t got = pread(file, block, BLOCK, at);
        MUST(got, path);
        uint64_t any = 0, own = (uint64_t)at;
        for (size_t word = 0; word < BLOCK / 8; word++) {
            any |= block[word];
            own = (own ^ block[word]) * 1099511628211ULL;
            own ^= own >> 29;
        }
        if (any)
            sum = (sum ^ own) * 1099511628211ULL;
        /* Only at the beginning of a large piece is the next data looked for. */
        at += BLOCK;
        if (!any || at % (256 * BLOCK) == 0)
            at = lseek(file, at, SEEK_DATA);
    }
    close(file);
    return sum;
}

static void print_name(FILE *out, const char *name) {
    for (; *name; name++)
        if (*name > ' ' && *name < 127 && *name != '\\')
            fputc(*name, out);
        else
            fprintf(out, "\\%02x", (unsigned char)*name);
}

static int compare_names(const void *left, const void *right) {
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static void print_attributes(FILE *out, const char *path) {
    char names[65536], value[65536];
    ssize_t bytes = llistxattr(path, names, sizeof names);
    MUST(bytes, path);
    char *sorted[1024];
    size_t count = 0;
    for (char *name = names; name < names + bytes && count < 1024; name += strlen(name) + 1)
        sorted[count++] = name;
    qsort(sorted, count, sizeof *sorted, compare_names);
    for (size_t nth = 0; nth < count; nth++) {
        ssize_t got = lgetxattr(path, sorted[nth], value, sizeof value);
        MUST(got, path);
        fprintf(out, "%s%s=", nth ? "," : "\t", sorted[nth]);
        for (ssize_t byte = 0; byte < got; byte++)
            fprintf(out, "%02x", (unsigned char)value[byte]);
    }
}

static void print_time(FILE *out, struct timespec time) {
    fprintf(out, "\t%lld.%09ld", (long long)time.tv_sec, time.tv_nsec);
}

/* Path, type and mode, owner, group, device, size, links, modified, changed, accessed, content, attributes. */
static void print_line(FILE *out, const char *root, const char *path) {
    struct stat found;
    MUST(lstat(path, &found), path);
    print_name(out, path[strlen(root)] ? path + strlen(root) : "/");
    fprintf(out, "\t%o\t%u\t%u\t%llx\t%lld\t%llu", found.st_mode, found.st_uid, found.st_gid,
            (unsigned long long)(S_ISCHR(found.st_mode) || S_ISBLK(found.st_mode) ? found.st_rdev : 0),
            (long long)found.st_size, (unsigned long long)found.st_nlink);
    print_time(out, found.st_mtim);
    print_time(out, found.st_ctim);
    print_time(out, found.st_atim);
    if (S_ISREG(found.st_mode)) {
        fprintf(out, "\t%016llx", (unsigned long long)sum_file(path, found.st_size));
    } else if (S_ISLNK(found.st_mode)) {
        char target[PATH_MAX + 1] = {0};
        MUST(readlink(path, target, PATH_MAX), path);
        fputc('\t', out);
        print_name(out, target);
    } else {
        fputs("\t-", out);
    }
    print_attributes(out, path);
    fputc('\n', out);
}

static void list(const char *root, const char *path) {
    print_line(stdout, root, path);
    struct stat found;
    MUST(lstat(path, &found), path);
    if (!S_ISDIR(found.st_mode))
        return;
    DIR *folder = opendir(path);
    if (!folder)
        fail("opendir", path);
    char **names = NULL;
    size_t count = 0, room = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (count == room)
            names = realloc(names, (room = room * 2 + 16) * sizeof *names);
        names[count++] = strdup(entry->d_name);
    }
    closedir(folder);
    qsort(names, count, sizeof *names, compare_names);
    for (size_t nth = 0; nth < count; nth++) {
        char below[PATH_MAX];
        snprintf(below, sizeof below, "%s/%s", path, names[nth]);
        list(root, below);
        free(names[nth]);
    }
    free(names);
}

/* ---- A tree ---- */

static void make_small_files(const char *root, unsigned files) {
    make_folder(path_of("%s/small", root));
    const char *folder = root;
    for (unsigned nth = 0; nth < files; nth++) {
        if (nth % FOLDER_FILES == 0)
            make_folder(folder = strdup(path_of("%s/small/%u", root, nth / FOLDER_FILES)));
        const char *path = path_of("%s/%u", folder, nth);
        size_t sizes[] = {draw() % 100, draw() % 3400, BLOCK + draw() % BLOCK, draw() % (3 * BLOCK)};
        make_file(path, 0, sizes[nth % 4]);
        if (nth % 7 == 0)
            MUST(chown(path, nth, nth / 7), path);
        if (nth % 11 == 0)
            MUST(chmod(path, (mode_t)(draw() & 07777)), path);
        if (nth % 13 == 0) {
            struct timespec times[] = {{(time_t)nth - 5000, 1}, {(time_t)nth * 1000003, 999999999}};
            MUST(utimensat(AT_FDCWD, path, times, 0), path);
        }
    }
}

/* One large directory, of whose names a third is removed and a third renamed. */
static void make_names(const char *root, unsigned files) {
    make_folder(path_of("%s/names", root));
    for (unsigned nth = 0; nth < files; nth++)
        make_file(path_of("%s/names/name-%u", root, nth), 0, nth % 5);
    for (unsigned nth = 0; nth < files; nth += 3) {
        MUST(unlink(path_of("%s/names/name-%u", root, nth)), root);
        if (nth + 1 < files)
            MUST(rename(path_of("%s/names/name-%u", root, nth + 1), path_of("%s/names/other-%u", root, nth)), root);
    }
    char longest[256];
    memset(longest, 'n', 255);
    longest[255] = 0;
    make_file(path_of("%s/names/%s", root, longest), 0, 10);
    make_file(path_of("%s/names/ \n\t\\\xff\xc3\xa4", root), 0, 10);
    make_folder(path_of("%s/names/%.254sd", root, longest));
}

static void make_links(const char *root) {
    make_folder(path_of("%s/links", root));
    const char *file = strdup(path_of("%s/links/file", root));
    make_file(file, 0, 20000);
    for (unsigned nth = 0; nth < MANY_LINKS; nth++)
        MUST(link(file, path_of("%s/links/%u", root, nth)), file);
    static char target[PATH_MAX];
    unsigned lengths[] = {1, 59, 60, 500, 3400, 4000, 4095};
    for (unsigned nth = 0; nth < sizeof lengths / sizeof *lengths; nth++) {
        memset(target, 'a' + (int)nth, lengths[nth]);
        target[lengths[nth]] = 0;
        MUST(symlink(target, path_of("%s/links/symbolic-%u", root, lengths[nth])), root);
    }
}

static void set_attribute(const char *path, const char *name, size_t bytes) {
    char value[4096];
    for (size_t byte = 0; byte < bytes; byte++)
        value[byte] = (char)draw();
    if (lsetxattr(path, name, value, bytes, 0) < 0)
        fail(name, path);
}

/* An access control list: its version, and entries of tag, permissions and identifier. */
static void set_list(const char *path, const char *name, uint32_t user) {
    struct { uint16_t tag, permissions; uint32_t id; } entries[] = {
        {1, 6, ~0U}, {2, 5, user}, {4, 4, ~0U}, {8, 7, user + 1}, {16, 7, ~0U}, {32, 4, ~0U}};
    char value[4 + sizeof entries] = {2};
    memcpy(value + 4, entries, sizeof entries);
    if (setxattr(path, name, value, sizeof value, 0) < 0)
        fail(name, path);
}

static void make_attributes(const char *root) {
    make_folder(path_of("%s/attributes", root));
    for (unsigned nth = 0; nth < 40; nth++) {
        const char *path = strdup(path_of("%s/attributes/%u", root, nth));
        if (nth % 4 == 3)
            make_folder(path);
        else
            make_file(path, 0, nth * 300);
        set_attribute(path, "user.small", nth);
        set_attribute(path, "trusted.t", 10);
        set_attribute(path, "security.weir", 30);
        if (nth % 3 == 0)
            set_attribute(path, "user.large", nth * 90);
        if (nth % 5 == 0)
            for (unsigned more = 0; more < 20; more++)
                set_attribute(path, path_of("user.more-%u", more), more);
        if (nth % 2 == 0)
            set_list(path, "system.posix_acl_access", nth);
        if (nth % 4 == 3) {
            set_list(path, "system.posix_acl_default", nth);
            make_file(path_of("%s/inherits", path), 0, 100);
            make_folder(path_of("%s/inherits-too", path));
        }
        if (nth % 10 == 0)
            MUST(removexattr(path, "user.small"), path);
    }
    const char *path = path_of("%s/attributes/capable", root);
    make_file(path, 0, 100);
    /* Revision 2, effective: CAP_NET_BIND_SERVICE. */
    uint32_t capability[] = {0x02000001, 1 << 10, 0, 0, 0};
    MUST(setxattr(path, "security.capability", capability, sizeof capability, 0), path);
    path = path_of("%s/attributes/symbolic", root);
    MUST(symlink("nowhere", path), path);
    set_attribute(path, "trusted.t", 20);
}

static void make_sparse_files(const char *root) {
    make_folder(path_of("%s/sparse", root));
    /* Behind the inode's words, the direct nodes, the indirect ones, and in the double indirect one. */
    off_t places[] = {0, 1, 900, 923, 2960, 500000, 2100000, 5000000};
    for (unsigned nth = 0; nth < sizeof places / sizeof *places; nth++) {
        make_file(path_of("%s/sparse/%u", root, nth), places[nth] * BLOCK + 77, 5000);
        make_file(path_of("%s/sparse/all", root), places[nth] * BLOCK, 9000);
    }
    const char *path = path_of("%s/sparse/empty", root);
    make_file(path, 0, 0);
    MUST(truncate(path, 1LL << 40), path);
}

static void make_special_files(const char *root) {
    make_folder(path_of("%s/special", root));
    mode_t types[] = {S_IFCHR, S_IFBLK, S_IFIFO, S_IFSOCK};
    for (unsigned nth = 0; nth < 4; nth++)
        for (unsigned device = 0; device < 3; device++) {
            unsigned numbers[] = {0, 200, 4000};
            dev_t number = makedev(numbers[device], numbers[device] * 100 + 7);
            MUST(mknod(path_of("%s/special/%u-%u", root, nth, device), types[nth] | 0640, number), root);
        }
}

static void make_deep_folders(const char *root) {
    char path[PATH_MAX];
    int bytes = snprintf(path, sizeof path, "%s/deep", root);
    for (unsigned level = 0; level < DEEP; level++) {
        make_folder(path);
        make_file(path_of("%s/file", path), 0, level);
        bytes += snprintf(path + bytes, sizeof path - (size_t)bytes, "/level-%u", level);
    }
}

static void change_files(const char *root) {
    make_folder(path_of("%s/changed", root));
    for (unsigned nth = 0; nth < 60; nth++) {
        const char *path = path_of("%s/changed/%u", root, nth);
        size_t bytes = nth * 3000;
        make_file(path, 0, bytes);
        int file = open_file(path, O_RDWR);
        switch (nth % 6) {
        case 0: MUST(ftruncate(file, (off_t)bytes / 3), path); break;
        case 1: MUST(ftruncate(file, (off_t)bytes * 2), path); break;
        case 2: write_at(file, path, (off_t)bytes / 2, 6000); break;
        case 3: MUST(ftruncate(file, 100), path); write_at(file, path, 90, 20); break;
        case 4: MUST(rename(path, path_of("%s/changed/%u", root, nth - 1)), path); break;
        default:
            if (fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5000, (off_t)bytes / 2 + 1) < 0 ||
                fallocate(file, FALLOC_FL_KEEP_SIZE, (off_t)bytes, 50000) < 0 || fallocate(file, 0, 0, 300000) < 0)
                fprintf(stderr, "tree: fallocate %s: %s\n", path, strerror(errno));
        }
        close(file);
    }
}

static void make(const char *root, unsigned files, unsigned mebibytes) {
    make_small_files(root, files);
    make_names(root, files / 5);
    make_links(root);
    make_attributes(root);
    make_sparse_files(root);
    make_special_files(root);
    make_deep_folders(root);
    change_files(root);
    make_file(path_of("%s/large", root), 0, (size_t)mebibytes << 20);
}

/* ---- Synchronisation calls ---- */

static void say(const char *word, const char *root, const char *path) {
    FILE *out = stdout;
    fprintf(out, "%s\t", word);
    if (!strcmp(word, "done") || !strcmp(word, "data")) {
        print_line(out, root, path);
    } else {
        print_name(out, path + strlen(root));
        fputc('\n', out);
    }
    fflush(out);
    if (isatty(fileno(out)))
        tcdrain(fileno(out));
}

/* `only_data` is fdatasync, which need not make times durable. */
static void synchronise(const char *root, const char *path, int only_data) {
    int file = open_file(path, O_RDONLY);
    MUST(only_data ? fdatasync(file) : fsync(file), path);
    close(file);
    say(only_data ? "data" : "done", root, path);
}

static void write_and_synchronise(const char *root, const char *path, off_t at, size_t bytes, int only_data) {
    say("begin", root, path);
    make_file(path, at, bytes);
    synchronise(root, path, only_data);
}

static void synchronise_folder(const char *path) {
    int file = open_file(path, O_RDONLY | O_DIRECTORY);
    MUST(fsync(file), path);
    close(file);
}

static off_t size_of(const char *path) {
    struct stat found;
    MUST(stat(path, &found), path);
    return found.st_size;
}

static void take_step(const char *root, unsigned nth) {
    enum { KINDS = 13 };
    unsigned round = nth / KINDS;
    const char *folder = path_of("%s/folder-%u", root, round % 8);
    const char *base = path_of("%s/base-%u", folder, (unsigned)(draw() % 8));
    const char *inside = path_of("%s/inline-%u", folder, round);
    const char *grows = path_of("%s/grows-%u", folder, round);
    switch (nth % KINDS) {
    case 0: write_and_synchronise(root, inside, 0, draw() % 3000, 0); break;
    case 1: write_and_synchronise(root, grows, 0, draw() % 300000, 0); break;
    case 2: write_and_synchronise(root, grows, size_of(grows), draw() % 20000, 0); break;
    case 3: write_and_synchronise(root, base, (off_t)(draw() % 30000), draw() % 9000, 0); break;
    case 4: write_and_synchronise(root, grows, (off_t)(draw() % 100000) * 1000, draw() % 9000, 1); break;
    case 5:
        say("begin", root, base);
        MUST(truncate(base, size_of(base) / 2), base);
        make_file(base, size_of(base), draw() % 5000);
        synchronise(root, base, 0);
        break;
    case 6:
        say("begin", root, grows);
        set_attribute(grows, "user.step", draw() % 60);
        set_attribute(grows, "user.large", round % 3 ? 10 : 2000);
        synchronise(root, grows, 0);
        break;
    case 7: {
        const char *renamed = path_of("%s/renamed-%u", folder, round);
        say("begin", root, inside);
        say("begin", root, renamed);
        MUST(rename(inside, renamed), inside);
        synchronise(root, renamed, 0);
        say("gone", root, inside);
        break;
    }
    case 8: {
        const char *linked = path_of("%s/linked-%u", folder, round);
        say("begin", root, grows);
        say("begin", root, linked);
        MUST(link(grows, linked), grows);
        synchronise(root, linked, 0);
        say("done", root, grows);
        break;
    }
    case 9: {
        const char *made = path_of("%s/made-%u", folder, round);
        make_folder(made);
        write_and_synchronise(root, path_of("%s/file", made), 0, draw() % 10000, 0);
        break;
    }
    case 10: {
        const char *renamed = path_of("%s/renamed-%u", folder, round);
        say("begin", root, renamed);
        MUST(unlink(renamed), renamed);
        synchronise_folder(folder);
        say("gone", root, renamed);
        break;
    }
    case 11: {
        /* Nothing is said of these. The second keeps its blocks without a name. */
        make_file(path_of("%s/noise-%u", folder, round % 4), (off_t)(draw() % 100000), draw() % 200000);
        const char *lost = path_of("%s/lost", root);
        int file = open_file(lost, O_RDWR | O_CREAT);
        write_at(file, lost, 0, 50000);
        MUST(unlink(lost), lost);
        break;
    }
    default: {
        const char *new = path_of("%s/new", folder);
        make_file(new, 0, draw() % 50000);
        int file = open_file(new, O_RDONLY);
        MUST(fsync(file), new);
        close(file);
        say("begin", root, base);
        MUST(rename(new, base), base);
        synchronise_folder(folder);
        say("done", root, base);
    }
    }
}

static void make_and_synchronise(const char *root, unsigned steps) {
    for (unsigned folder = 0; folder < 8; folder++) {
        make_folder(path_of("%s/folder-%u", root, folder));
        for (unsigned file = 0; file < 8; file++)
            make_file(path_of("%s/folder-%u/base-%u", root, folder, file), 0, 10000 * file);
    }
    sync();
    for (unsigned nth = 0; nth < steps; nth++)
        take_step(root, nth);
    puts("end");
    fflush(stdout);
    pause();
}

int main(int count, char **arguments) {
    umask(022);
    const char *command = count > 2 ? arguments[1] : "";
    const char *root = count > 2 ? arguments[2] : "";
    const char *seed = getenv("SEED");
    state += seed ? strtoull(seed, NULL, 10) * 7919 : 0;
    if (count == 3 && !strcmp(command, "list"))
        list(root, root);
    else if (count == 5 && !strcmp(command, "make"))
        make(root, (unsigned)atoi(arguments[3]), (unsigned)atoi(arguments[4]));
    else if (count == 4 && !strcmp(command, "sync"))
        make_and_synchronise(root, (unsigned)atoi(arguments[3]));
    else {
        fputs("usage: tree make ROOT FILES MIB | tree list ROOT | tree sync ROOT STEPS\n", stderr);
        return 2;
    }
    return fflush(stdout) ? 1 : 0;
}
