/* Orders two writes on a mount of Weir: barrier DIRECTORY. Elsewhere fbarrier is fsync.
 *
 * gcc -Icrates/capi/include examples/barrier.c -Ltarget/release -lweir -o barrier
 * LD_LIBRARY_PATH=$PWD/target/release ./barrier /mnt/weir */

#define _POSIX_C_SOURCE 200809L /* openat, also where the compiler keeps to the C standard */

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weir.h>

/* Opens a new file of this name in a directory, and writes one line into it. */
static int write_new(int directory, const char *name, const char *line)
{
	int fd = openat(directory, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	if (fd >= 0 && write(fd, line, strlen(line)) == (ssize_t)strlen(line))
		return fd;
	perror(name);
	return -1;
}

int main(int count, char **arguments)
{
	int directory = count == 2 ? open(arguments[1], O_RDONLY | O_DIRECTORY) : -1;
	int log, data;

	if (directory < 0) {
		fputs("usage: barrier DIRECTORY\n", stderr);
		return 2;
	}
	log = write_new(directory, "log", "what is going to be done\n");
	if (log < 0 || fbarrier(log)) /* before whatever is written later; waits for nothing */
		return 1;
	data = write_new(directory, "data", "done\n");
	if (data < 0 || fsync(data)) /* and now both are safe */
		return 1;
	puts(weir_is_mounted(data) == 1 ? "one barrier, one flush" : "two flushes");
	return 0;
}
