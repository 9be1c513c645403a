//! What a direct write has written a buffered read sees as soon as the write is done, also if it was asynchronous and
//! others read the file meanwhile; with and without the kernel's writeback cache. Where FUSE or a compiler is not to be had,
//! this says that it was skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::process::Command;

use crate::support::{Place, is_there, mounts, runs};

/// Writes a file again and again by asynchronous direct I/O, beside three threads that read it through the page cache, and
/// counts the reads after a write that do not see it.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 160 * 4096 };
static const char *path;
static volatile int stop;

static void *read_on(void *unused)
{
	char *bytes = malloc(BYTES);
	int file = open(path, O_RDONLY);

	while (!stop)
		if (pread(file, bytes, BYTES, 0) < 0)
			perror("pread");
	close(file);
	return unused;
}

int main(int argc, char **argv)
{
	aio_context_t context = 0;
	pthread_t readers[3];
	char *out, *in = malloc(BYTES);
	long stale = 0;
	time_t end = time(NULL) + 3;

	path = argv[argc - 1];
	int direct = open(path, O_RDWR | O_CREAT | O_DIRECT, 0644);
	int buffered = open(path, O_RDONLY);
	if (posix_memalign((void **)&out, 4096, BYTES) || syscall(SYS_io_setup, 1, &context))
		return 1;
	memset(out, 0, BYTES);
	if (pwrite(direct, out, BYTES, 0) != BYTES)
		return 2;
	for (int i = 0; i < 3; i++)
		pthread_create(&readers[i], NULL, read_on, NULL);
	for (int round = 1; time(NULL) < end; round++) {
		struct iocb block = { .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = direct,
			.aio_buf = (uintptr_t)out, .aio_nbytes = BYTES }, *blocks = &block;
		struct io_event event;

		memset(out, round, BYTES);
		if (syscall(SYS_io_submit, context, 1, &blocks) != 1 ||
		    syscall(SYS_io_getevents, context, 1, 1, &event, NULL) != 1 || event.res != BYTES)
			return 3;
		if (pread(buffered, in, BYTES, 0) != BYTES)
			return 4;
		stale += !!memcmp(in, out, BYTES);
	}
	stop = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(readers[i], NULL);
	printf("%ld stale reads\n", stale);
	return 0;
}
"#;

#[test]
fn a_buffered_read_sees_an_asynchronous_direct_write() {
    if !mounts() || !is_there("cc") {
        return;
    }
    let place = Place::with_volume("128M");
    let (source, program) = (place.path().join("aio.c"), place.path().join("aio"));
    fs::write(&source, PROGRAM).unwrap();
    runs(
        Command::new("cc")
            .args(["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-pthread"])
            .arg(&source)
            .arg("-o")
            .arg(&program),
    );
    for more in [&["--writeback-cache"][..], &[]] {
        let root = place.mount(more);
        assert_eq!(runs(Command::new(&program).arg(root.join("file"))), "0 stale reads\n", "{more:?}");
        place.umount();
    }
    place.check();
}
