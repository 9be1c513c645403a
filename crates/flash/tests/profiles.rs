//! Profiles: those that come with Weir are possible and whole, and what is wrong with another is said.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::rc::Rc;

use weir_flash::{FlashDevice, FlashOptions, Kind, Mechanism, Profile, ProfileError};
use weir_runtime::{Runtime, Simulation};
use weir_storage::{Expectations, Storage, conformance};

fn text() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/profiles/sata-ssd.toml")).unwrap()
}

/// The message for the profile of a SATA drive with `from` replaced.
fn refused(from: &str, to: &str) -> String {
    let text = text();
    assert!(text.contains(from), "{from}");
    Profile::parse(&text.replacen(from, to, 1)).unwrap_err().to_string()
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
            let runtime = Runtime::simulated(Simulation::default());
            let handle = runtime.handle();
            let make = async || FlashDevice::new(&handle, &small, FlashOptions::default()) as Rc<dyn Storage>;
            let report = runtime.block_on(conformance(&handle, Expectations::default(), make));
            assert!(matches!(report, Ok(Ok(_))), "{name} {mechanism:?}: {report:?}");
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
    assert!(refused("value = 256,", "value = 25600,").contains("fewer than 2^31"));
    assert!(refused("\"in-order-recovery\"", "\"magic\"").contains("in-order-writeback"));
    let unsourced = refused(", source = \"FAST 2018 paper, section 6: QD 32\"", "");
    assert!(unsourced.contains("source"), "{unsourced}");
    let unknown = Profile::builtin("floppy").unwrap_err();
    assert!(matches!(&unknown, ProfileError::Unknown { known, .. } if known.contains("ufs20")));
    assert!(matches!(Profile::load("/nowhere/my.toml"), Err(ProfileError::File { .. })));
}

/// Any text is refused or read; nothing panics.
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
}
