/* What the parts of `tree` share. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { BLOCK = 4096 };

/* Ends the program. */
void fail(const char *what, const char *path);

/* Fails with the name of the call that returned a negative number. */
#define MUST(call, path)  \
    do {  \
        if ((call) < 0)  \
            fail(#call, path);  \
    } while (0)

/* A path in one of eight buffers that are used by turns. */
__attribute__((format(printf, 1, 2))) const char *path_of(const char *format, ...);

/* The next number by chance, of those that SEED begins. */
uint64_t draw(void);
int open_file(const char *path, int flags);
off_t size_of(const char *path);
void write_at(int file, const char *path, off_t at, size_t bytes);
/* Writes to a file at `at`; it is made if it is not there. */
void make_file(const char *path, off_t at, size_t bytes);
void make_folder(const char *path);
void set_attribute(const char *path, const char *name, size_t bytes);

/* A name with its odd bytes in digits. */
void print_name(FILE *out, const char *name);
/* Path, type and mode, owner, group, device, size, links, modified, changed, accessed, content, attributes. */
void print_line(FILE *out, const char *root, const char *path);

/* The commands. */
void list(const char *root, const char *path);
void make(const char *root, unsigned files, unsigned mebibytes);
void change(const char *root);
void make_and_synchronise(const char *root, unsigned steps);
