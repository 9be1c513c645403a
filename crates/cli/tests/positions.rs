//! Positions in directories: 32-bit programs without large-file support can read directories on a mount, and `telldir`
//! and `seekdir` lead back to each name. Where FUSE or a compiler is not to be had, or one for 32-bit programs, these tests
//! say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Place, error_of, is_there, mounts, runs};

/// `list`: counts names. `seek`: goes back to each position, last to first, and reads the name there. `remove`: removes
/// each name as it is read.
const PROGRAM: &str = r#"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	DIR *dir = opendir(argv[2]);
	long at[30000];
	char *names[30000];
	int n = 0, bad = 0;
	struct dirent *entry;

	if (argc != 3 || !dir || chdir(argv[2]))
		return 1;
	errno = 0;
	for (at[0] = telldir(dir); (entry = readdir(dir)); at[++n] = telldir(dir)) {
		names[n] = strdup(entry->d_name);
		if (!strcmp(argv[1], "remove") && entry->d_name[0] != '.')
			unlink(entry->d_name);
	}
	printf("%d names, errno %d", n, errno);
	for (int i = n - 1; !strcmp(argv[1], "seek") && i >= 0; i -= 1 + n / 500) {
		seekdir(dir, at[i]);
		entry = readdir(dir);
		bad += !entry || strcmp(entry->d_name, names[i]);
	}
	printf(", %d wrong\n", bad);
	return 0;
}
"#;

/// Compiles the program with words of 32 or 64 bits.
fn program(place: &Place, bits: u32) -> Option<PathBuf> {
    let (source, program) = (place.path().join("read.c"), place.path().join(format!("read{bits}")));
    fs::write(&source, PROGRAM).unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-std=gnu11", "-Wall", &format!("-m{bits}")]).arg(&source).arg("-o").arg(&program);
    let output = compile.output().unwrap();
    if !output.status.success() {
        eprintln!("skipped: no compiler for programs of {bits} bits: {}", error_of(&output));
        return None;
    }
    Some(program)
}

fn fill(root: &Path, count: u32) -> PathBuf {
    let directory = root.join(format!("with-{count}"));
    fs::create_dir(&directory).unwrap();
    for nth in 0..count {
        File::create(directory.join(format!("a name that is number {nth}"))).unwrap();
    }
    directory
}

#[test]
fn programs_of_both_word_sizes_read_directories() {
    if !mounts() || !is_there("cc") {
        return;
    }
    let place = Place::with_volume("256M");
    let programs: Vec<_> = [64, 32].into_iter().filter_map(|bits| program(&place, bits)).collect();
    let root = place.mount(&[]);
    for count in [0, 1, 100, 3000, 20_000] {
        let directory = fill(&root, count);
        for program in &programs {
            let read = |how: &str| runs(Command::new(program).arg(how).arg(&directory));
            let all = format!("{} names, errno 0, 0 wrong\n", count + 2);
            assert_eq!((read("list"), read("seek")), (all.clone(), all.clone()));
        }
        let last = programs.last().unwrap();
        let removed = runs(Command::new(last).arg("remove").arg(&directory));
        assert_eq!(removed, format!("{} names, errno 0, 0 wrong\n", count + 2));
        fs::remove_dir(&directory).unwrap();
    }
    place.end();
}
