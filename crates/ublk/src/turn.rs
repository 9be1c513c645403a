//! What a server that starts does with the device that it finds: a decision, of what the kernel says about it and how
//! long this server has waited for it already.

use std::time::Duration;

use weir_storage::Rules;

use crate::error::UblkError;
use crate::mutants::UblkMutant;
use crate::protocol::{DeviceInfo, state};

/// How long the kernel may take to notice that a server was killed: more than the 30 s after which it looks at
/// requests, which it does where each place had one.
const NOTICED_WITHIN: Duration = Duration::from_secs(60);
/// How long a server that runs may take to end.
const ENDED_WITHIN: Duration = Duration::from_secs(5);

/// A device as it was found.
pub(crate) struct DeviceState {
    pub(crate) number: u32,
    /// None if there is no such device.
    pub(crate) info: Option<DeviceInfo>,
    /// Whether the process runs that the device names as its server.
    pub(crate) server_runs: bool,
    /// Since this server first looked.
    pub(crate) waited: Duration,
    /// Whether this server is to end.
    pub(crate) is_ending: bool,
}

/// What to do with it, before it is looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Make,
    /// A server was killed before it had shown the device, or after it had taken it away.
    Remove,
    TakeUp,
    /// Its server was killed just now, and the kernel has not noticed; or it ends.
    Wait,
}

impl DeviceState {
    /// The next turn of a server of a volume. Whatever the state, turns end within a minute, and at once
    /// when the server is to end.
    pub(crate) fn next_turn(&self, volume: u64, rules: Rules<UblkMutant>) -> Result<Turn, UblkError> {
        let number = self.number;
        if self.is_ending {
            return Err(UblkError::StartCancelled { number });
        }
        let Some(info) = self.info else { return Ok(Turn::Make) };
        require_own(&info, volume, rules)?;
        let patience = if self.server_runs { ENDED_WITHIN } else { NOTICED_WITHIN };
        match info.state {
            state::DEAD if self.waited > NOTICED_WITHIN => {
                Err(UblkError::Held { number, holder: "a program".to_owned() })
            }
            state::DEAD => Ok(Turn::Remove),
            _ if self.waited > patience && self.server_runs => Err(served_error(&info)),
            _ if self.waited > patience => Err(UblkError::Stuck { number }),
            state::QUIESCED => Ok(Turn::TakeUp),
            _ => Ok(Turn::Wait),
        }
    }
}

/// Refuses the device of another volume (N6).
pub(crate) fn require_own(info: &DeviceInfo, volume: u64, rules: Rules<UblkMutant>) -> Result<(), UblkError> {
    match info.state {
        _ if info.volume == volume || rules.drops(UblkMutant::ForeignTakenUp) => Ok(()),
        state::LIVE => Err(served_error(info)),
        _ => Err(UblkError::Foreign { number: info.number }),
    }
}

fn served_error(info: &DeviceInfo) -> UblkError {
    UblkError::Served { number: info.number, process: info.process }
}

#[cfg(test)]
mod tests;
