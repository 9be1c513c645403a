//! Extended attributes: one list of names and values, which begins in the inode and continues in a node of its own.

use weir_format::{AttributeName, Attributes, FormatError, Place, Structure};

use crate::block::NodeId;
use crate::node::NODE_BYTES;

const MAGIC: [u8; 4] = 0xF2F5_2011_u32.to_le_bytes();
/// Bytes before the first entry: the magic number, a count of references, and room.
const HEADER_BYTES: usize = 24;
/// Bytes of an entry before its name.
const ENTRY_BYTES: usize = 4;
/// The zeros that end the list.
const END_BYTES: usize = 4;
/// The number of the prefix of advice to the filesystem, which is no attribute of a file.
const ADVICE: u8 = 7;

fn entry_bytes(name: usize, value: usize) -> usize {
    (ENTRY_BYTES + name + value).next_multiple_of(4)
}

/// Reads the attributes of an inode: what is in it, and the node that it continues in, if there is one.
///
/// # Errors
/// [`FormatError::Corrupt`] for a list that is damaged.
pub fn read_attributes(inode: NodeId, area: &[u8], node: Option<&[u8]>) -> Result<Attributes, FormatError> {
    let corrupt = |what| FormatError::corrupt(Structure::Attributes, Place::Inode(inode.0), what);
    let list = [area, node.map_or(&[][..], |node| node.get(..NODE_BYTES).unwrap_or_default())].concat();
    let mut attributes = Attributes::default();
    if !list.starts_with(&MAGIC) {
        // An inode that never had any is zeros there.
        return match list.iter().all(|byte| *byte == 0) {
            true => Ok(attributes),
            false => Err(corrupt("magic number")),
        };
    }
    let mut rest = list.get(HEADER_BYTES..).unwrap_or_default();
    loop {
        let head: [u8; ENTRY_BYTES] = match rest.first_chunk() {
            // The list ends with zeros, or with the room for it.
            None | Some([0, 0, 0, 0]) => return Ok(attributes),
            Some(head) => *head,
        };
        let (name_length, value_length) =
            (usize::from(head[1]), usize::from(u16::from_le_bytes([head[2], head[3]])));
        let end = entry_bytes(name_length, value_length);
        let entry = rest.get(ENTRY_BYTES..end).ok_or_else(|| corrupt("an entry that is cut off"))?;
        let (name, value) = entry.split_at(name_length);
        if head[0] == 0 || name.contains(&0) {
            return Err(corrupt("the name of an entry"));
        }
        let name = AttributeName::from_stored(head[0], name);
        if attributes.get(&name).is_some() {
            return Err(corrupt("a name twice"));
        }
        attributes.set(name, value[..value_length].to_vec());
        rest = &rest[end..];
    }
}

/// Stores all attributes: as much as fits into the inode's `area`, and the rest as the bytes of a node, which is returned if there
/// has to be one.
///
/// # Errors
/// [`FormatError::Full`] when they do not fit; then `area` is as it was.
pub fn store_attributes(attributes: &Attributes, area: &mut [u8]) -> Result<Option<Vec<u8>>, FormatError> {
    let full = FormatError::Full { what: "a file's attributes fill its inode and one node" };
    let mut list = Vec::new();
    for (name, value) in attributes.iter() {
        if list.is_empty() {
            list.extend_from_slice(&MAGIC);
            list.extend_from_slice(&1_u32.to_le_bytes());
            list.resize(HEADER_BYTES, 0);
        }
        if name.prefix() == ADVICE {
            return Err(FormatError::Invalid { what: "an attribute with the prefix \"system.\"" });
        }
        let (Ok(name_length), Ok(value_length)) =
            (u8::try_from(name.rest().len()), u16::try_from(value.len()))
        else {
            return Err(full);
        };
        let start = list.len();
        list.extend_from_slice(&[name.prefix(), name_length]);
        list.extend_from_slice(&value_length.to_le_bytes());
        list.extend_from_slice(name.rest());
        list.extend_from_slice(value);
        list.resize(start + entry_bytes(name.rest().len(), value.len()), 0);
    }
    if !list.is_empty() {
        list.resize(list.len() + END_BYTES, 0);
    }
    if list.len() > area.len() + NODE_BYTES {
        return Err(full);
    }
    area.fill(0);
    let inside = list.len().min(area.len());
    area[..inside].copy_from_slice(&list[..inside]);
    let outside = &list[inside..];
    Ok((!outside.is_empty()).then(|| {
        let mut node = outside.to_vec();
        node.resize(NODE_BYTES, 0);
        node
    }))
}
