/* Lists: one line for each name. */
#include "tree.h"
#include <dirent.h>

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

void print_name(FILE *out, const char *name) {
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

void print_line(FILE *out, const char *root, const char *path) {
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

void list(const char *root, const char *path) {
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
