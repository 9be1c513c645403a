//! A *request* is what a caller issues to the block layer; a command is what the layer dispatches to the
//! device. Several requests may leave as one command.

use weir_storage::{Part, StreamId, WriteFlags};

/// How a write takes part in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Outside all epochs; it may cross them.
    #[default]
    Orderless,
    /// Order-preserving: in the stream's current epoch.
    Ordered,
    /// Order-preserving, and closes the stream's epoch.
    Barrier,
}

/// A write request. It borrows everything: its data is as of submission (S6).
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The stream of its epoch, and of its turn in the fair queue.
    pub stream: StreamId,
    /// Orderless, order-preserving, or barrier.
    pub class: Class,
    /// What goes where.
    pub parts: &'a [Part<'a>],
    /// Transferred only when it is durable; emulated by a flush where the device lacks it.
    pub fua: bool,
    /// Flush what was transferred before, then write; emulated by a flush where the device lacks it.
    pub preflush: bool,
    /// Old or new content after a power cut, never a mixture; refused where the device lacks it.
    pub reliable: bool,
}

impl<'a> Request<'a> {
    /// A write of `class` without flags.
    #[must_use]
    pub fn new(stream: StreamId, class: Class, parts: &'a [Part<'a>]) -> Request<'a> {
        Request { stream, class, parts, fua: false, preflush: false, reliable: false }
    }

    /// An orderless write.
    #[must_use]
    pub fn orderless(stream: StreamId, parts: &'a [Part<'a>]) -> Request<'a> {
        Request::new(stream, Class::Orderless, parts)
    }

    /// An order-preserving write.
    #[must_use]
    pub fn ordered(stream: StreamId, parts: &'a [Part<'a>]) -> Request<'a> {
        Request::new(stream, Class::Ordered, parts)
    }

    /// An order-preserving write that closes its epoch.
    #[must_use]
    pub fn barrier(stream: StreamId, parts: &'a [Part<'a>]) -> Request<'a> {
        Request::new(stream, Class::Barrier, parts)
    }

    /// Whether the write belongs to an epoch.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.class != Class::Orderless
    }

    /// The request's flags as the device knows them; `barrier` is decided at dispatch (E4).
    pub(crate) fn flags(&self, barrier: bool) -> WriteFlags {
        WriteFlags { barrier, fua: self.fua, preflush: self.preflush, reliable: self.reliable }
    }
}
