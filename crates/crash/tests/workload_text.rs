//! Workloads as text: what is no workload is refused with its line, whatever its bytes, and nothing that a terminal obeys
//! comes back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use weir_crash::{Mistake, ParseError, PathError, Workload};

/// Rounds with random bytes, and with changes to workloads.
const ROUNDS: u64 = 6_000;

/// Every operation.
const GOOD: &str = "\
# All of them.
mkdir /A
create /A/foo # a comment
link /A/foo /bar
rename /A/foo /\u{e4}\u{1f980}
symlink ../over/there /s
write /A/foo 0 4K
append /A/foo 100
falloc /A/foo 4K 8K
falloc /A/foo 0 1M zero-keep-size
truncate /A/foo 0
setxattr /A 16
removexattr /A
unlink /bar
rmdir /A
fsync /
fdatasync /A/foo
fbarrier /A/foo
fdatabarrier /A/foo
sync
";

/// As the program reads a file.
fn parse(bytes: &[u8]) -> Result<Workload, ParseError> {
    String::from_utf8_lossy(bytes).parse()
}

#[test]
fn bad_names_are_refused_with_line_and_cause() {
    let long = format!("create /{}", "x".repeat(256));
    let long_umlauts = format!("create /A/{}", "\u{e4}".repeat(128));
    let deep = format!("create {}", "/a".repeat(17));
    let wide = format!("create {}", format!("/{}", "y".repeat(250)).repeat(5));
    let table: [(&[u8], PathError); 31] = [
        (b"create a", PathError::NotFromRoot),
        (b"create a/", PathError::NotFromRoot),
        (b"create ./a", PathError::NotFromRoot),
        (b"create ..", PathError::NotFromRoot),
        (b"create //", PathError::EmptyName),
        (b"create //a", PathError::EmptyName),
        (b"create /a/", PathError::EmptyName),
        (b"create /a//b", PathError::EmptyName),
        (b"create /", PathError::Root),
        (b"mkdir /", PathError::Root),
        (b"rename /a /", PathError::Root),
        (b"rename / /a", PathError::Root),
        (b"rmdir /", PathError::Root),
        (b"symlink x /", PathError::Root),
        (b"create /.", PathError::Reserved),
        (b"create /..", PathError::Reserved),
        (b"create /a/../b", PathError::Reserved),
        (b"create /a/./b", PathError::Reserved),
        (b"mkdir /lost+found", PathError::Reserved),
        (b"create /a\0", PathError::Character),
        (b"create /\0", PathError::Character),
        (b"create /a\x1b[31mb", PathError::Character),
        (b"create /a\x07", PathError::Character),
        (b"write /a\x7f 0 1", PathError::Character),
        (b"fsync /a\xc2\x9b2J", PathError::Character),
        (b"create /\xff\xfe", PathError::Character),
        ("create /a\u{202e}b".as_bytes(), PathError::Character),
        (b"symlink a\x1bc /s", PathError::Character),
        (long.as_bytes(), PathError::LongName),
        (long_umlauts.as_bytes(), PathError::LongName),
        (deep.as_bytes(), PathError::TooLong),
    ];
    let too_long = [(wide.as_bytes(), PathError::TooLong)];
    for (line, expected) in table.into_iter().chain(too_long) {
        let text = [b"sync\n\n# not this one\n", line, b"\nsync\n"].concat();
        let refused = parse(&text).unwrap_err();
        let shown = String::from_utf8_lossy(line);
        let Mistake::Path { why, .. } = &refused.what else { panic!("{shown}: {refused:?}") };
        assert_eq!((refused.line, *why), (4, expected), "{shown}");
        let told = refused.to_string();
        assert!(told.starts_with("line 4: ") && is_shown_as_it_is(&told), "{told:?}");
    }
    // As long, as deep and as strange as names may be.
    for line in [
        format!("create /{}", "x".repeat(255)),
        format!("create {}", "/a".repeat(16)),
        "create /...".to_owned(),
        "create /-\\$(x)'\"".to_owned(),
        "create /\u{200b}\u{1f980}".to_owned(),
    ] {
        assert_eq!(parse(line.as_bytes()).unwrap().to_string(), format!("{line}\n"));
    }
}

fn is_shown_as_it_is(text: &str) -> bool {
    !text.contains(char::is_control)
}

/// Numbers of a stream that a seed determines (splitmix64).
struct Stream(u64);

impl Stream {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(mixed ^ (mixed >> 31)) * bound as u128) >> 64) as usize
    }

    fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }

    /// Bytes of chance, or of the characters that workloads are made of.
    fn bytes(&mut self) -> Vec<u8> {
        let known = b" \t\r\n#/.0149KMaefrsyncwite\x00\x1b\xc3\xa4";
        let any = self.below(2) == 0;
        (0..self.below(200)).map(|_| if any { self.byte() } else { known[self.below(known.len())] }).collect()
    }

    /// A workload with some bytes changed, removed, put in, or lines exchanged.
    fn changed(&mut self) -> Vec<u8> {
        let mut bytes = GOOD.as_bytes().to_vec();
        for _ in 0..1 + self.below(4) {
            let (at, other) = (self.below(bytes.len()), self.below(bytes.len()));
            match self.below(6) {
                0 => bytes[at] = self.byte(),
                1 => bytes[at] ^= 1 << self.below(8),
                2 => drop(bytes.drain(at.min(other)..at.max(other).min(at.min(other) + 20))),
                3 => bytes.insert(at, self.byte()),
                4 => bytes.swap(at, other),
                _ => bytes.extend_from_within(at.min(other)..at.max(other)),
            }
            bytes.push(b'\n');
        }
        bytes
    }
}

/// Every text is read and says itself, or is refused with a line that it has; in neither way control characters come back.
#[test]
fn any_bytes_are_a_workload_or_are_refused() {
    let (mut stream, mut read, mut refused) = (Stream(20_261_123), 0, 0);
    for round in 0..ROUNDS {
        let bytes = if round.is_multiple_of(2) { stream.bytes() } else { stream.changed() };
        match parse(&bytes) {
            Ok(workload) => {
                let said = workload.to_string();
                assert_eq!(said.parse(), Ok(workload), "{said:?}");
                assert!(said.lines().all(is_shown_as_it_is), "{said:?}");
                read += 1;
            }
            Err(mistake) => {
                let lines = String::from_utf8_lossy(&bytes).lines().count();
                assert!((1..=lines).contains(&mistake.line), "{mistake} of {lines} lines");
                let told = mistake.to_string();
                assert!(is_shown_as_it_is(&told) && told.len() < 400, "{told:?}");
                refused += 1;
            }
        }
    }
    assert!(read > ROUNDS / 50 && refused > ROUNDS / 4, "{read} read, {refused} refused");
}
