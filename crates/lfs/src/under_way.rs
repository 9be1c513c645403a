//! Nodes on their way to the disk: they stay in memory until they are there. Before, their places read as something else.

use std::cell::RefCell;
use std::rc::Rc;

use weir_storage::Ticket;

use crate::file::File;
use crate::nodes::NodeBlock;

/// Nodes that are written: what refers to one keeps it in memory.
#[derive(Default)]
#[expect(dead_code, reason = "what they refer to stays in memory")]
pub(crate) struct WrittenNodes {
    pub(crate) nodes: Vec<Rc<NodeBlock>>,
    /// Of inodes, the files.
    pub(crate) files: Vec<Rc<File>>,
}

/// Nodes whose writes may be on their way.
#[derive(Default)]
pub(crate) struct UnderWay(RefCell<Vec<(Vec<Ticket>, WrittenNodes)>>);

impl UnderWay {
    /// Keeps nodes until these writes, theirs among them, are transferred; lets those go whose writes are.
    pub(crate) fn keep(&self, writes: Vec<Ticket>, nodes: WrittenNodes) {
        let mut kept = self.0.borrow_mut();
        kept.retain(|(writes, _)| writes.iter().any(|write| write.poll_transferred().is_none()));
        kept.push((writes, nodes));
    }

    /// Adds the writes that may be on their way.
    pub(crate) fn add_to(&self, tickets: &mut Vec<Ticket>) {
        tickets.extend(self.0.borrow().iter().flat_map(|(writes, _)| writes.iter().cloned()));
    }
}
