/* Moves an amount between two files as one change: after a crash both files have it, or neither.
 *
 *     cc -I crates/capi/include examples/atomic.c -L target/release -lweir -o atomic
 *     LD_LIBRARY_PATH=$PWD/target/release ./atomic DIRECTORY      (on a mount of Weir)
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir.h>

static void require(int done, const char *what)
{
    if (done < 0) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static int open_account(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    require(fd, name);
    require(weir_set_atomic(fd, 1), "weir_set_atomic");
    return fd;
}

static void put(int fd, long amount)
{
    char line[32];
    int length = snprintf(line, sizeof line, "%8ld\n", amount);
    require((int)pwrite(fd, line, (size_t)length, 0), "pwrite");
}

int main(int argc, char **argv)
{
    if (argc != 2 || chdir(argv[1]) != 0) {
        fprintf(stderr, "usage: atomic DIRECTORY\n");
        return 2;
    }
    int accounts[2] = {open_account("from"), open_account("to")};
    put(accounts[0], 100);
    put(accounts[1], 0);
    require(weir_syncv(accounts, 2), "weir_syncv");

    /* Neither the journal's timer nor fsync of other files puts one of these two writes on the disk alone. */
    put(accounts[0], 60);
    put(accounts[1], 40);
    require(weir_syncv(accounts, 2), "weir_syncv");

    /* A change that is begun can be taken back. */
    require(weir_begin_update(accounts[0]), "weir_begin_update");
    put(accounts[0], 0);
    require(weir_abandon_update(accounts[0]), "weir_abandon_update");

    char line[32] = "";
    require((int)pread(accounts[0], line, sizeof line - 1, 0), "pread");
    printf("from: %s", line);
    return 0;
}
