//! Tidy: the rules of the house that a compiler does not check, checked on the source text.
//!
//! Each file holds one kind of rule. A rule is a function over text, so each file also holds its
//! negative control: a made-up text that breaks the rule and must be found out. This file runs all
//! rules over the repository.

mod absence;
mod circles;
mod code;
mod dependencies;
mod events;
pub(crate) mod figures;
mod formats;
mod impls;
mod layers;
mod links;
mod map;
mod modules;
mod mutants;
mod programs;
mod rules;
mod tree;
mod words;

use tree::{Finding, Tree};

/// Fails with every finding on its own line.
fn expect_none(findings: &[Finding]) {
    let list: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "{} finding(s):\n{}", list.len(), list.join("\n"));
}

#[test]
fn tree_is_not_empty() {
    let tree = Tree::load();
    for path in [
        "README.md",
        "ARCHITECTURE.md",
        "docs/RULES.md",
        "Cargo.toml",
        "crates/runtime/src/lib.rs",
        ".ci/run",
    ] {
        assert!(tree.file(path).is_some(), "{path} was not read: the other checks would look at nothing");
    }
}

#[test]
fn crates_use_only_lower_floors() {
    expect_none(&layers::check(&Tree::load()));
}

#[test]
fn parts_without_a_format_know_none() {
    expect_none(&formats::check(&Tree::load()));
}

#[test]
fn imports_go_in_no_large_circle() {
    expect_none(&circles::check(&Tree::load()));
}

#[test]
fn methods_of_a_type_are_in_few_files() {
    expect_none(&impls::check(&Tree::load()));
}

#[test]
fn dependencies_are_explained_and_used() {
    expect_none(&dependencies::check(&Tree::load()));
}

#[test]
fn files_are_short_and_words_are_clean() {
    let tree = Tree::load();
    expect_none(&tree.files().flat_map(words::check).collect::<Vec<_>>());
}

#[test]
fn links_in_documents_lead_somewhere() {
    expect_none(&links::check(&Tree::load()));
}

#[test]
fn every_file_says_what_it_is_for() {
    expect_none(&map::check(&Tree::load()));
}

#[test]
#[ignore = "prints the code map, and checks nothing"]
#[expect(clippy::print_stdout, reason = "the map is for people")]
fn code_map() {
    print!("{}", map::map(&Tree::load()));
}

#[test]
fn unsafe_code_and_exceptions_are_where_they_may_be() {
    expect_none(&absence::check(&Tree::load()));
}

#[test]
fn every_mutant_is_named_in_a_test() {
    expect_none(&mutants::check(&Tree::load()));
}

#[test]
fn every_rule_has_its_mutants_and_tests_and_the_page_says_so() {
    expect_none(&rules::check(&Tree::load()));
}

#[test]
fn every_test_is_in_a_program_and_commands_name_programs() {
    expect_none(&programs::check(&Tree::load()));
}

#[test]
fn every_event_of_a_log_has_a_name_and_the_page_lists_it() {
    expect_none(&events::check(&Tree::load()));
}

#[test]
fn tables_in_notes_of_figures_are_what_was_recorded() {
    expect_none(&figures::check(&Tree::load()));
}
