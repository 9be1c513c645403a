//! Names from images and from the host, as a terminal may show them: a name can hold any byte, and a terminal obeys some.

/// A line of bytes for a terminal: control characters as octal numbers, as `ls -b` shows them.
pub(crate) fn of_line(line: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(line.len());
    for byte in line {
        match byte {
            0..0x20 | 0x7F => plain.extend(format!("\\{byte:03o}").bytes()),
            other => plain.push(*other),
        }
    }
    plain
}

/// A message with paths in it: control characters but the ends of lines are escaped.
pub(crate) fn of_text(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => plain.push('\n'),
            control if control.is_control() => plain.extend(control.escape_default()),
            other => plain.push(other),
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
        assert_eq!(of_text("one\ntwo \u{1b}]0;x\u{7}\u{9b}"), "one\ntwo \\u{1b}]0;x\\u{7}\\u{9b}");
    }
}
