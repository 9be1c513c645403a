//! Which of the writes that a power cut decides about are kept: the name of one crash state, so that it can be said,
//! asked for again, and made smaller.

use std::fmt::{self, Display};
use std::str::FromStr;

/// Choices in the name of a state, at most: a disk has no more pending.
const CHOICES_MAX: usize = 1 << 16;

/// One of [`CrashStates`](super::CrashStates): all layers before a layer are applied, and of that layer these versions.
/// As text it is `LAYER:VERSION.VERSION...`, where version 0 is what was there before: `1:0.2.1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kept {
    pub(super) layer: usize,
    /// The version of each choice of the layer.
    pub(super) versions: Vec<usize>,
}

/// Text that names no crash state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no crash state: write LAYER:VERSION.VERSION..., as in 1:0.2.1")]
pub struct NoState(String);

impl Display for Kept {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}:", self.layer)?;
        for (at, version) in self.versions.iter().enumerate() {
            write!(to, "{}{version}", if at > 0 { "." } else { "" })?;
        }
        Ok(())
    }
}

impl FromStr for Kept {
    type Err = NoState;

    fn from_str(text: &str) -> Result<Kept, NoState> {
        let kept = || {
            let (layer, versions) = text.split_once(':')?;
            let versions = versions.split('.').filter(|version| !version.is_empty()).take(CHOICES_MAX + 1);
            let versions = versions.map(|version| version.parse().ok()).collect::<Option<Vec<usize>>>()?;
            (versions.len() <= CHOICES_MAX).then_some(Kept { layer: layer.parse().ok()?, versions })
        };
        kept().ok_or_else(|| NoState(text.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for text in ["0:", "1:0.2.1", "12:7"] {
            assert_eq!(text.parse::<Kept>().map(|kept| kept.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "1", ":0", "1:x", "1:0,2", "-1:0", "1:99999999999999999999"] {
            assert_eq!(text.parse::<Kept>(), Err(NoState(text.to_owned())), "{text}");
        }
    }
}
