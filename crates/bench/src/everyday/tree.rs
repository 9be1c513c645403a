//! A tree of source files, made by chance: directories of 1 to 24 files of 200 bytes to 100 KiB, most of them small, with lines of
//! words.

use std::io;
use std::path::Path;

use weir_runtime::Random;

const WORDS: [&str; 16] = [
    "let", "block", "return", "order", "self", "queue", "match", "barrier", "struct", "write", "impl",
    "flush", "use", "epoch", "const", "log",
];

/// Makes a tree of so many files in a directory, which is made.
pub(super) fn make_tree(directory: &Path, files: u32, random: &mut Random) -> io::Result<()> {
    let mut left = files;
    let mut number = 0;
    while left > 0 {
        let parent = directory.join(format!("part{}", number % 7)).join(format!("unit{number}"));
        std::fs::create_dir_all(&parent)?;
        let count = (1 + random.below(24) as u32).min(left);
        for nth in 0..count {
            std::fs::write(parent.join(format!("file{nth}.rs")), text(random))?;
        }
        left -= count;
        number += 1;
    }
    Ok(())
}

/// Lines of words. Of two lengths by chance the smaller one counts, twice, so that most files are small.
fn text(random: &mut Random) -> String {
    let length = (0..3).map(|_| 200 + random.below(48 << 10)).min().unwrap_or_default() as usize;
    let mut text = String::with_capacity(length + 80);
    while text.len() < length {
        for _ in 0..3 + random.below(9) {
            text.push_str(WORDS[random.below(WORDS.len() as u64) as usize]);
            text.push(' ');
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use weir_runtime::{Runtime, Simulation};

    use super::*;

    #[test]
    fn a_tree_has_so_many_files_and_is_the_same_with_the_same_seed() {
        let made = [1, 1, 2].map(|seed| {
            let directory = tempfile::tempdir().unwrap();
            let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
            make_tree(directory.path(), 30, &mut runtime.handle().random("tree")).unwrap();
            let mut sizes = Vec::new();
            for part in std::fs::read_dir(directory.path()).unwrap() {
                for unit in std::fs::read_dir(part.unwrap().path()).unwrap() {
                    for file in std::fs::read_dir(unit.unwrap().path()).unwrap() {
                        sizes.push(file.unwrap().metadata().unwrap().len());
                    }
                }
            }
            sizes.sort_unstable();
            sizes
        });
        assert_eq!(made[0].len(), 30);
        assert_eq!(made[0], made[1]);
        assert_ne!(made[0], made[2]);
    }
}
