//! Where in the guest's memory a request lies: its chain of descriptors, which is input.

use virtio_queue::desc::split::Descriptor;
use vm_memory::{Address as _, Bytes as _, GuestAddress, GuestMemory as _, Permissions};

use crate::memory::Mapped;
use crate::requests::PAYLOAD_MAX;

/// Descriptors that one request may have.
const DESCRIPTORS_MAX: usize = 256;

/// Why a chain is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Bytes in a row in the guest's memory, all of them there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    address: GuestAddress,
    bytes: u32,
}

/// A request: what the guest gives, then where it wants the answer.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    given: Vec<Span>,
    wanted: Vec<Span>,
}

fn total(spans: &[Span]) -> usize {
    // There are 256 of less than 4 GiB.
    spans.iter().map(|span| span.bytes as usize).sum()
}

impl Chain {
    /// Follows the chain of `head` in a table of so many descriptors.
    ///
    /// # Errors
    /// [`Malformed`] for one that leaves memory or the table, has no end, or is too long.
    pub(crate) fn follow(
        memory: &Mapped,
        table: GuestAddress,
        entries: u16,
        head: u16,
    ) -> Result<Chain, Malformed> {
        let (mut table, mut entries, mut next, mut is_indirect) = (table, u32::from(entries), head, false);
        let mut chain = Chain::default();
        for _ in 0..=DESCRIPTORS_MAX {
            if u32::from(next) >= entries {
                return Err(Malformed("a descriptor beyond its table"));
            }
            let at = table.checked_add(u64::from(next) * size_of::<Descriptor>() as u64);
            let at = at.ok_or(Malformed("a table beyond all memory"))?;
            let found: Descriptor =
                memory.read_obj(at).map_err(|_| Malformed("a table that is not in memory"))?;
            if found.refers_to_indirect_table() {
                if is_indirect
                    || found.has_next()
                    || !(found.len() as usize).is_multiple_of(size_of::<Descriptor>())
                {
                    return Err(Malformed("a table of descriptors where none may be"));
                }
                (table, entries) = (found.addr(), found.len() / size_of::<Descriptor>() as u32);
                (next, is_indirect) = (0, true);
                continue;
            }
            chain.add(memory, &found)?;
            if !found.has_next() {
                return Ok(chain);
            }
            next = found.next();
        }
        Err(Malformed("more than 256 descriptors"))
    }

    fn add(&mut self, memory: &Mapped, found: &Descriptor) -> Result<(), Malformed> {
        let span = Span { address: found.addr(), bytes: found.len() };
        let (spans, access) = match found.is_write_only() {
            true => (&mut self.wanted, Permissions::Write),
            false if !self.wanted.is_empty() => {
                return Err(Malformed("what is given behind what is wanted"));
            }
            false => (&mut self.given, Permissions::Read),
        };
        if span.bytes == 0 {
            return Ok(());
        }
        if !memory.check_range(span.address, span.bytes as usize, access) {
            return Err(Malformed("bytes that are not in memory"));
        }
        spans.push(span);
        match self.bytes() <= PAYLOAD_MAX {
            true => Ok(()),
            false => Err(Malformed("more than 32 MiB")),
        }
    }

    /// Bytes that are given, and wanted.
    pub(crate) fn bytes(&self) -> usize {
        total(&self.given) + total(&self.wanted)
    }

    /// Bytes that are wanted.
    pub(crate) fn wanted_bytes(&self) -> usize {
        total(&self.wanted)
    }

    /// Takes the last byte that is wanted: where the request's status goes.
    pub(crate) fn take_status(&mut self) -> Option<GuestAddress> {
        let last = self.wanted.last_mut()?;
        last.bytes -= 1;
        let at = last.address.checked_add(last.bytes.into());
        if last.bytes == 0 {
            self.wanted.pop();
        }
        at
    }

    /// Reads what is given, all of it.
    pub(crate) fn read(&self, memory: &Mapped) -> Result<Vec<u8>, Malformed> {
        let mut given = vec![0; total(&self.given)];
        let mut left = &mut given[..];
        for span in &self.given {
            let (now, later) = left.split_at_mut(span.bytes as usize);
            memory.read_slice(now, span.address).map_err(|_| Malformed("bytes that went"))?;
            left = later;
        }
        Ok(given)
    }

    /// Writes what is wanted, from its first byte on; what does not fit is left out.
    pub(crate) fn write(&self, memory: &Mapped, found: &[u8]) -> Result<(), Malformed> {
        let mut left = found;
        for span in &self.wanted {
            let (now, later) = left.split_at(left.len().min(span.bytes as usize));
            memory.write_slice(now, span.address).map_err(|_| Malformed("bytes that went"))?;
            left = later;
        }
        Ok(())
    }
}
