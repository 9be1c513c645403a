//! A table that fits a terminal: columns are left out, the least important first, and then words are broken into lines.

use std::io::IsTerminal as _;

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

use super::text::{paragraphs, width};

/// No lines but the one below the heads.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// A column's head; its rank: columns of rank 0 are always there, and of the others, the one with the highest rank is
/// left out first; and what it holds, where the head does not say it, as the beginning of a paragraph.
pub(crate) type Head = (&'static str, u8, &'static str);

/// Heads and rows.
pub(crate) struct Grid {
    heads: Vec<Head>,
    rows: Vec<Vec<String>>,
    /// Columns of words, from the left; those of figures follow.
    words: usize,
}

impl Grid {
    /// A table without rows, whose first column holds words.
    pub(crate) fn new(heads: &[Head]) -> Grid {
        Grid { heads: heads.to_vec(), rows: Vec::new(), words: 1 }
    }

    /// The first `words` columns hold words.
    pub(crate) fn words(self, words: usize) -> Grid {
        Grid { words, ..self }
    }

    /// Adds a row, with a cell for each head.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as wide as the terminal at most; what its columns hold, and which of them were left out.
    pub(crate) fn text(&self) -> String {
        self.fitted(width())
    }

    /// The same, but where standard output is no terminal every cell is whole and in one line.
    pub(crate) fn whole_text(&self) -> String {
        self.fitted(if std::io::stdout().is_terminal() { width() } else { usize::MAX })
    }

    fn fitted(&self, width: usize) -> String {
        let mut shown: Vec<usize> = (0..self.heads.len()).collect();
        loop {
            let text = self.drawn(&shown, None);
            let is_wide = text.lines().any(|line| line.chars().count() > width);
            let last = shown.iter().copied().max_by_key(|column| (self.heads[*column].1, *column));
            match last.filter(|column| is_wide && self.heads[*column].1 > 0) {
                Some(column) => shown.retain(|other| *other != column),
                None => {
                    let text = if is_wide { self.drawn(&shown, Some(width)) } else { text };
                    return text + &self.meanings(&shown) + &self.missing(&shown);
                }
            }
        }
    }

    /// The table, its cells broken into lines if it is to have so many columns of text at most.
    fn drawn(&self, shown: &[usize], width: Option<usize>) -> String {
        let mut table = Table::new();
        table.load_style(STYLE);
        if let Some(width) = width {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
        }
        table.set_header(shown.iter().map(|column| Cell::new(self.heads[*column].0)));
        for row in &self.rows {
            table.add_row(shown.iter().map(|column| row.get(*column).map_or("", String::as_str)));
        }
        for (column, index) in table.column_iter_mut().zip(shown) {
            if *index >= self.words {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.trim_fmt()
    }

    fn meanings(&self, shown: &[usize]) -> String {
        let meanings = shown.iter().map(|column| self.heads[*column].2).filter(|meaning| !meaning.is_empty());
        meanings.map(|meaning| "\n".to_owned() + &paragraphs(meaning)).collect()
    }

    fn missing(&self, shown: &[usize]) -> String {
        let gone = (0..self.heads.len()).filter(|column| !shown.contains(column));
        let names: Vec<&str> = gone.map(|column| self.heads[column].0).collect();
        if names.is_empty() {
            return String::new();
        }
        let told = format!("Columns left out, widen the terminal to see them: {}.", names.join(", "));
        "\n".to_owned() + &paragraphs(&told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let mut grid = Grid::new(&[
            ("mode", 0, ""),
            ("rate", 0, ""),
            ("depth", 2, "depth: on average."),
            ("flushes", 1, ""),
        ]);
        grid.row(["raw", "10.5 K", "32", "7"].map(str::to_owned).to_vec());
        grid
    }

    #[test]
    fn columns_give_way_the_least_important_first() {
        let fitted = |width| grid().fitted(width).replace('\n', " ");
        let (wide, less, least) = (fitted(80), fitted(25), fitted(18));
        assert!(wide.contains("depth: on average.") && !wide.contains("left out"), "{wide}");
        assert!(less.contains("flushes") && less.contains("see them: depth."), "{less}");
        assert!(
            least.contains("10.5 K")
                && least.contains("see them: depth, flushes.")
                && !least.contains("average"),
            "{least}"
        );
    }

    #[test]
    fn words_are_broken_where_columns_do_not_do() {
        let mut grid = Grid::new(&[("mode", 0, ""), ("rate", 0, "")]);
        grid.row(["a title of several words".to_owned(), "10.5 K".to_owned()].to_vec());
        let text = grid.fitted(26);
        assert!(text.lines().all(|line| line.chars().count() <= 26), "{text}");
        assert!(text.contains("10.5 K") && text.contains("words"), "{text}");
    }

    #[test]
    fn figures_stand_to_the_right() {
        let text = grid().fitted(80);
        let ends: Vec<Option<usize>> = text
            .lines()
            .filter(|line| line.contains("rate") || line.contains("10.5 K"))
            .map(|line| line.find("rate").or(line.find("10.5 K")))
            .collect();
        assert_eq!(ends.len(), 2, "{text}");
        assert_eq!(ends[0].map(|at| at + 4), ends[1].map(|at| at + 6), "{text}");
    }
}
