/* Writes 512 bytes in place and orders them, for a second: measure measure DIRECTORY prints how, and the calls of fdatabarrier. */

#define _POSIX_C_SOURCE 200809L /* openat, also where the compiler keeps to the C standard */

#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <weir.h>

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **arguments)
{
	int directory = count == 3 ? open(arguments[2], O_RDONLY | O_DIRECTORY) : -1;
	int log = directory < 0 ? -1 : openat(directory, "log", O_RDWR | O_CREAT, 0644);
	static char record[512];
	double end = now() + 1;
	long calls = 0;

	if (log < 0 || fbarrier(log)) {
		perror("measure measure DIRECTORY");
		return 1;
	}
	while (now() < end) {
		if (pwrite(log, record, sizeof(record), 0) != sizeof(record) || fdatabarrier(log)) {
			perror("log");
			return 1;
		}
		calls++;
	}
	printf("%s: %ld\n", weir_is_mounted(log) == 1 ? "ordered" : "durable", calls);
	return 0;
}
