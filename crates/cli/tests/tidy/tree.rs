//! The text files of the repository, and what a check reports about them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

/// What a check found: where, and what is wrong.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub path: String,
    /// Counted from 1; 0 for a whole file.
    pub line: usize,
    pub what: String,
}

impl Finding {
    pub fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// One text file; the path is relative to the repository, with forward slashes.
#[derive(Clone, Copy)]
pub struct File<'a> {
    pub path: &'a str,
    pub text: &'a str,
}

impl File<'_> {
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// All text files, sorted by path.
pub struct Tree(BTreeMap<String, String>);

impl Tree {
    /// Reads the repository that this test belongs to.
    pub fn load() -> Tree {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = BTreeMap::new();
        collect(&root, "", &mut files);
        Tree(files)
    }

    /// A made-up repository, for negative controls.
    pub fn of(files: &[(&str, &str)]) -> Tree {
        Tree(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    pub fn files(&self) -> impl Iterator<Item = File<'_>> {
        self.0.iter().map(|(path, text)| File { path, text })
    }

    pub fn rust(&self) -> impl Iterator<Item = File<'_>> {
        self.files().filter(File::is_rust)
    }

    pub fn file(&self, path: &str) -> Option<File<'_>> {
        self.0.get_key_value(path).map(|(path, text)| File { path, text })
    }

    /// Whether `path` is a file, or a folder with a file in it.
    pub fn exists(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.0.contains_key(path) || self.0.keys().any(|file| file.starts_with(&folder))
    }
}

/// Build output and hidden folders are no part of the source, except the folder of the CI script.
fn is_source_folder(name: &str) -> bool {
    name == ".ci" || !(name.starts_with('.') || name == "target")
}

/// Files that are not UTF-8 have no words to check.
fn collect(folder: &Path, prefix: &str, files: &mut BTreeMap<String, String>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let entry = entry.expect("the folder can be listed");
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().expect("the entry has a kind");
        if kind.is_dir() && is_source_folder(&name) {
            collect(&entry.path(), &format!("{path}/"), files);
        } else if kind.is_file()
            && is_text(&name, prefix)
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            files.insert(path, text);
        }
    }
}

fn is_text(name: &str, prefix: &str) -> bool {
    let endings = [".rs", ".c", ".h", ".md", ".toml", ".sh", ".py", ".go", ".json"];
    prefix == ".ci/" || name.starts_with("LICENSE-") || endings.iter().any(|ending| name.ends_with(ending))
}
