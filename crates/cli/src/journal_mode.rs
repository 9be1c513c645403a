//! The modes of the journal, as they are called on the command line and in a status: what it holds of file data, and how
//! that goes home.

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use weir_fs::{CheckpointBy, JournalMode};

/// What the journal holds of file data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum JournalName {
    /// Nothing, and data has no order with the journal
    Writeback,
    /// Nothing, but data is written before what refers to it
    #[default]
    Ordered,
    /// All of it
    Data,
    /// As ordered, and a checkpoint remaps: for storage with the share command (SHARE paper)
    Soj,
    /// As data, and a checkpoint remaps: for storage with the share command (SHARE paper)
    Sdj,
}

impl JournalName {
    /// What it means for a mount.
    pub(crate) const fn options(self) -> (JournalMode, CheckpointBy) {
        match self {
            JournalName::Writeback => (JournalMode::Writeback, CheckpointBy::Copy),
            JournalName::Ordered => (JournalMode::Ordered, CheckpointBy::Copy),
            JournalName::Data => (JournalMode::Data, CheckpointBy::Copy),
            JournalName::Soj => (JournalMode::Ordered, CheckpointBy::Remap),
            JournalName::Sdj => (JournalMode::Data, CheckpointBy::Remap),
        }
    }
}

/// Reads the name of a mode whose checkpoints copy.
pub(crate) fn copying_mode_parser() -> impl TypedValueParser<Value = JournalMode> {
    let modes = JournalName::value_variants().iter();
    let modes = modes.filter(|name| name.options().1 == CheckpointBy::Copy);
    PossibleValuesParser::new(modes.filter_map(ValueEnum::to_possible_value))
        .try_map(|name| name.parse::<JournalMode>())
}

/// The name of a mode.
pub(crate) const fn name(mode: JournalMode, checkpoint: CheckpointBy) -> &'static str {
    match (mode, checkpoint) {
        (mode, CheckpointBy::Copy) => mode.name(),
        (JournalMode::Ordered, CheckpointBy::Remap) => "soj",
        (JournalMode::Data, CheckpointBy::Remap) => "sdj",
        // A mode of the interface in Rust alone.
        (JournalMode::Writeback, CheckpointBy::Remap) => "writeback, by remap",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the command line takes is what a status says.
    #[test]
    fn names_are_those_of_the_command_line() {
        for typed in JournalName::value_variants() {
            let (mode, checkpoint) = typed.options();
            assert_eq!(JournalName::from_str(name(mode, checkpoint), false), Ok(*typed));
        }
        assert_eq!(JournalName::default().options(), (JournalMode::default(), CheckpointBy::default()));
    }
}
