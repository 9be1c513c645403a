//! *Restarts* of the server of a mount, as its status tells them and each server hands them over to the next one.

use serde::{Deserialize, Serialize};

/// Those since it was mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Restarts {
    /// Those that were done.
    #[serde(default)]
    pub(crate) restarts: u64,
    /// Those that were asked for, and were done or refused.
    #[serde(default)]
    pub(crate) restarts_asked: u64,
    /// Why the last one was refused, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) restart_refused: Option<String>,
}

impl Restarts {
    /// One more was done.
    pub(crate) fn done(&self) -> Restarts {
        let (restarts, restarts_asked) = (self.restarts + 1, self.restarts_asked + 1);
        Restarts { restarts, restarts_asked, restart_refused: None }
    }

    /// One more was refused.
    pub(crate) fn refused(&self, why: &str) -> Restarts {
        Restarts {
            restarts_asked: self.restarts_asked + 1,
            restart_refused: Some(why.to_owned()),
            ..self.clone()
        }
    }

    /// For people; none if there was none.
    pub(crate) fn line(&self) -> Option<String> {
        let done = (self.restarts > 0).then(|| self.restarts.to_string());
        let refused = self.restart_refused.as_ref().map(|why| format!("the last one was refused: {why}"));
        let parts: Vec<String> = done.into_iter().chain(refused).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_told_until_one_is_done() {
        let none = Restarts::default();
        assert_eq!(none.line(), None);
        let refused = none.done().refused("it is busy");
        assert_eq!(refused.line().as_deref(), Some("1, the last one was refused: it is busy"));
        assert_eq!((refused.restarts, refused.restarts_asked), (1, 2));
        assert_eq!(refused.done().line().as_deref(), Some("2"));
    }
}
