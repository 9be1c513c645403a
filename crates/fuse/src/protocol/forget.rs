//! What the kernel has forgotten: of one inode (FORGET), or of many (BATCH_FORGET).

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::operation::{Header, opcode};

/// A node, and by how many references the kernel's count of it goes down.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct ForgottenNode {
    node: u64,
    count: u64,
}

/// The nodes that a request names, each with a count. What is cut off, or more than the request says, is left out.
pub(crate) fn forgotten(header: &Header, body: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let single = match header.opcode {
        opcode::FORGET => u64::read_from_prefix(body).ok().map(|(count, _)| (header.node, count)),
        _ => None,
    };
    let (said, listed) = match header.opcode {
        // How many there are, and padding.
        opcode::BATCH_FORGET => {
            <[u32; 2]>::read_from_prefix(body).map_or((0, &[][..]), |([said, _], listed)| (said, listed))
        }
        _ => (0, &[][..]),
    };
    let listed = listed.chunks_exact(size_of::<ForgottenNode>()).take(said as usize);
    let listed = listed.filter_map(|one| {
        ForgottenNode::read_from_bytes(one).ok().map(|ForgottenNode { node, count }| (node, count))
    });
    single.into_iter().chain(listed)
}
