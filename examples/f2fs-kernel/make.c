/* Trees: one with much of what a file system can hold, and changes of it. */
#include "tree.h"
#include <sys/sysmacros.h>

enum { DEEP = 200, MANY_LINKS = 300, FOLDER_FILES = 500 };

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

void make(const char *root, unsigned files, unsigned mebibytes) {
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

/* Files that were made before, by whoever made them. */
void change(const char *root) {
    for (unsigned nth = 0; nth < FOLDER_FILES; nth++) {
        const char *path = path_of("%s/small/1/%u", root, FOLDER_FILES + nth);
        off_t size = size_of(path);
        switch (nth % 5) {
        case 0: MUST(truncate(path, size / 2), path); break;
        case 1: make_file(path, size, 6000); break;
        case 2: make_file(path, size / 2, 100); break;
        case 3: MUST(unlink(path), path); break;
        default: set_attribute(path, "user.changed", nth);
        }
    }
    const char *path = path_of("%s/large", root);
    off_t size = size_of(path);
    for (unsigned nth = 0; nth < 200; nth++)
        make_file(path, (off_t)(draw() % (uint64_t)size), draw() % 20000);
    int file = open_file(path, O_RDWR);
    MUST(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, size / 3, size / 9), path);
    MUST(ftruncate(file, size - size / 4), path);
    close(file);
    make_file(path_of("%s/sparse/all", root), 500000LL * BLOCK, 20000);
    MUST(truncate(path_of("%s/sparse/all", root), 2000000LL * BLOCK), root);
    MUST(unlink(path_of("%s/links/7", root)), root);
}
