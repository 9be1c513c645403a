//! Each rule has a disk that breaks it, and the judge notices.

use weir_storage::{Capabilities, Illegal, Ordering, Reason, StorageMutant};

use super::campaign::{able, campaign, disk};

fn kill(mutant: StorageMutant, capabilities: Capabilities, expected: impl Fn(&Illegal) -> bool) {
    let findings = campaign(&disk(capabilities, Some(mutant)), 60, 60);
    let illegal =
        findings.illegal.unwrap_or_else(|| panic!("{mutant:?} survived {} states", findings.judged));
    assert!(expected(&illegal), "{mutant:?} was killed for another reason: {illegal}");
}

/// A durable version is not found: missed by name, or an older content is there that was replaced.
fn not_durable(illegal: &Illegal) -> bool {
    missing(Reason::Durable)(illegal) || matches!(illegal, Illegal::Foreign(_))
}

fn missing(reason: Reason) -> impl Fn(&Illegal) -> bool {
    move |illegal| matches!(illegal, Illegal::Missing { reason: found, .. } if *found == reason)
}

/// A barrier disk whose only way to durability is what the mutant breaks.
fn barrier() -> Capabilities {
    able(Ordering::Barrier)
}

#[test]
fn s1_ordered_priority_ignored() {
    // Noticed in the order of service, on any disk, and in the epochs that are left, on a barrier disk.
    let expected = |illegal: &Illegal| matches!(illegal, Illegal::OutOfTurn { .. });
    kill(StorageMutant::OrderedIgnored, able(Ordering::Legacy), expected);
    kill(StorageMutant::OrderedIgnored, barrier(), |illegal| {
        expected(illegal) || missing(Reason::EarlierEpoch)(illegal)
    });
}

#[test]
fn s2_a_flush_that_lies() {
    kill(StorageMutant::FlushLies, Capabilities::legacy(8, 8, 4096), not_durable);
}

#[test]
fn s2_fua_that_lies() {
    // Also where one with FUA is part of a packed write, and one behind it is found (S7).
    kill(StorageMutant::FuaLies, able(Ordering::Legacy), |illegal| {
        not_durable(illegal) || missing(Reason::EarlierPart)(illegal)
    });
}

#[test]
fn s2_a_skipped_preflush() {
    let legacy = Capabilities { fua: false, ..able(Ordering::Legacy) };
    kill(StorageMutant::PreflushSkipped, legacy, |illegal| {
        missing(Reason::Preflush)(illegal) || not_durable(illegal)
    });
}

#[test]
fn s3_barriers_ignored() {
    kill(StorageMutant::EpochsMixed, barrier(), missing(Reason::EarlierEpoch));
}

#[test]
fn s3_holes_in_a_prefix() {
    kill(StorageMutant::PrefixHoles, able(Ordering::Prefix), missing(Reason::EarlierRequest));
}

#[test]
fn s3_a_request_torn() {
    kill(StorageMutant::RequestTorn, able(Ordering::Prefix), missing(Reason::Atomic));
    let reliable = Capabilities { fua: false, preflush: false, ..able(Ordering::Legacy) };
    kill(StorageMutant::RequestTorn, reliable, missing(Reason::Atomic));
}

#[test]
fn s4_a_unit_torn_inside() {
    for tear_unit_bytes in [512, 4096] {
        let legacy = Capabilities::legacy(8, 8, tear_unit_bytes);
        kill(StorageMutant::UnitTorn, legacy, |illegal| matches!(illegal, Illegal::Foreign(_)));
    }
}

#[test]
fn s4_the_flag_reliable_ignored() {
    for (tear_unit_bytes, corrupts_when_cut) in [(512, false), (512, true), (4096, true)] {
        let reliable = Capabilities {
            tear_unit_bytes,
            corrupts_when_cut,
            fua: false,
            preflush: false,
            ..able(Ordering::Legacy)
        };
        kill(StorageMutant::ReliableIgnored, reliable, |illegal| {
            missing(Reason::Atomic)(illegal) || matches!(illegal, Illegal::Foreign(_))
        });
    }
}

#[test]
fn s6_the_payload_read_late() {
    let legacy = Capabilities::legacy(8, 8, 4096);
    kill(StorageMutant::PayloadLate, legacy, |illegal| matches!(illegal, Illegal::Foreign(_)));
}

#[test]
fn s7_a_share_in_pieces() {
    let capabilities = Capabilities { reliable: false, ..able(Ordering::Legacy) };
    kill(StorageMutant::ShareTorn, capabilities, missing(Reason::Atomic));
}

#[test]
fn s7_packed_writes_that_do_not_wait_for_each_other() {
    kill(StorageMutant::PackedTogether, able(Ordering::Legacy), missing(Reason::EarlierPart));
}
