//! Tables in the notes of figures, made of what was recorded: between two comments in `figures/NAME/README.md` stands each number
//! of the paper (`paper.toml`) beside what came out (`ours.json`), and whether the bars are in the paper's order. After a new
//! record `cargo test -p weir-cli --test cli write_figures -- --ignored` writes the tables anew.

use std::fmt::Write as _;

use weir_figures::{FigureError, Record, Summary, SummaryRow};

use super::tree::{File, Finding, Tree};

const BEGIN: &str = "<!-- rows: begin -->\n";
const END: &str = "<!-- rows: end -->\n";

/// Whether a line is one of the two comments that a table stands between.
pub(crate) fn is_end_of_table(line: &str) -> bool {
    [BEGIN, END].map(str::trim_end).contains(&line)
}

/// The head of a table: it says which program writes the table.
const HEAD: &str = "\
Written by `cargo test -p weir-cli --test cli write_figures -- --ignored` of `ours.json` and `paper.toml`.

| device | series | unit | paper | ours | residual | what ours is |
|---|---|---|---|---|---|---|
";

/// The numbers of the paper beside what was recorded, and how its order of bars stands.
fn table(record: Record) -> String {
    let summary = Summary::from_records(&[record]);
    let mut table = HEAD.to_owned();
    for summarised in &summary.rows {
        let SummaryRow { row, .. } = summarised;
        let (paper, ours, residual) = (row.paper_text(), row.ours_text(), row.residual_text());
        let _ = writeln!(
            table,
            "| `{}` | {} | {} | {paper} | {ours} | {residual} | {} |",
            row.device,
            row.series,
            row.unit,
            summarised.text()
        );
    }
    for (at, bars) in summary.bars.iter().enumerate() {
        let _ = writeln!(table, "{}- {bars}.", if at == 0 { "\n" } else { "" });
    }
    table
}

/// The figure that these are the notes of.
fn figure_of(notes: File<'_>) -> Option<&str> {
    notes.path.strip_prefix("figures/")?.strip_suffix("/README.md")
}

/// The notes of a figure with the table as it should be; none of notes without a place for it.
fn with_table(tree: &Tree, notes: File<'_>) -> Option<Result<String, FigureError>> {
    let name = figure_of(notes)?;
    let (before, rest) = notes.text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    let text = |file: &str| tree.file(&format!("figures/{name}/{file}")).map_or("", |file| file.text);
    let record = Record::parse(name, text("ours.json"), text("paper.toml"));
    Some(record.map(|record| format!("{before}{BEGIN}{}{END}{after}", table(record))))
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    let check = |notes: File<'_>| {
        let name = figure_of(notes)?;
        let what = match with_table(tree, notes) {
            Some(Ok(text)) if text == notes.text => return None,
            Some(Ok(_)) => {
                "differs from what was recorded: cargo test -p weir-cli --test cli write_figures -- --ignored"
                    .to_owned()
            }
            Some(Err(error)) => error.to_string(),
            None if tree.file(&format!("figures/{name}/paper.toml")).is_none() => return None,
            None => format!("no place for the table of the paper's numbers: {BEGIN}"),
        };
        Some(Finding::new(notes.path, 0, what))
    };
    tree.files().filter_map(check).collect()
}

#[test]
#[ignore = "writes the tables of figures' notes, and checks nothing"]
fn write_figures() {
    let tree = Tree::load();
    for notes in tree.files() {
        if let Some(text) = with_table(&tree, notes) {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(notes.path);
            std::fs::write(path, text.unwrap()).unwrap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: &str = r#"
[[row]]
device = "drive"
series = "B"
value = 90
kind = "measured"
source = "made up"

[[explained]]
device = "drive"
series = "B"
by = "B, what if"
assumes = "another page"

[[order]]
device = "drive"
series = ["B, what if", "B"]
source = "made up"
"#;

    const OURS: &str = r#"[
{"figure": "f", "device": "drive", "series": "B", "paper": 90.0, "ours": 120.0, "error": 0.33, "residual": 0.33,
 "ours_kind": "predicted", "paper_kind": "measured", "unit": "% of P"},
{"figure": "f", "device": "drive", "series": "B, what if", "paper": null, "ours": 91.0, "error": null, "residual": null,
 "ours_kind": "predicted", "paper_kind": null, "unit": "% of P"}
]"#;

    const TABLE: &str = "\
| `drive` | B | % of P | 90.0 | 120 | +33 % | predicted; explained by \"B, what if\": another page |

- The paper's order of bars is \"B, what if\" < \"B\": kept.
";

    #[test]
    fn a_stale_table_is_found_and_written_anew() {
        let tree = |ours: &str, table: &str| {
            let notes = format!("# F\n\n{BEGIN}{HEAD}{table}{END}\nMore.\n");
            Tree::of(&[
                ("figures/f/README.md", notes.as_str()),
                ("figures/f/paper.toml", PAPER),
                ("figures/f/ours.json", ours),
                ("figures/g/README.md", "No table."),
            ])
        };
        let fresh = tree(OURS, TABLE);
        assert_eq!(check(&fresh), []);
        let stale = tree(OURS, &TABLE.replace("120", "121"));
        assert_eq!(check(&stale).len(), 1);
        let file = |tree: &Tree| tree.file("figures/f/README.md").unwrap().text.to_owned();
        let written = with_table(&stale, stale.file("figures/f/README.md").unwrap());
        assert_eq!(written.unwrap().unwrap(), file(&fresh));
        // What was recorded moves, and the table does not.
        assert_eq!(check(&tree(&OURS.replace("91.0", "131.0"), TABLE)).len(), 1);
        // No record at all.
        assert_eq!(check(&tree("", TABLE)).len(), 1);
        let without_place = Tree::of(&[("figures/f/README.md", "# F\n"), ("figures/f/paper.toml", PAPER)]);
        assert_eq!(check(&without_place).len(), 1);
    }
}
