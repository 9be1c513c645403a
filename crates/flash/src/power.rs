//! What a power cut leaves of what the dies are doing.

use std::rc::Rc;

use weir_runtime::Random;

use crate::array::{Program, Work};
use crate::ftl::Ftl;
use crate::medium::{Content, Garbled, Medium, Payload, Tag};
use crate::mutants::{FlashMutant, FlashRules};

/// What is on flash if the power goes at `at`. Pages being programmed, and blocks being erased, are left as they
/// were, torn, or done, by chance. A torn page is unreadable, or garbled where the device `tears_programs` (F12).
pub(crate) fn cut(ftl: &Ftl, at: u64, tears_programs: bool, random: &mut Random) -> Medium {
    let rules = ftl.rules;
    let mut medium = ftl.medium.clone();
    medium.garbled_pages = 0;
    for doing in ftl.array.doing().filter(|doing| doing.cells_from < at) {
        match &doing.work {
            Work::Program(program) => match random.below(3) {
                0 => {}
                1 if rules.drops(FlashMutant::TornAccepted) => {
                    garble(&mut medium, program, program.spare.sequence);
                }
                1 if tears_programs && is_garbled(program, rules) => {
                    garble(&mut medium, program, random.below(u64::MAX));
                }
                1 => medium.tear(program.page),
                _ => medium.program(program.page, program.spare, &program.contents),
            },
            Work::Erase(block) => match random.below(3) {
                0 => {}
                1 => medium.spoil(*block),
                _ => medium.erase(*block),
            },
            Work::Records(_, records) if random.below(2) == 0 => medium.system.record(Rc::clone(records)),
            Work::Opening(opening) if random.below(2) == 0 => medium.system.open(*opening),
            Work::Read { .. } | Work::System | Work::Records(..) | Work::Opening(_) => {}
        }
    }
    medium
}

/// Whether a torn page reads as good: of the host's data, without anything reliable in it, and without a record, as the
/// firmware checks its own pages and copies.
fn is_garbled(program: &Program, rules: FlashRules) -> bool {
    let reliable = program.reliable && !rules.drops(FlashMutant::ReliableTorn);
    let records = program.contents.iter().any(|content| content.payload.is_record());
    program.spare.tag == Tag::Plain && !reliable && !records
}

/// A torn page that recovery takes for a good one.
fn garble(medium: &mut Medium, program: &Program, seed: u64) {
    let garbled = |(nth, content): (u64, &Content)| {
        let payload = match &content.payload {
            Payload::Discard(_) | Payload::Share(_) | Payload::Page(_) => content.payload.clone(),
            data => Payload::Garbled(Rc::new(Garbled { new: data.clone(), seed: seed.wrapping_add(nth) })),
        };
        Content { payload, ..content.clone() }
    };
    let contents: Vec<Content> = (0..).zip(&program.contents).map(garbled).collect();
    medium.program(program.page, program.spare, &contents);
    medium.garbled_pages += 1;
}
