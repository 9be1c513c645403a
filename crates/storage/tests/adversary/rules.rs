//! The correct disk, in every kind, leaves nothing that the judge forbids.

use std::rc::Rc;

use weir_storage::{
    AdversaryDisk, AdversaryOptions, Capabilities, Command, Discard, Fault, Faults, Illegal, Interposed,
    Ordering, Rejected, Storage, Ticket,
};

use super::campaign::{able, campaign, campaign_with_looks, disk, run_before};

fn check(name: &str, options: &AdversaryOptions) {
    let findings = campaign(options, 40, 60);
    assert_eq!(findings.illegal, None, "{name}");
    assert!(findings.distinct.len() > 4_000, "{name}: only {} states", findings.distinct.len());
}

#[test]
fn a_legacy_disk_keeps_s2_and_s4() {
    check("plain", &disk(Capabilities::legacy(8, 8, 512), None));
    check("able", &disk(able(Ordering::Legacy), None));
    check("one deep", &disk(Capabilities { queue_depth: 1, ..able(Ordering::Legacy) }, None));
}

#[test]
fn a_barrier_disk_keeps_s3() {
    let capabilities = able(Ordering::Barrier);
    check("able", &disk(capabilities, None));
    check("without ordered service", &disk(Capabilities { ordered_service: false, ..capabilities }, None));
    check("ordered flush", &disk(Capabilities { ordered_flush: true, ..capabilities }, None));
    check("durable tickets", &disk(Capabilities { durable_tickets: true, ..capabilities }, None));
    check("atomic blocks", &disk(Capabilities { atomic_blocks: 1, ..capabilities }, None));
    check("undefined discard", &disk(Capabilities { discard: Discard::Undefined, ..capabilities }, None));
}

#[test]
fn a_prefix_disk_keeps_requests_in_order_and_whole() {
    let few = |name: &str, options: &AdversaryOptions| {
        let findings = campaign(options, 40, 60);
        assert_eq!(findings.illegal, None, "{name}");
        assert!(findings.distinct.len() > 1_500, "{name}: only {} states", findings.distinct.len());
    };
    let capabilities = able(Ordering::Prefix);
    few("able", &disk(capabilities, None));
    few("durable tickets", &disk(Capabilities { durable_tickets: true, ..capabilities }, None));
    few("ordered flush", &disk(Capabilities { ordered_flush: true, ..capabilities }, None));
}

#[test]
fn failed_commands_break_no_promise_to_the_others() {
    let errors = Fault::PerMillion(60_000);
    let faults = Faults { write_error: errors, flush_error: errors, read_error: errors, ..Faults::default() };
    for ordering in [Ordering::Legacy, Ordering::Barrier] {
        check("faults", &AdversaryOptions { faults, ..disk(able(ordering), None) });
    }
}

#[test]
fn a_misdirected_write_and_a_flipped_bit_are_noticed() {
    let faults = [
        Faults { misdirected_write: Fault::Nth(3), ..Faults::default() },
        Faults { flip_at_rest: Fault::PerMillion(50_000), ..Faults::default() },
    ];
    for faults in faults {
        let options = AdversaryOptions { faults, ..disk(able(Ordering::Legacy), None) };
        assert!(campaign(&options, 10, 60).illegal.is_some(), "{faults:?}");
    }
}

#[test]
fn a_witness_that_looks_away_is_milder_and_never_wrong() {
    for ordering in [Ordering::Legacy, Ordering::Barrier, Ordering::Prefix] {
        for capabilities in [able(ordering), Capabilities { ordered_service: false, ..able(ordering) }] {
            let findings = campaign_with_looks(&disk(capabilities, None), 60, 60, 7);
            assert_eq!(findings.illegal, None, "{ordering:?}");
            assert!(findings.distinct.len() > 500, "{ordering:?}: only {} states", findings.distinct.len());
        }
    }
}

/// S4: what is written without `reliable` may become garbage, and nothing else does.
#[test]
fn a_disk_that_corrupts_keeps_what_is_reliable_or_durable() {
    let legacy = Capabilities { corrupts_when_cut: true, ..able(Ordering::Legacy) };
    for capabilities in [
        legacy,
        Capabilities { tear_unit_bytes: 4096, ..legacy },
        Capabilities { atomic_blocks: 1, ..legacy },
        Capabilities { ordering: Ordering::Barrier, ..legacy },
        Capabilities { ordering: Ordering::Prefix, ..legacy },
    ] {
        let findings = campaign(&disk(capabilities, None), 30, 60);
        assert_eq!(findings.illegal, None, "{capabilities:?}");
        assert!(findings.distinct.len() > 1_000, "only {} states", findings.distinct.len());
    }
}

/// Says that it does not corrupt what is being written.
struct Silent {
    disk: Rc<AdversaryDisk>,
    claims: Capabilities,
}

impl Interposed for Silent {
    fn below(&self) -> &dyn Storage {
        &*self.disk
    }

    fn claims(&self) -> &Capabilities {
        &self.claims
    }

    fn take(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        self.disk.submit(command)
    }
}

/// The negative control: garbage is seen where the disk does not say that it may come.
#[test]
fn a_disk_that_corrupts_and_does_not_say_so_is_noticed() {
    for tear_unit_bytes in [512, 4096] {
        let capabilities =
            Capabilities { corrupts_when_cut: true, ..Capabilities::legacy(8, 8, tear_unit_bytes) };
        let findings = run_before(disk(capabilities, None), 1, 60, 1, |disk| {
            Rc::new(Silent { disk, claims: Capabilities { corrupts_when_cut: false, ..capabilities } })
        });
        assert!(matches!(findings.illegal, Some(Illegal::Foreign(_))), "{:?}", findings.illegal);
    }
}
