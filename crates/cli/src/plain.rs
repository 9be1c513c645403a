//! Text for a terminal and for a shell. A name from an image or from the host can hold any byte, and a terminal obeys some.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use weir_crash::is_visible;
pub(crate) use weir_program::counted;

/// A line of bytes for a terminal: what is not visible, and what is no text, as octal numbers, as `ls -b` shows them.
pub(crate) fn of_line(line: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(line.len());
    let octal = |byte: &u8| format!("\\{byte:03o}").into_bytes();
    for chunk in line.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut bytes = [0; 4];
            let bytes = character.encode_utf8(&mut bytes).as_bytes();
            match is_visible(character) {
                true => plain.extend(bytes),
                false => plain.extend(bytes.iter().flat_map(octal)),
            }
        }
        plain.extend(chunk.invalid().iter().flat_map(octal));
    }
    plain
}

/// A path, as [`of_line`] has it.
pub(crate) fn of_path(path: &Path) -> String {
    String::from_utf8_lossy(&of_line(path.as_os_str().as_bytes())).into_owned()
}

/// A path as a word of a shell's command: in quotes if it needs them.
pub(crate) fn word(path: &Path) -> String {
    let shown = of_path(path);
    let is_word = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    match shown.chars().all(is_word) {
        true => shown,
        false => format!("'{}'", shown.replace('\'', r"'\''")),
    }
}

/// A message with paths in it: what is not visible, but the ends of lines, is escaped.
pub(crate) fn of_text(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => plain.push('\n'),
            visible if is_visible(visible) => plain.push(visible),
            other => plain.extend(other.escape_default()),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_not_given_what_it_obeys() {
        assert_eq!(of_line(b"a\x1b[31m\nb\x7f \xc3\xa4"), b"a\\033[31m\\012b\\177 \xc3\xa4");
        assert_eq!(of_line(b"\xc2\x9b2J \x9b \xff"), b"\\302\\2332J \\233 \\377");
        assert_eq!(of_line("a\u{202e}b".as_bytes()), b"a\\342\\200\\256b");
        assert_eq!(of_text("one\ntwo \u{1b}]0;x\u{7}\u{9b}"), "one\ntwo \\u{1b}]0;x\\u{7}\\u{9b}");
    }

    #[test]
    fn a_path_is_one_word_of_a_command() {
        for (path, expected) in
            [("./a-1.txt", "./a-1.txt"), ("a b", "'a b'"), ("a'b", r"'a'\''b'"), ("$a", "'$a'")]
        {
            assert_eq!(word(Path::new(path)), expected);
        }
    }
}
