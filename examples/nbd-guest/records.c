/* Records of 4 KiB, each a number that is repeated, appended to a file with an fsync each.
 *
 *   records rate FILE SECONDS      how many a second
 *   records keep RECORDS PLAIN     until there is input: prints each number once its fsync has returned. Before each,
 *                                  16 records with its number are appended to PLAIN; a sync at the end covers them
 */
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RECORD = 4096, PLAIN = 16 };

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static int open_new(const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
    if (file < 0) {
        perror(path);
        exit(1);
    }
    return file;
}

static void append(int file, uint64_t number, int count)
{
    uint64_t record[RECORD / sizeof number];
    for (size_t nth = 0; nth < RECORD / sizeof number; nth++)
        record[nth] = number;
    while (count-- > 0) {
        if (write(file, record, RECORD) != RECORD) {
            perror("write");
            exit(1);
        }
    }
}

static void synchronise(int file)
{
    if (fsync(file) != 0) {
        perror("fsync");
        exit(1);
    }
}

static int rate(const char *path, double limit)
{
    int file = open_new(path);
    uint64_t count = 0;
    synchronise(file);
    double began = seconds(), now = began;
    for (; now - began < limit; now = seconds()) {
        append(file, count++, 1);
        synchronise(file);
    }
    printf("%s %.1f\n", path, count / (now - began));
    return 0;
}

static int keep(const char *records, const char *plain)
{
    int kept = open_new(records), other = open_new(plain);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    uint64_t number = 0;
    for (; poll(&input, 1, 0) == 0; number++) {
        append(other, number, PLAIN);
        append(kept, number, 1);
        synchronise(kept);
        printf("%llu\n", (unsigned long long)number);
        fflush(stdout);
    }
    sync();
    printf("end\n");
    return 0;
}

int main(int count, char **arguments)
{
    if (count == 4 && strcmp(arguments[1], "rate") == 0)
        return rate(arguments[2], atof(arguments[3]));
    if (count == 4 && strcmp(arguments[1], "keep") == 0)
        return keep(arguments[2], arguments[3]);
    fprintf(stderr, "records rate FILE SECONDS | records keep RECORDS PLAIN\n");
    return 2;
}
