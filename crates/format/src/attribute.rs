//! Extended attributes: names with values, kept with a file.
//!
//! Attributes are read as a whole, changed as a map, and stored as a whole: they are few and small. How they are stored is
//! a matter of each format; the numbers of prefixes are the same in both.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::error::FormatError;

/// The longest name, without its prefix.
const NAME_MAX: usize = 255;

/// The prefixes that have a number. A prefix with a dot at its end is followed by a name, another is one.
const PREFIXES: [(u8, &[u8]); 7] = [
    (1, b"user."),
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (4, b"trusted."),
    (6, b"security."),
    (8, b"system.richacl"),
    (7, b"system."),
];

/// An attribute's name: the number of a prefix, and the rest.
///
/// Names are ordered as in a block: by prefix, then length, then bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeName {
    prefix: u8,
    rest: Vec<u8>,
}

impl AttributeName {
    /// The name that callers know as `full`, such as `user.comment`.
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] for an unknown prefix, an empty rest, one longer than 255 bytes, or a zero
    /// byte.
    pub fn parse(full: &[u8]) -> Result<Self, FormatError> {
        let known = PREFIXES.into_iter().find_map(|(prefix, text)| {
            let rest = full.strip_prefix(text)?;
            (text.ends_with(b".") || rest.is_empty()).then_some((prefix, text, rest))
        });
        let Some((prefix, text, rest)) = known else {
            return Err(FormatError::Invalid { what: "an attribute's name begins with a known prefix" });
        };
        if rest.len() > NAME_MAX || rest.contains(&0) || (rest.is_empty() && text.ends_with(b".")) {
            return Err(FormatError::Invalid { what: "an attribute's name has 1 to 255 bytes, none zero" });
        }
        Ok(Self { prefix, rest: rest.to_vec() })
    }

    /// The name of the prefix with this number, and the rest, as they are stored. Neither is checked.
    pub fn from_stored(prefix: u8, rest: &[u8]) -> Self {
        Self { prefix, rest: rest.to_vec() }
    }

    /// The number of its prefix.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// What comes after the prefix: at most 255 bytes.
    pub fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// The name as callers know it; `None` for a prefix without a text, which is not shown to them.
    pub fn full(&self) -> Option<Vec<u8>> {
        let (_, text) = PREFIXES.iter().find(|&&(prefix, _)| prefix == self.prefix)?;
        Some([text, self.rest.as_slice()].concat())
    }
}

impl Ord for AttributeName {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.prefix, self.rest.len(), &self.rest).cmp(&(other.prefix, other.rest.len(), &other.rest))
    }
}

impl PartialOrd for AttributeName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// All attributes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    values: BTreeMap<AttributeName, Vec<u8>>,
}

impl Attributes {
    /// The value of an attribute.
    pub fn get(&self, name: &AttributeName) -> Option<&[u8]> {
        self.values.get(name).map(Vec::as_slice)
    }

    /// Sets the value of an attribute, new or known. Whether it fits is a matter of the format.
    pub fn set(&mut self, name: AttributeName, value: Vec<u8>) {
        self.values.insert(name, value);
    }

    /// Removes an attribute; false if there was none of this name.
    pub fn remove(&mut self, name: &AttributeName) -> bool {
        self.values.remove(name).is_some()
    }

    /// All names with their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&AttributeName, &[u8])> {
        self.values.iter().map(|(name, value)| (name, value.as_slice()))
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &AttributeName> {
        self.values.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(full: &str) -> AttributeName {
        AttributeName::parse(full.as_bytes()).expect("a name")
    }

    #[test]
    fn names_have_known_prefixes() {
        for full in ["user.a", "system.posix_acl_access", "trusted.x.y", "security.selinux", "system.other"] {
            assert_eq!(name(full).full().as_deref(), Some(full.as_bytes()));
        }
        assert_eq!(name("system.posix_acl_access").prefix, 2);
        assert_eq!(name("system.posix_acl_accessory").prefix, 7);
        for wrong in ["user.", "user", "", "other.a", "user.a\0b"] {
            AttributeName::parse(wrong.as_bytes()).expect_err(wrong);
        }
        AttributeName::parse(&[b"user.".as_slice(), &[b'a'; 256]].concat()).expect_err("too long");
    }
}
