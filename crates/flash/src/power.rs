//! What a power cut leaves of what the dies are doing.

use std::rc::Rc;

use weir_runtime::Random;

use crate::array::Work;
use crate::ftl::Ftl;
use crate::medium::{Content, Medium, Payload};
use crate::mutants::{FlashMutant, FlashRules};

/// What is on flash if the power goes at `at`. Pages being programmed, and blocks being erased, are left as they
/// were, torn, or done, by chance.
pub(crate) fn cut(ftl: &Ftl, at: u64, rules: FlashRules, random: &mut Random) -> Medium {
    let mut medium = ftl.medium.clone();
    for doing in ftl.array.doing().filter(|doing| doing.cells_from < at) {
        match &doing.work {
            Work::Program(program) => match random.below(3) {
                0 => {}
                1 if rules.drops(FlashMutant::TornAccepted) => {
                    let garbled = program.contents.iter().cloned().map(garble).collect::<Vec<_>>();
                    medium.program(program.page, program.sequence, program.tag, &garbled);
                }
                1 => medium.tear(program.page),
                _ => medium.program(program.page, program.sequence, program.tag, &program.contents),
            },
            Work::Erase(block) => match random.below(3) {
                0 => {}
                1 => medium.spoil(*block),
                _ => medium.erase(*block),
            },
            Work::Records(_, records) if random.below(2) == 0 => medium.system.record(Rc::clone(records)),
            Work::Read { .. } | Work::System | Work::Records(..) => {}
        }
    }
    medium
}

/// A torn page that recovery takes for a good one.
fn garble(content: Content) -> Content {
    let payload = match content.payload {
        Payload::Bytes(bytes) => Payload::Bytes(bytes.iter().map(|byte| byte ^ 0x5a).collect()),
        payload => payload,
    };
    Content { payload, ..content }
}
