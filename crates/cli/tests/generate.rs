//! The manual pages and the completions that a package takes along: one page a command, with what `--help` says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::weir_program;

fn weir(arguments: &[&str]) -> String {
    let output = Command::new(weir_program()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The commands that `--help` lists, and not `help` itself.
fn commands(of: &[&str]) -> Vec<String> {
    let told = weir(&[of, &["--help"]].concat());
    let list = told.split_once("Commands:\n").map_or("", |(_, list)| list.split("\n\n").next().unwrap());
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.map(|line| line.split_whitespace().next().unwrap().to_owned());
    names.filter(|name| name != "help").collect()
}

/// The long options that `--help` lists.
fn options(of: &[&str]) -> Vec<String> {
    let told = weir(&[of, &["--help"]].concat());
    let words = told.lines().filter(|line| line.trim_start().starts_with('-')).map(str::to_owned);
    let words = words.flat_map(|line| line.split([' ', ',']).map(str::to_owned).collect::<Vec<_>>());
    words.filter(|word| word.starts_with("--")).collect()
}

/// The page, as `man` would show its letters.
fn page(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name))
        .unwrap()
        .replace("\\-", "-")
        .replace("\\fB", "")
        .replace("\\fR", "")
}

#[test]
fn every_command_has_a_page_with_its_options() {
    let directory = tempfile::tempdir().unwrap();
    // It makes the directory, and writes it anew.
    let made = directory.path().join("made");
    for _ in 0..2 {
        weir(&["generate", made.to_str().unwrap()]);
    }
    let pages = made.join("man1");
    let mut expected = vec!["weir.1".to_owned()];
    let top = commands(&[]);
    assert!(top.len() > 10 && top.contains(&"mount".to_owned()), "{top:?}");
    let mut paths: Vec<Vec<String>> = top.into_iter().map(|name| vec![name]).collect();
    while let Some(path) = paths.pop() {
        let arguments: Vec<&str> = path.iter().map(String::as_str).collect();
        paths.extend(commands(&arguments).into_iter().map(|below| [&path[..], &[below]].concat()));
        let name = format!("weir-{}.1", path.join("-"));
        let text = page(&pages, &name);
        assert!(
            text.starts_with(".ie") && text.contains(&format!("weir {}", path.join(" "))),
            "{name}: {text}"
        );
        for option in options(&arguments) {
            assert!(text.contains(&option), "{name} has no {option}: {text}");
        }
        expected.push(name);
    }
    let mut found: Vec<_> = fs::read_dir(&pages)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    assert!(page(&pages, "weir.1").contains("weir-mount(1)"));
    for helper in ["mount.weir.8", "umount.fuse.weir.8"] {
        assert!(page(&made.join("man8"), helper).contains(".TH"), "{helper}");
    }
}

#[test]
fn shells_complete_commands_and_options() {
    let directory = tempfile::tempdir().unwrap();
    weir(&["generate", directory.path().to_str().unwrap()]);
    for name in ["weir.bash", "_weir", "weir.fish"] {
        let text = fs::read_to_string(directory.path().join("completions").join(name)).unwrap();
        assert!(text.contains("umount") && text.contains("writeback-cache"), "{name}");
        // One of `weir crash` has the same name.
        let is_told =
            ["weir__subcmd__generate", "Write manual pages"].iter().any(|of_it| text.contains(of_it));
        assert!(!is_told, "{name} tells of a command that --help does not show");
    }
    let completed = |words: &str, current: &str| {
        let script = format!(
            ". completions/weir.bash; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _weir weir '{current}' ''; echo \"${{COMPREPLY[*]}}\""
        );
        let output =
            Command::new("bash").args(["-c", &script]).current_dir(directory.path()).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    assert_eq!(
        (completed("weir gen", "gen"), completed("weir crash gen", "gen")),
        (String::new(), "generate".to_owned())
    );
    assert_eq!(completed("weir mou", "mou"), "mount");
    assert_eq!(completed("weir mount --writeb", "--writeb"), "--writeback-cache");
}
