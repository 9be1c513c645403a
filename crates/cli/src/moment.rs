//! How old the tree may be that a crash leaves: the value of `--moment`.

use std::time::Duration;

use crate::replica::parse_duration;

/// The shortest time between two moments, each of which is a flush of the disk, and the longest.
const MOMENT_MIN: Duration = Duration::from_millis(10);
const MOMENT_MAX: Duration = Duration::from_secs(60);

/// How old the tree may be that a crash leaves.
pub(crate) fn parse_moment(text: &str) -> Result<Duration, String> {
    let moment = parse_duration(text).map_err(|error| error.to_string())?;
    match moment {
        _ if moment < MOMENT_MIN => Err("10ms at least".to_owned()),
        _ if moment > MOMENT_MAX => Err("1min at most; 30m is 30 minutes, 30ms milliseconds".to_owned()),
        moment => Ok(moment),
    }
}
