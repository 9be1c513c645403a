//! Profiles: those that come with Weir are possible and whole, and what is wrong with another is said.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::rc::Rc;

use weir_flash::{Changes, FlashDevice, FlashOptions, Kind, Mechanism, Nand, Profile, ProfileError};
use weir_runtime::{Runtime, Simulation};
use weir_storage::{CONFORMANCE_SHARE_MIN, CONFORMANCE_TRANSFER_MIN, Expectations, Storage, conformance};

fn text() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/profiles/sata-ssd.toml")).unwrap()
}

/// The message for the profile of a SATA drive with `from` replaced.
fn refused(from: &str, to: &str) -> String {
    let text = text();
    assert!(text.contains(from), "{from}");
    Profile::parse(&text.replacen(from, to, 1)).unwrap_err().to_string()
}

fn conforms(profile: &Profile) {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let make = async || FlashDevice::new(&handle, profile, FlashOptions::default()) as Rc<dyn Storage>;
    let report = runtime.block_on(conformance(&handle, Expectations::default(), make));
    assert!(matches!(report, Ok(Ok(_))), "{profile:?}: {report:?}");
}

#[test]
fn every_profile_is_possible_and_conforms_on_any_mechanism() {
    for name in Profile::NAMES {
        let (profile, parameters) = Profile::load(name).unwrap();
        assert_eq!(profile.name, name);
        assert!(parameters.iter().all(|parameter| !parameter.source.is_empty()));
        assert!(parameters.iter().any(|parameter| parameter.kind == Kind::Sourced));
        for mechanism in Mechanism::ALL {
            let small = profile.with_capacity(4096).with_mechanism(mechanism);
            assert_eq!(small.check(), Ok(()), "{name}");
            assert_eq!(small.blocks, 4096);
            conforms(&small);
        }
    }
}

#[test]
fn what_is_wrong_is_named() {
    assert!(refused("queue_depth", "queue_depht").contains("queue_depht"));
    let unit = refused("\"14 us\"", "\"14 KiB\"");
    assert!(unit.contains("host.command") && unit.contains("ns, us, ms, s"), "{unit}");
    let kind = refused("kind = \"fitted\"", "kind = \"guessed\"");
    assert!(kind.contains("guessed") && kind.contains("line"), "{kind}");
    assert!(refused("value = 32,", "value = 0,").contains("host.queue_depth"));
    assert!(refused("\"8 KiB\"", "\"5 KiB\"").contains("multiple of 4 KiB"));
    let capacity = refused("\"238 GiB\"", "\"300 GiB\"");
    assert!(capacity.contains("blocks_per_plane"), "{capacity}");
    assert!(refused("value = 256,", "value = 25600,").contains("places of 4 KiB on flash"));
    assert!(refused("\"in-order-recovery\"", "\"magic\"").contains("in-order-writeback"));
    let unsourced = refused(", source = \"FAST 2018 paper, section 6: QD 32\"", "");
    assert!(unsourced.contains("source"), "{unsourced}");
    let bare = refused(
        "queue_depth = { value = 32, kind = \"sourced\", source = \"FAST 2018 paper, section 6: QD 32\" }",
        "queue_depth = 16",
    );
    assert!(bare.contains("`host.queue_depth` is 16") && bare.contains("{ value = 16, kind"), "{bare}");
    let nameless = refused("name = \"sata-ssd\"", "");
    assert!(nameless.contains("no `name`"), "{nameless}");
    let time = refused("\"14 us\"", "\"14.5 s\"");
    assert!(time.contains("`host.command` is 14.5 s; it must be from 0 ns to 1 s"), "{time}");
    let rate = refused("\"550 MB/s\"", "\"0.5 MB/s\"");
    assert!(rate.contains("`host.link` is 0.5 MB/s; it must be from 1 MB/s to 1000 GB/s"), "{rate}");
    let size = refused("\"32 MiB\", kind = \"assumed\"", "\"1 KiB\", kind = \"assumed\"");
    assert!(size.contains("`cache.size` is \"1 KiB\"") && size.contains("within its range"), "{size}");
    for share in ["0.9", "1.9"] {
        let share = refused("value = 0.0625,", &format!("value = {share},"));
        assert!(share.contains("ftl.checkpoint_share") && share.contains("0.01 to 0.25"), "{share}");
    }
    let key = refused("destage_share", "share");
    assert!(key.contains("cache.share") && key.contains("cache.destage_share"), "{key}");
    let range = refused("range = [2, 8]", "range = [5, 8]");
    assert!(range.contains("nand.ways") && range.contains("5 to 8"), "{range}");
    let unit = refused("range = [\"8 MiB\",", "range = [\"8 ms\",");
    assert!(unit.contains("cache.size, range") && unit.contains("KiB"), "{unit}");
    let ranged = refused("kind = \"assumed\"", "kind = \"sourced\"");
    assert!(ranged.contains("host.simple_service") && ranged.contains("has a range"), "{ranged}");
    let unknown = Profile::builtin("floppy").unwrap_err();
    assert!(matches!(&unknown, ProfileError::Unknown { known, .. } if known.contains("ufs20")));
    assert!(matches!(Profile::load("/nowhere/my.toml"), Err(ProfileError::File { .. })));
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let error = Profile::load(manifest).unwrap_err().to_string();
    assert!(
        error.starts_with(manifest) && error.contains(": line ") && error.contains("unknown field"),
        "{error}"
    );
}

