//! What CrashMonkey's own tests ask of a filesystem behind a crash and a repair (utsaslab/crashmonkey, `code/tests`,
//! `check_test`). They know less of what was promised than our model.

use super::found::{Found, FoundKind};

/// The test whose check it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashMonkeyCheck {
    /// `rename_root_to_sub`: the file has one of its two names, and all its bytes.
    RenameRootToSub,
    /// `create_delete`: of its ten files, what is there is a file. A file that is missing never fails it, nor one without its
    /// bytes where CrashMonkey sees one epoch only, since no checkpoint lies before its end.
    CreateDelete,
}

impl CrashMonkeyCheck {
    /// Whether it passes, where `before` was there when the test began.
    #[must_use]
    pub fn passes(self, before: &Found, found: &Found) -> bool {
        match self {
            CrashMonkeyCheck::RenameRootToSub => {
                let (old, new) = ("/test_file", "/test_dir/test_file");
                let there: Vec<&str> = [old, new].into_iter().filter(|path| found.is_there(path)).collect();
                there.len() == 1 && before.bytes(old).is_some() && found.bytes(there[0]) == before.bytes(old)
            }
            CrashMonkeyCheck::CreateDelete => {
                let paths = (0..10).map(|nth| format!("/test_dir/test_file{nth}"));
                paths.into_iter().all(|path| matches!(found.kind(&path), None | Some(FoundKind::File(_))))
            }
        }
    }
}
