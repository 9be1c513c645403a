//! Aligned buffers for the bytes that a write only lends (S6): kept for the next write, up to a bound.

use std::cell::RefCell;
use std::rc::Rc;

use weir_runtime::{Buffer, Ring};

use crate::address::BLOCK_BYTES;

/// Bytes that idle buffers may hold together.
const IDLE_BYTES_MAX: usize = 16 << 20;

/// Idle buffers in classes of 1, 2, 4, ... blocks. What is in use is bounded by the queue depth.
pub(super) struct Pool {
    ring: Ring,
    idle: RefCell<Idle>,
}

#[derive(Default)]
struct Idle {
    classes: Vec<Vec<Rc<Buffer>>>,
    bytes: usize,
}

impl Pool {
    pub(super) fn new(ring: Ring) -> Pool {
        Pool { ring, idle: RefCell::default() }
    }

    /// A buffer that starts with `pieces`, one after the other, `bytes` bytes in all.
    pub(super) fn copy<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>, bytes: usize) -> Rc<Buffer> {
        let mut buffer = self.take(class_of(bytes));
        if let Some(memory) = Rc::get_mut(&mut buffer) {
            let mut at = 0;
            for piece in pieces {
                memory[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
            }
        }
        buffer
    }

    /// An unshared buffer of the class.
    fn take(&self, class: usize) -> Rc<Buffer> {
        let mut idle = self.idle.borrow_mut();
        let found = idle.classes.get_mut(class).and_then(Vec::pop);
        if let Some(buffer) = &found {
            idle.bytes -= buffer.len();
        }
        // The ring may release its share a moment after it has reported the completion.
        found.filter(|buffer| Rc::strong_count(buffer) == 1).unwrap_or_else(|| {
            let mut fresh = Buffer::new(BLOCK_BYTES << class);
            // Registered is faster; a full table is no reason to fail.
            let _ = self.ring.register(std::slice::from_mut(&mut fresh));
            Rc::new(fresh)
        })
    }

    /// Takes a buffer of [`Pool::copy`] back.
    pub(super) fn give_back(&self, buffer: Rc<Buffer>) {
        let mut idle = self.idle.borrow_mut();
        if idle.bytes + buffer.len() > IDLE_BYTES_MAX {
            return;
        }
        let class = class_of(buffer.len());
        if idle.classes.len() <= class {
            idle.classes.resize_with(class + 1, Vec::new);
        }
        idle.bytes += buffer.len();
        idle.classes[class].push(buffer);
    }
}

fn class_of(bytes: usize) -> usize {
    bytes.div_ceil(BLOCK_BYTES).next_power_of_two().trailing_zeros() as usize
}