/// What decides how much memory the firmware takes is bounded, and the error names it.
/// A run may assume another value of a key: it is read as the profile's own would be, and counts as assumed.
#[test]
fn a_profile_is_read_with_other_values() {
    let changes = |key: &str, value: &str| Changes::from([(key.to_owned(), value.into())]);
    let (plain, _) = Profile::load("emmc45").unwrap();
    let (changed, parameters) = Profile::load_with("emmc45", &changes("nand.page", "16 KiB")).unwrap();
    let nand = Nand { page_bytes: 2 * plain.nand.page_bytes, ..plain.nand.clone() };
    assert_eq!(changed, Profile { nand, ..plain });
    let page = parameters.iter().find(|parameter| parameter.key == "nand.page").unwrap();
    assert_eq!((page.kind, page.value.as_str()), (Kind::Assumed, "16 KiB"));
    // One that the profile does not write, as it has a default.
    Profile::load_with("emmc45", &changes("cache.replacement", "lru")).unwrap();
    for (key, value) in [("nand.pages", "16 KiB"), ("nand", "16 KiB"), ("nand.page", "large")] {
        assert!(Profile::load_with("emmc45", &changes(key, value)).is_err(), "{key} = {value}");
    }
}

#[test]
fn devices_beyond_memory_are_refused() {
    let refused = |change: &dyn Fn(&mut Profile)| {
        let mut profile = Profile::builtin("sata-ssd").unwrap();
        change(&mut profile);
        profile.check().unwrap_err().to_string()
    };
    let places = refused(&|profile| profile.nand.blocks_per_plane = 1 << 20);
    assert!(places.contains("places of 4 KiB on flash"), "{places}");
    let erase_blocks = refused(&|profile| {
        (profile.nand.blocks_per_plane, profile.nand.pages_per_block) = (1 << 20, 2);
    });
    assert!(erase_blocks.contains("channels * ways"), "{erase_blocks}");
    let cache = refused(&|profile| profile.cache.bytes = 1 << 40);
    assert!(cache.contains("cache.size"), "{cache}");
}

#[test]
fn a_device_is_never_made_larger() {
    let small = Profile::builtin("emmc50").unwrap().with_capacity(256);
    assert_eq!((small.blocks, small.check()), (256, Ok(())));
    assert_eq!(small.with_capacity(1 << 20), small);
    let tiny = Profile { blocks: 100, ..small };
    assert_eq!(tiny.with_capacity(256).blocks, 100);
}

