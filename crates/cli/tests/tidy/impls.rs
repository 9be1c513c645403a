//! Where a type's methods are: a type whose `impl` blocks are in many files does many things, or is a namespace.

use std::collections::{BTreeMap, BTreeSet};

use super::code::{is_word, line_of, whole_words};
use super::modules::{Module, Modules, last, parent};
use super::tree::{Finding, Tree};

/// So many files may have `impl` blocks of one type.
const FILES_MAX: usize = 5;

pub fn check(tree: &Tree) -> Vec<Finding> {
    Modules::of_each(tree).flat_map(|modules| check_crate(&modules)).collect()
}

fn check_crate(modules: &Modules<'_>) -> Vec<Finding> {
    let mut files: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for (name, module) in modules.iter() {
        for path in types(&module.code) {
            if let Some(owner) = owner(modules, name, module, path) {
                files.entry((owner, last(path))).or_default().insert(module.path);
            }
        }
    }
    let mut findings = Vec::new();
    for ((owner, name), files) in files.iter().filter(|(_, files)| files.len() > FILES_MAX) {
        let Some(module) = modules.get(owner) else { continue };
        let line = declaration(module, name).map_or(0, |at| line_of(&module.code, at));
        let what =
            format!("`impl` blocks of `{name}` are in {} files, at most {FILES_MAX} may be", files.len());
        findings.push(Finding::new(module.path, line, what));
    }
    findings
}

/// The types that `code` has `impl` blocks of, as paths.
fn types(code: &str) -> impl Iterator<Item = &str> {
    // Others stand for a type.
    let items = whole_words(code, "impl").filter(|at| {
        let before = code[..*at].trim_end();
        before.is_empty() || before.ends_with(['}', '{', ';', ']']) || before.ends_with("unsafe")
    });
    items.map(|at| implemented(&code[at + "impl".len()..])).filter(|path| !path.is_empty())
}

/// The type's path in what follows `impl`; empty for a slice, a tuple, and the like.
fn implemented(tail: &str) -> &str {
    let head = &tail[..tail.find('{').unwrap_or(tail.len())];
    let head = &head[..whole_words(head, "where").next().unwrap_or(head.len())];
    let head = behind_parameters(head);
    // `for<'a>` is in a bound.
    let of_trait = whole_words(head, "for").find(|at| !head[at + 3..].starts_with('<'));
    let head = of_trait.map_or(head, |at| &head[at + 3..]).trim_start();
    let head = head.strip_prefix('&').map_or(head, |rest| {
        let rest = rest.strip_prefix('\'').map_or(rest, |rest| rest.trim_start_matches(is_word)).trim_start();
        rest.strip_prefix("mut ").unwrap_or(rest)
    });
    head[..head.find(|c| !is_word(c) && c != ':').unwrap_or(head.len())].trim_end_matches(':')
}

/// What comes behind `<...>`.
fn behind_parameters(head: &str) -> &str {
    let mut depth = 0;
    for (at, c) in head.char_indices().filter(|_| head.starts_with('<')) {
        match c {
            '<' => depth += 1,
            '>' if !head[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &head[at + 1..];
        }
    }
    head
}

/// The module that declares the type which `path` means in a module; none if that is no struct or enum of the crate.
fn owner<'a>(modules: &'a Modules<'_>, name: &'a str, module: &Module<'_>, path: &str) -> Option<&'a str> {
    let type_name = last(path);
    let declares = |at: &&str| modules.get(at).is_some_and(|module| declaration(module, type_name).is_some());
    if path.contains("::") {
        return modules.find(name, path).filter(declares);
    }
    let imported = || module.imports.iter().filter(|path| last(path) == type_name);
    let found = || imported().find_map(|path| modules.find(name, path).filter(declares));
    // `use super::*`.
    let around = || std::iter::successors(parent(name), |name| parent(name)).find(declares);
    Some(name).filter(declares).or_else(found).or_else(around)
}

/// Where a module declares a struct or enum of this name.
fn declaration(module: &Module<'_>, name: &str) -> Option<usize> {
    whole_words(&module.code, name).find(|at| {
        let before = module.code[..*at].trim_end();
        ["struct", "enum"].iter().any(|kind| before.ends_with(kind))
    })
}

#[test]
fn a_type_with_methods_in_six_files_is_found() {
    let tree = Tree::of(&[
        ("crates/x/src/lib.rs", "mod a;\npub use a::One;\n"),
        ("crates/x/src/a.rs", "\npub struct One<T>(T);\nstruct Other;\nimpl<T: Fn() -> u8> One<T> {}\n"),
        ("crates/x/src/a/b.rs", "use super::*;\nimpl One<u8> {}\nimpl Other {}"),
        ("crates/x/src/c.rs", "use crate::One;\nimpl<T> Clone for One<T> where T: Clone {}"),
        ("crates/x/src/d.rs", "impl Drop for crate::a::One<u8> {}"),
        ("crates/x/src/e.rs", "use crate::a::One;\nimpl<'a> IntoIterator for &'a mut One<u8> {}"),
        ("crates/x/src/f.rs", "use crate::a::One;\n#[x]\nunsafe impl Send for One<u8> {}"),
        // None of it.
        (
            "crates/x/src/g.rs",
            "use crate::a::One;\nimpl From<One<u8>> for u8 {}\nfn f(x: impl Into<One<u8>>) {}",
        ),
        ("crates/x/src/h.rs", "struct One;\nimpl One {}"),
        ("crates/x/src/i.rs", "#[cfg(test)]\nmod tests {\n    impl crate::a::One<u8> {}\n}"),
        ("crates/y/src/a.rs", "struct One;\nimpl One {}"),
    ]);
    let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    assert_eq!(found, ["crates/x/src/a.rs:2: `impl` blocks of `One` are in 6 files, at most 5 may be"]);
}
