//! Who changes something: what a caller may take of the space depends on it.

/// A user, as far as the space goes: nothing else is checked here, since the doors know their users' rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user's number.
    pub uid: u32,
    /// The number of the user's own group.
    pub gid: u32,
}

impl Caller {
    /// A caller that may take all of the space that files may have.
    pub const SUPERUSER: Caller = Caller { uid: 0, gid: 0 };
}
