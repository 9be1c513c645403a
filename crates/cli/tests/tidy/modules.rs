//! The files of a crate as its modules, and which of them a path means. Tests are no part of it.

use std::collections::BTreeMap;

use super::code::{imports, product_code};
use super::tree::{File, Tree};

/// How many re-exports a path may lead through.
const REEXPORTS_MAX: u32 = 8;

/// One file of the product.
pub struct Module<'a> {
    pub path: &'a str,
    /// Without comments, literals and tests.
    pub code: String,
    /// What its `use` declarations import.
    pub imports: Vec<String>,
}

/// The modules of one crate by their names, as `cache::pages`; the root's is empty.
pub struct Modules<'a>(BTreeMap<String, Module<'a>>);

impl<'a> Modules<'a> {
    /// Those of every crate.
    pub fn of_each(tree: &'a Tree) -> impl Iterator<Item = Modules<'a>> {
        let mut crates: BTreeMap<&str, BTreeMap<String, Module<'_>>> = BTreeMap::new();
        for file in tree.rust() {
            if let Some((in_crate, name)) = place(file) {
                let code = product_code(file.text);
                let imports = imports(&code).into_iter().map(|(_, path)| path).collect();
                let module = Module { path: file.path, code, imports };
                crates.entry(in_crate).or_default().insert(name, module);
            }
        }
        crates.into_values().map(Modules)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Module<'a>)> {
        self.0.iter().map(|(name, module)| (name.as_str(), module))
    }

    pub fn get(&self, name: &str) -> Option<&Module<'a>> {
        self.0.get(name)
    }

    /// The module that has what `path` means in module `from`, behind all re-exports; none outside the crate.
    pub fn find(&self, from: &str, path: &str) -> Option<&str> {
        self.follow(from, path, REEXPORTS_MAX)
    }

    fn follow(&self, from: &str, path: &str, reexports: u32) -> Option<&str> {
        let (mut at, mut names) = (from.to_owned(), path.split("::").peekable());
        match names.peek() {
            Some(&"crate") => {
                names.next();
                at.clear();
            }
            Some(&"self") => {
                names.next();
            }
            Some(&"super") => {
                while names.next_if_eq(&"super").is_some() {
                    at = parent(&at)?.to_owned();
                }
            }
            Some(name) if self.0.contains_key(&join(&at, name)) => {}
            _ => return None,
        }
        while let Some(child) = names.peek().map(|name| join(&at, name)).filter(|to| self.0.contains_key(to))
        {
            names.next();
            at = child;
        }
        let (at, module) = self.0.get_key_value(&at)?;
        let name = names.next().filter(|_| reexports > 0);
        let reexport = name.and_then(|name| module.imports.iter().find(|path| last(path) == name));
        reexport.and_then(|path| self.follow(at, path, reexports - 1)).or(Some(at))
    }
}

/// The crate of a file of the product, and its module's name.
fn place(file: File<'_>) -> Option<(&str, String)> {
    let (in_crate, inside) = file.path.strip_prefix("crates/")?.split_once("/src/")?;
    let inside = inside.strip_suffix(".rs")?;
    let name = inside.strip_suffix("/mod").unwrap_or(inside);
    let is_root = name == "lib" || name == "main";
    let is_test = name == "tests" || name.ends_with("/tests");
    (!is_test).then(|| (in_crate, if is_root { String::new() } else { name.replace('/', "::") }))
}

/// The module around one.
pub fn parent(name: &str) -> Option<&str> {
    if name.is_empty() { None } else { Some(name.rsplit_once("::").map_or("", |(parent, _)| parent)) }
}

/// The last name of a path.
pub fn last(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

fn join(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

#[test]
fn paths_lead_to_the_files_that_have_what_they_name() {
    let tree = Tree::of(&[
        ("crates/x/src/lib.rs", "pub use a::Deep;"),
        ("crates/x/src/a/mod.rs", "mod b;\npub use b::{Deep, Round};"),
        ("crates/x/src/a/b.rs", "use super::super::c;\npub use crate::a::Round;\npub struct Deep;"),
        ("crates/x/src/a/tests.rs", ""),
        ("crates/x/src/c.rs", ""),
    ]);
    let modules = Modules::of_each(&tree).next().expect("one crate");
    let find = |from, path| modules.find(from, path);
    assert_eq!(find("c", "crate::Deep"), Some("a::b"));
    assert_eq!(find("c", "crate::a"), Some("a"));
    assert_eq!(find("a::b", "super::super::c::Any"), Some("c"));
    assert_eq!(find("a", "b::Deep"), Some("a::b"));
    assert_eq!(find("c", "std::Deep"), None);
    assert_eq!(find("a", "super::super::c"), None);
    assert!(find("c", "crate::a::Round").is_some(), "a circle of re-exports has an end");
    assert!(modules.get("a::tests").is_none());
}
