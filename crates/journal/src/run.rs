//! Consecutive blocks.

use std::rc::Rc;

use weir_runtime::Buffer as Memory;

/// Blocks to be written one after the other from `start` on.
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) blocks: Vec<Rc<Memory>>,
}

impl Run {
    /// Adds a block at `place`, to the last of `runs` if it comes right behind it.
    pub(crate) fn push(runs: &mut Vec<Run>, place: u64, content: Rc<Memory>) {
        match runs.last_mut() {
            Some(run) if run.start + run.blocks.len() as u64 == place => run.blocks.push(content),
            _ => runs.push(Run { start: place, blocks: vec![content] }),
        }
    }
}
