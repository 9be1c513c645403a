//! Names from images and from the host, as a terminal may show them: a name can hold any byte, and a terminal obeys some.

/// A line of bytes for a terminal: control characters, and what is no text, as octal numbers, as `ls -b` shows them.
pub(crate) fn of_line(line: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(line.len());
    let octal = |byte: &u8| format!("\\{byte:03o}").into_bytes();
    for chunk in line.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut bytes = [0; 4];
            let bytes = character.encode_utf8(&mut bytes).as_bytes();
            match character.is_control() {
                true => plain.extend(bytes.iter().flat_map(octal)),
                false => plain.extend(bytes),
            }
        }
        plain.extend(chunk.invalid().iter().flat_map(octal));
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
        assert_eq!(of_line(b"\xc2\x9b2J \x9b \xff"), b"\\302\\2332J \\233 \\377");
        assert_eq!(of_text("one\ntwo \u{1b}]0;x\u{7}\u{9b}"), "one\ntwo \\u{1b}]0;x\\u{7}\\u{9b}");
    }
}
