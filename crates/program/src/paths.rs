//! *Paths* of inodes, as they are at some call of a run.

use std::collections::BTreeMap;

use weir_vfs::InodeNumber;

use crate::operation::{Call, Place};
use crate::tree::ROOT;

/// Paths of inodes, as they were at some call.
#[derive(Debug, Default)]
pub(crate) struct Paths(BTreeMap<InodeNumber, Place>);

impl Paths {
    /// Takes in what a call does to names.
    pub(crate) fn follow(&mut self, call: &Call) {
        match call {
            Call::Make { inode, at: Some(at), .. } | Call::Link { inode, at } => {
                self.0.insert(*inode, at.clone());
            }
            Call::Rename { inode, from, to, replaced, exchanged, .. } => {
                self.0.insert(*inode, to.clone());
                if let Some(replaced) = replaced.filter(|_| *exchanged) {
                    self.0.insert(replaced, from.clone());
                }
            }
            _ => {}
        }
    }

    pub(crate) fn of_place(&self, place: &Place) -> String {
        let mut names = vec![String::from_utf8_lossy(&place.name).into_owned()];
        let mut directory = place.directory;
        while let Some(above) = self.0.get(&directory).filter(|_| directory != ROOT && names.len() < 64) {
            names.push(String::from_utf8_lossy(&above.name).into_owned());
            directory = above.directory;
        }
        names.reverse();
        names.join("/")
    }

    pub(crate) fn of_inode(&self, inode: InodeNumber) -> String {
        match self.0.get(&inode) {
            Some(place) => self.of_place(place),
            None if inode == ROOT => ".".to_owned(),
            None => "a file without a name".to_owned(),
        }
    }
}
