//! Rust text as a tidy check wants it: comments and literals blanked out, `use` trees spelt out.

/// The text with every comment, string and character literal replaced by spaces; lines stay in place.
pub fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = skipped(rest, out.chars().next_back());
        if length == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            out.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[length..];
        }
    }
    out
}

/// The same without the tests that stand at the end of a file.
pub fn product_code(text: &str) -> String {
    code_only(text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default())
}

/// Bytes of the comment or literal that `rest` starts with; 0 if it starts with code.
fn skipped(rest: &str, before: Option<char>) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    if rest.starts_with('"') {
        return quoted(rest, '"');
    }
    if rest.starts_with('r') && !before.is_some_and(|c| is_word(c) && c != 'b' && c != 'c') {
        return raw_string(rest);
    }
    let mut chars = rest.chars();
    match (chars.next(), chars.next(), chars.next()) {
        (Some('\''), Some('\\'), _) => quoted(rest, '\''),
        (Some('\''), Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 0,
    }
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let tail = &rest.as_bytes()[at..];
        if tail.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if tail.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

fn raw_string(rest: &str) -> usize {
    let hashes = rest[1..].bytes().take_while(|byte| *byte == b'#').count();
    if !rest[1 + hashes..].starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let body = 2 + hashes;
    rest[body..].find(&end).map_or(rest.len(), |at| body + at + end.len())
}

pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Byte offsets of `needle` in `text` where it is not part of a longer word.
pub fn whole_words<'a>(text: &'a str, needle: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(needle).map(|(at, _)| at).filter(move |at| {
        let before = text[..*at].chars().next_back();
        let after = text[at + needle.len()..].chars().next();
        let joins = |inner: Option<char>, outer: Option<char>| {
            inner.is_some_and(is_word) && outer.is_some_and(is_word)
        };
        !joins(needle.chars().next(), before) && !joins(needle.chars().next_back(), after)
    })
}

/// The line, counted from 1, of a byte offset.
pub fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// Every path that the `use` declarations of `code` import, spelt out, with its line.
pub fn imports(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for at in whole_words(code, "use") {
        let tail = &code[at + 3..];
        let tree = &tail[..tail.find(';').unwrap_or(tail.len())];
        if !tail.starts_with(char::is_whitespace) {
            continue;
        }
        let compact: String = tree.split_whitespace().collect::<Vec<_>>().join(" ").replace(", ", ",");
        let mut paths = Vec::new();
        spell_out("", &compact, &mut paths);
        found.extend(paths.into_iter().map(|path| (line_of(code, at), path)));
    }
    found
}

/// `std::{fmt, io::{self, Read}}` becomes `std::fmt`, `std::io`, `std::io::Read`.
fn spell_out(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let Some((head, body)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap_or(tree).trim();
        let path = format!("{prefix}{name}");
        paths.push(path.trim_end_matches("::self").replace(' ', ""));
        return;
    };
    let prefix = format!("{prefix}{}", head.trim());
    let body = body.trim().strip_suffix('}').unwrap_or(body);
    let (mut depth, mut start) = (0, 0);
    for (at, c) in body.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                spell_out(&prefix, body[start..at].trim(), paths);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !body[start..].trim().is_empty() {
        spell_out(&prefix, body[start..].trim(), paths);
    }
}

#[test]
fn comments_and_literals_are_blank() {
    let text = "let a = 'x'; // gone\nfn f<'l>(s: &'l str) { g(\"un\\\"safe\", r#\"raw \" \"#, '\\'') } /* a /* b */ c */ end";
    let code = code_only(text);
    assert_eq!(code.len(), text.len());
    assert_eq!(
        code.split_whitespace().collect::<Vec<_>>().join(" "),
        "let a = ; fn f<'l>(s: &'l str) { g( , , ) } end"
    );
}

#[test]
fn imports_are_spelt_out() {
    let paths: Vec<String> = imports("pub use std::{fmt, io::{self, Read as R},\n thread};\nuse a::b;\n")
        .into_iter()
        .map(|(_, path)| path)
        .collect();
    assert_eq!(paths, ["std::fmt", "std::io", "std::io::Read", "std::thread", "a::b"]);
}

#[test]
fn words_are_whole() {
    assert_eq!(
        whole_words("rand::rngs rand::rng strand::rng rand::rng()", "rand::rng").collect::<Vec<_>>(),
        [11, 33]
    );
}