/// Text with errors is refused or read; nothing panics.
#[test]
fn damaged_profiles_are_refused_or_read() {
    let runtime = Runtime::simulated(Simulation::default());
    let mut random = runtime.handle().random("damage");
    let text = text();
    for _ in 0..3000 {
        let mut bytes = text.clone().into_bytes();
        for _ in 0..1 + random.below(4) {
            let place = random.below(bytes.len() as u64) as usize;
            bytes[place] = b"0123456789aeE.-\"[]{}=, \n"[random.below(24) as usize];
        }
        if let Ok((profile, _)) = Profile::parse(&String::from_utf8_lossy(&bytes)) {
            assert_eq!(profile.check(), Ok(()));
        }
    }
    assert!(Profile::parse(&format!("name = {}", "[".repeat(100_000))).is_err());
}

/// A profile's text, with nothing assumed, so that no range keeps values where they are.
fn without_ranges(text: &str) -> String {
    let line = |line: &str| match line.split_once(", range = ") {
        Some((line, _)) => line.replace("\"assumed\"", "\"fitted\"") + " }\n",
        None => line.to_owned() + "\n",
    };
    text.lines().map(line).collect()
}

/// The text with the number of a random value replaced by one up to a thousand times as large or small.
fn with_other_number(text: &str, random: &mut impl FnMut(u64) -> u64) -> String {
    let values = text.match_indices("{ value = ").map(|(place, found)| place + found.len());
    let is_number =
        |place: &usize| text[*place..].trim_start_matches('"').starts_with(|c: char| c.is_ascii_digit());
    let values: Vec<usize> = values.filter(is_number).collect();
    let place = values[random(values.len() as u64) as usize];
    let (before, after) = text.split_at(place);
    let digits = after.find(|c: char| c.is_ascii_digit()).unwrap();
    let length = after[digits..].find(|c: char| !c.is_ascii_digit()).unwrap();
    let number: u64 = after[digits..digits + length].parse().unwrap();
    let other = match random(3) {
        0 => number / (1 << random(10)),
        1 => number * (1 << random(10)),
        _ => random(2 * number + 4),
    };
    format!("{before}{}{other}{}", &after[..digits], &after[digits + length..])
}

/// A device that a profile allows conforms, however odd.
#[test]
fn changed_profiles_are_refused_or_conform() {
    let runtime = Runtime::simulated(Simulation::default());
    let mut random = runtime.handle().random("change");
    let mut random = |below| random.below(below);
    let (mut refused, mut used) = (0, 0);
    for round in 0..400 {
        let name = Profile::NAMES[round % Profile::NAMES.len()];
        let path = format!("{}/profiles/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let mut text = without_ranges(&std::fs::read_to_string(path).unwrap());
        for _ in 0..1 + random(3) {
            text = with_other_number(&text, &mut random);
        }
        let Ok((profile, _)) = Profile::parse(&text) else {
            refused += 1;
            continue;
        };
        let mechanism = Mechanism::ALL[random(6) as usize];
        let mut small = profile.with_capacity(2048).with_mechanism(mechanism);
        // The suite waits a minute for an answer, and needs a few blocks in a command.
        small.host.max_transfer_blocks = small.host.max_transfer_blocks.max(CONFORMANCE_TRANSFER_MIN);
        if small.ftl.share > 0 {
            small.ftl.share = small.ftl.share.max(CONFORMANCE_SHARE_MIN);
        }
        let nand_times = small.nand.read_ns.iter_mut().chain(&mut small.nand.program_ns);
        for time in nand_times.chain([&mut small.host.command_ns, &mut small.host.latency_ns]) {
            *time = (*time).min(1_000_000);
        }
        if small.raw_blocks() < 1 << 18 {
            conforms(&small);
            used += 1;
        }
    }
    assert!(refused > 50 && used > 50, "{refused} refused, {used} used");
}
