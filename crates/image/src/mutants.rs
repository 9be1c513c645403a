//! Copies that drop one rule each. A rule without a mutant that tests kill is not implemented.

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(dead_code, reason = "named where the rule is kept"))]
pub enum ImageMutant {
    /// I1: symbolic links are followed, and names are taken for paths.
    FollowsLinks,
    /// I2: a file is made with the mode that it has in the image.
    ShowsEarly,
    /// I2: a directory is filled no matter to which user it belongs.
    TrustsOwners,
    /// I3: a directory is entered for each of its names.
    EntersAgain,
    /// I3: names and bytes are not counted.
    CopiesWithoutEnd,
}
