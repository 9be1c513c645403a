//! Sentences that fit a terminal.

use textwrap::{Options, WordSplitter, fill};

/// Columns of a line of text, at most: longer lines are hard to read.
const TEXT_COLUMNS: usize = 100;

/// Columns of the terminal; 80 where there is none.
pub(crate) fn width() -> usize {
    textwrap::termwidth()
}

/// Paragraphs, each of which is a line of `text`, broken where the terminal ends.
pub(crate) fn paragraphs(text: &str) -> String {
    broken(text, width().min(TEXT_COLUMNS))
}

fn broken(text: &str, columns: usize) -> String {
    let options = Options::new(columns).subsequent_indent("  ").word_splitter(WordSplitter::NoHyphenation);
    let lines = text.lines().map(|line| fill(line, &options));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_and_those_that_follow_are_indented() {
        let text = broken("flushes: calls that made data durable\n\nshort", 20);
        assert_eq!(text, "flushes: calls that\n  made data durable\n\nshort");
    }
}
