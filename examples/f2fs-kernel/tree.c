/* Trees for judge.py: made, listed, and changed with synchronisation calls. Linked statically, it runs on the host and in the guest.
 *
 *     tree make ROOT FILES MIB    make a tree with FILES small files and one of MIB mebibytes
 *     tree list ROOT              print one line for each name below ROOT, in the order of names
 *     tree change ROOT            write, cut and punch files of a tree that `make` has made
 *     tree sync ROOT STEPS        change files and synchronise them, and say so
 *
 * `sync` prints "begin PATH" before it changes a file, and behind the synchronisation call "done" with the line that `list` would print,
 * or "gone PATH". What it says is done must outlive a cut. */
#include "tree.h"
#include <stdarg.h>

void fail(const char *what, const char *path) {
    fprintf(stderr, "tree: %s %s: %s\n", what, path, strerror(errno));
    exit(1);
}

const char *path_of(const char *format, ...) {
    static char paths[8][PATH_MAX];
    static unsigned turn;
    char *path = paths[turn++ % 8];
    va_list values;
    va_start(values, format);
    vsnprintf(path, PATH_MAX, format, values);
    va_end(values);
    return path;
}

static uint64_t state = 88172645463325252ULL;

uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

void write_at(int file, const char *path, off_t at, size_t bytes) {
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

int open_file(const char *path, int flags) {
    int file = open(path, flags | O_CLOEXEC, 0644);
    MUST(file, path);
    return file;
}

void make_file(const char *path, off_t at, size_t bytes) {
    int file = open_file(path, O_RDWR | O_CREAT);
    write_at(file, path, at, bytes);
    MUST(close(file), path);
}

void make_folder(const char *path) {
    MUST(mkdir(path, 0755), path);
}

off_t size_of(const char *path) {
    struct stat found;
    MUST(stat(path, &found), path);
    return found.st_size;
}

void set_attribute(const char *path, const char *name, size_t bytes) {
    char value[4096];
    for (size_t byte = 0; byte < bytes; byte++)
        value[byte] = (char)draw();
    if (lsetxattr(path, name, value, bytes, 0) < 0)
        fail(name, path);
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
    else if (count == 3 && !strcmp(command, "change"))
        change(root);
    else if (count == 4 && !strcmp(command, "sync"))
        make_and_synchronise(root, (unsigned)atoi(arguments[3]));
    else {
        fputs("usage: tree make ROOT FILES MIB | tree list ROOT | tree change ROOT | tree sync ROOT STEPS\n", stderr);
        return 2;
    }
    return fflush(stdout) ? 1 : 0;
}
