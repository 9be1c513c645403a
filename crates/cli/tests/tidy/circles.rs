//! Circles of imports: files that need each other, directly or through others, are one thing in several files. A few
//! may be; parent and child are in any case.

use std::collections::{BTreeMap, BTreeSet};

use super::code::{is_word, whole_words};
use super::modules::{Module, Modules};
use super::tree::{Finding, Tree};

/// So many files may need each other.
const FILES_MAX: usize = 3;

/// Which modules each one needs, by their names.
type Needs<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

pub fn check(tree: &Tree) -> Vec<Finding> {
    Modules::of_each(tree).flat_map(|modules| check_crate(&modules)).collect()
}

fn check_crate(modules: &Modules<'_>) -> Vec<Finding> {
    let graph = modules.iter().map(|(name, module)| (name, needs(modules, name, module))).collect();
    let path = |name: &&str| modules.get(name).map_or("", |module| module.path);
    let large = circles(&graph).into_iter().filter(|circle| circle.len() > FILES_MAX);
    large
        .map(|circle| {
            let files: Vec<&str> = circle.iter().map(path).collect();
            let what = format!("{} files need each other, at most {FILES_MAX} may", files.len());
            Finding::new(files[0], 0, format!("{what}: {}", files.join(", ")))
        })
        .collect()
}

/// What a module needs of others, neither its own parts nor those that it is a part of.
fn needs<'a>(modules: &'a Modules<'_>, name: &str, module: &Module<'_>) -> BTreeSet<&'a str> {
    let is_part = |whole: &str, part: &str| {
        part.strip_prefix(whole)
            .is_some_and(|rest| whole.is_empty() || rest.is_empty() || rest.starts_with("::"))
    };
    let imported = module.imports.iter().map(String::as_str);
    let found = imported.chain(paths(&module.code)).filter_map(|path| modules.find(name, path));
    found.filter(|other| !is_part(name, other) && !is_part(other, name)).collect()
}

/// The paths from the crate's root or a parent that stand in the code, those of `use` declarations in part.
fn paths(code: &str) -> impl Iterator<Item = &str> {
    let starts = ["crate::", "super::"].into_iter().flat_map(|start| whole_words(code, start));
    // The `super` of `super::super` starts no path.
    let starts = starts.filter(|at| !code[..*at].ends_with("::"));
    starts.map(|at| {
        let rest = &code[at..];
        rest[..rest.find(|c| !is_word(c) && c != ':').unwrap_or(rest.len())].trim_end_matches(':')
    })
}

/// The modules of each circle, in order.
fn circles<'a>(needs: &Needs<'a>) -> Vec<Vec<&'a str>> {
    let reach: Needs<'a> = needs.keys().map(|name| (*name, reached(needs, name))).collect();
    let mut seen = BTreeSet::new();
    let mut circles = Vec::new();
    for (name, others) in &reach {
        if others.contains(name) && !seen.contains(name) {
            let circle: Vec<&str> =
                others.iter().copied().filter(|other| reach[other].contains(name)).collect();
            seen.extend(circle.iter().copied());
            circles.push(circle);
        }
    }
    circles
}

/// What a module needs, directly or through others.
fn reached<'a>(needs: &Needs<'a>, name: &str) -> BTreeSet<&'a str> {
    let (mut found, mut ahead) = (BTreeSet::new(), vec![name]);
    while let Some(at) = ahead.pop() {
        let new = needs[at].iter().copied().filter(|next| found.insert(*next));
        ahead.extend(new.collect::<Vec<_>>());
    }
    found
}

#[test]
fn a_circle_of_four_files_is_found() {
    let tree = Tree::of(&[
        ("crates/x/src/a.rs", "mod part;\npub use part::Part;\nuse crate::b::{self, B};"),
        ("crates/x/src/a/part.rs", "use super::A;"),
        ("crates/x/src/b.rs", "use super::c::C;"),
        ("crates/x/src/c.rs", "fn f() -> crate::d::D {}"),
        ("crates/x/src/d.rs", "use crate::A;"),
        ("crates/x/src/lib.rs", "pub use a::A;\nuse crate::e::E;"),
        ("crates/x/src/e.rs", "use crate::a;"),
        ("crates/y/src/a.rs", "use crate::b::B;"),
        ("crates/y/src/b.rs", "use crate::c::C;"),
        ("crates/y/src/c.rs", "use crate::a::A;\n#[cfg(test)]\nmod tests {\n    use crate::d::D;\n}"),
        ("crates/y/src/d.rs", "use crate::a::A; // use crate::c::C"),
    ]);
    let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    let files = ["a", "b", "c", "d"].map(|name| format!("crates/x/src/{name}.rs")).join(", ");
    assert_eq!(found, [format!("crates/x/src/a.rs:0: 4 files need each other, at most 3 may: {files}")]);
}
