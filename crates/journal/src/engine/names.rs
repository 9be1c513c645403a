//! The names of the engines: the same on a command line, in a status, in a report and in the line that replays a run.

use std::fmt;
use std::str::FromStr;

use super::{Conflicts, Engine};

/// No engine has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no engine is called {0:?}: there are {list}", list = Engine::ALL.map(Engine::name).join(", "))]
pub struct UnknownEngine(pub String);

impl Engine {
    /// The engines that a filesystem can be mounted with and that a crash leaves consistent, dual-mode journaling with either
    /// way of the papers to resolve conflicts.
    pub const ALL: [Engine; 8] = [
        Engine::Dual { conflicts: Conflicts::Copy },
        Engine::Dual { conflicts: Conflicts::List },
        Engine::Jbd2 { barrier: true },
        Engine::Jbd2 { barrier: false },
        Engine::AsyncCommit,
        Engine::OptFs,
        Engine::Prefix,
        Engine::FlushAhead,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Dual { conflicts: Conflicts::Copy } => "dual",
            Engine::Dual { conflicts: Conflicts::List } => "dual-list",
            Engine::Dual { conflicts: Conflicts::ListUntilTransfer } => "dual-list-until-transfer",
            Engine::Jbd2 { barrier: true } => "jbd2",
            Engine::Jbd2 { barrier: false } => "jbd2-nobarrier",
            Engine::AsyncCommit => "async-commit",
            Engine::OptFs => "optfs",
            Engine::Prefix => "prefix",
            Engine::FlushAhead => "flush-ahead",
            Engine::Unjournaled => "unjournaled",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Engine {
    type Err = UnknownEngine;

    fn from_str(name: &str) -> Result<Engine, UnknownEngine> {
        let found = Engine::ALL.into_iter().find(|engine| engine.name() == name);
        found.ok_or_else(|| UnknownEngine(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_as_the_engine_that_has_it() {
        for engine in Engine::ALL {
            assert_eq!(engine.to_string().parse(), Ok(engine));
        }
        let unknown = "ext5".parse::<Engine>().unwrap_err().to_string();
        assert!(unknown.contains("ext5") && unknown.contains("dual-list, jbd2,"), "{unknown}");
    }
}
