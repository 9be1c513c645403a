//! Name hashes, against debugfs as the judge.

use crate::judge;
use weir_ext4::{HashVersion, NameHash, NameHasher};

/// What `debugfs` prints: `Hash of NAME is 0xMAJOR (minor 0xMINOR)`, for every name in order.
fn debugfs_hashes(version: u8, seed: Option<&str>, names: &[Vec<u8>]) -> Option<Vec<NameHash>> {
    let seed = seed.map_or(String::new(), |seed| format!("-s {seed} "));
    let mut script = Vec::new();
    for name in names {
        script.extend_from_slice(format!("dx_hash -h {version} {seed}\"").as_bytes());
        script.extend_from_slice(name);
        script.extend_from_slice(b"\"\n");
    }
    let output = judge::debugfs_script(None, &script)?;
    let number = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).expect("a number");
    let lines = output.lines().filter(|line| line.starts_with("Hash of"));
    let hashes = lines.map(|line| {
        let (major, minor) = line.rsplit_once(" (minor ").expect("two hashes");
        let major = number(major.rsplit(' ').next().expect("a word"));
        NameHash { major, minor: number(minor.trim_end_matches(')')) }
    });
    Some(hashes.collect())
}

/// Names of many lengths (a line of debugfs has 255 bytes), with bytes on both sides of 128, without what
/// debugfs would parse.
fn names() -> Vec<Vec<u8>> {
    let byte = |length: usize, at: usize| b'0' + ((length * 31 + at * 17 + at * at) % 40) as u8;
    let plain = (1..=190).map(|length| (0..length).map(|at| byte(length, at)).collect());
    let high = (1..=190).step_by(7).map(|length| (0..length).map(|at| byte(length, at) | 0x80).collect());
    plain.chain(high).collect()
}

#[test]
fn every_version_agrees_with_debugfs() {
    let versions = [
        (0, HashVersion::Legacy),
        (1, HashVersion::HalfMd4),
        (2, HashVersion::Tea),
        (3, HashVersion::LegacyUnsigned),
        (4, HashVersion::HalfMd4Unsigned),
        (5, HashVersion::TeaUnsigned),
    ];
    let seeds = [
        (None, [0; 4]),
        (Some("00112233-4455-6677-8899-aabbccddeeff"), [0x3322_1100, 0x7766_5544, 0xbbaa_9988, 0xffee_ddcc]),
    ];
    let names = names();
    for (number, version) in versions {
        for (text, seed) in seeds {
            let Some(judged) = debugfs_hashes(number, text, &names) else { return };
            let hasher = NameHasher { version, seed };
            assert_eq!(judged.len(), names.len(), "debugfs hashed every name");
            for (name, judged) in names.iter().zip(judged) {
                let name_text = String::from_utf8_lossy(name);
                assert_eq!(hasher.hash(name), judged, "{version:?} with seed {seed:x?} of {name_text}");
            }
        }
    }
}

#[test]
fn characters_of_128_and_above_have_a_sign() {
    let hash = |version, name: &[u8]| NameHasher { version, seed: [0; 4] }.hash(name);
    let pairs = [
        (HashVersion::Legacy, HashVersion::LegacyUnsigned),
        (HashVersion::HalfMd4, HashVersion::HalfMd4Unsigned),
        (HashVersion::Tea, HashVersion::TeaUnsigned),
    ];
    for (signed, unsigned) in pairs {
        assert_eq!(hash(signed, b"plain"), hash(unsigned, b"plain"));
        assert_ne!(hash(signed, b"\xc3\xa9"), hash(unsigned, b"\xc3\xa9"));
    }
}

#[test]
fn numbers_on_the_disk_are_the_subset() {
    for number in 0..=2 {
        let signed = HashVersion::from_disk(number, false).expect("in the subset");
        let unsigned = HashVersion::from_disk(number, true).expect("in the subset");
        assert_ne!(signed, unsigned);
        assert_eq!((signed.to_disk(), unsigned.to_disk()), (number, number));
        assert_eq!(HashVersion::from_disk(number + 3, false), Ok(unsigned));
    }
    assert!(HashVersion::from_disk(6, false).is_err(), "the keyed hash");
}
