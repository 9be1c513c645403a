//! The profiles that come with Weir, and those of the user.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::Profile;
use super::document::{Changes, Parameter, parse, with_changes};
use super::error::ProfileError;

/// Bytes in a profile's file at most.
const FILE_BYTES_MAX: u64 = 1 << 20;

const BUILTIN: [(&str, &str); 10] = [
    ("emmc45", include_str!("../../profiles/emmc45.toml")),
    ("emmc50", include_str!("../../profiles/emmc50.toml")),
    ("ufs20", include_str!("../../profiles/ufs20.toml")),
    ("sata-ssd", include_str!("../../profiles/sata-ssd.toml")),
    ("sata-plp", include_str!("../../profiles/sata-plp.toml")),
    ("openssd", include_str!("../../profiles/openssd.toml")),
    ("nvme", include_str!("../../profiles/nvme.toml")),
    ("nvme-share", include_str!("../../profiles/nvme-share.toml")),
    ("pcie", include_str!("../../profiles/pcie.toml")),
    ("flash-array", include_str!("../../profiles/flash-array.toml")),
];

impl Profile {
    /// The names of the profiles that come with Weir.
    pub const NAMES: [&str; 10] = [
        "emmc45",
        "emmc50",
        "ufs20",
        "sata-ssd",
        "sata-plp",
        "openssd",
        "nvme",
        "nvme-share",
        "pcie",
        "flash-array",
    ];

    /// Reads a profile, checks it, and lists its parameters.
    ///
    /// # Errors
    /// What is wrong with it: see [`ProfileError`].
    pub fn parse(text: &str) -> Result<(Profile, Vec<Parameter>), ProfileError> {
        let (profile, parameters) = parse(text)?;
        profile.check().map_err(|error| error.echoing(&parameters))?;
        Ok((profile, parameters))
    }

    /// The text of a profile that comes with Weir.
    fn text(name: &str) -> Result<&'static str, ProfileError> {
        let found = BUILTIN.iter().find(|(known, _)| *known == name);
        let unknown = || ProfileError::Unknown { name: name.to_owned(), known: Profile::NAMES.join(", ") };
        found.map(|(_, text)| *text).ok_or_else(unknown)
    }

    /// A profile that comes with Weir.
    ///
    /// # Errors
    /// [`ProfileError::Unknown`] names those that there are.
    pub fn builtin(name: &str) -> Result<Profile, ProfileError> {
        Ok(Profile::parse(Profile::text(name)?)?.0)
    }

    /// A profile and its parameters, by the name of one that comes with Weir, or by the path of a file that
    /// ends in `.toml`.
    ///
    /// # Errors
    /// What is wrong with the name, the file or the profile.
    pub fn load(name: &str) -> Result<(Profile, Vec<Parameter>), ProfileError> {
        Profile::load_with(name, &Changes::new())
    }

    /// The same with other values of some keys, which count as assumed.
    ///
    /// # Errors
    /// As [`Profile::load`]; and a key that the profile does not have.
    pub fn load_with(name: &str, changes: &Changes) -> Result<(Profile, Vec<Parameter>), ProfileError> {
        if Path::new(name).extension().is_none_or(|extension| extension != "toml") {
            return Profile::parse(&with_changes(Profile::text(name)?, changes)?);
        }
        let read = read_text(name);
        let text =
            read.map_err(|error| ProfileError::File { path: name.to_owned(), why: error.to_string() })?;
        let wrong = |error| ProfileError::In { path: name.to_owned(), error: Box::new(error) };
        with_changes(&text, changes).and_then(|text| Profile::parse(&text)).map_err(wrong)
    }
}

/// The text of a file of [`FILE_BYTES_MAX`] at most.
fn read_text(path: &str) -> std::io::Result<String> {
    let mut text = String::new();
    let read = File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if read as u64 > FILE_BYTES_MAX {
        return Err(std::io::Error::other("it is larger than 1 MiB"));
    }
    Ok(text)
}
