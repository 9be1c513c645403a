//! The rule tables of docs/RULES.md: every numbered rule has a row, and the row names at least one
//! mutant that exists and at least one test that exists, and every mutant has a row. A rule without a killing
//! mutant is not implemented.

use super::code::whole_words;
use super::mutants::{mutants, test_code};
use super::tree::{Finding, Tree};

const DOCUMENT: &str = "docs/RULES.md";

/// The families of rules, with how many each has.
const FAMILIES: [(char, u32); 6] = [('S', 7), ('E', 7), ('J', 8), ('V', 6), ('F', 6), ('I', 3)];

/// One row `| **S1** | rule | kept by | mutants | tests |`.
struct Row {
    line: usize,
    rule: String,
    mutants: Vec<String>,
    tests: Vec<String>,
}

fn rows(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let ["", rule, _, _, mutants, tests, ""] = cells[..]
            && rule.starts_with("**")
        {
            let rule = rule.trim_matches('*').to_owned();
            rows.push(Row { line: at + 1, rule, mutants: quoted(mutants), tests: quoted(tests) });
        }
    }
    rows
}

/// The words in backticks.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    let rows = rows(tree.file(DOCUMENT).map_or("", |file| file.text));
    let rules = FAMILIES.iter().flat_map(|(family, count)| (1..=*count).map(move |n| format!("{family}{n}")));
    let mut findings: Vec<Finding> = rules
        .filter(|rule| !rows.iter().any(|row| row.rule == *rule))
        .map(|rule| Finding::new(DOCUMENT, 0, format!("rule {rule} has no row")))
        .collect();
    let known: Vec<String> = mutants(tree).into_iter().map(|mutant| mutant.name).collect();
    let unlisted = known.iter().filter(|name| !rows.iter().any(|row| row.mutants.contains(name)));
    findings.extend(unlisted.map(|name| Finding::new(DOCUMENT, 0, format!("mutant `{name}` has no row"))));
    let tests = test_code(tree);
    for row in &rows {
        let mut report =
            |what: String| findings.push(Finding::new(DOCUMENT, row.line, format!("{}: {what}", row.rule)));
        if row.mutants.is_empty() || row.tests.is_empty() {
            report("a rule without a killing mutant is not implemented".to_owned());
        }
        for mutant in row.mutants.iter().filter(|mutant| !known.contains(mutant)) {
            report(format!("there is no mutant `{mutant}`"));
        }
        for test in
            row.tests.iter().filter(|test| whole_words(&tests, &format!("fn {test}")).next().is_none())
        {
            report(format!("there is no test `{test}`"));
        }
    }
    findings
}

#[test]
fn rows_without_a_mutant_or_a_test_are_found() {
    let document = "| **S1** | order | [a](a) | `DemoMutant::Real` | `kills_real` |\n\
                    | **S2** | flush | [a](a) | `DemoMutant::Gone` | `kills_gone` |\n\
                    | **S3** | epochs | [a](a) | | `kills_real` |\n";
    let tree = Tree::of(&[
        (DOCUMENT, document),
        ("crates/demo/src/mutants.rs", "enum DemoMutant { Real, Unlisted }"),
        ("crates/demo/tests/a.rs", "fn kills_real() {}"),
    ]);
    let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    let missing = found.iter().filter(|finding| finding.contains(": rule ")).count();
    assert_eq!(missing, 37 - 3);
    assert_eq!(
        found[missing..],
        [
            "docs/RULES.md:0: mutant `DemoMutant::Unlisted` has no row",
            "docs/RULES.md:2: S2: there is no mutant `DemoMutant::Gone`",
            "docs/RULES.md:2: S2: there is no test `kills_gone`",
            "docs/RULES.md:3: S3: a rule without a killing mutant is not implemented",
        ]
    );
}
