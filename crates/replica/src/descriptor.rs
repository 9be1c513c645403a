//! The *descriptor*: the object that says of which volume a replica is.

use bytes::Bytes;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::access::{Access, Placed};
use crate::envelope::{Envelopes, ObjectKind};
use crate::error::{Defect, ReplicaError};
use crate::key::DESCRIPTOR;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct DescriptorOnDisk {
    logical_blocks: U64,
}

/// What a replica says of its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The volume's identity.
    pub volume: u64,
    /// Its capacity, in blocks.
    pub logical_blocks: u64,
}

impl Descriptor {
    fn from_object(envelopes: &Envelopes, bytes: &Bytes) -> Result<Descriptor, ReplicaError> {
        let opened = envelopes.opener().open(DESCRIPTOR, ObjectKind::Descriptor, bytes)?;
        let damaged = ReplicaError::Damaged { key: DESCRIPTOR.to_owned(), defect: Defect::Content };
        let body = DescriptorOnDisk::read_from_bytes(&opened.body).map_err(|_| damaged)?;
        Ok(Descriptor { volume: opened.volume, logical_blocks: body.logical_blocks.get() })
    }

    /// Reads the descriptor of a replica.
    pub(crate) async fn read(access: &Access, envelopes: &Envelopes) -> Result<Descriptor, ReplicaError> {
        let bytes = access.find(DESCRIPTOR).await?.ok_or(ReplicaError::NoReplica)?;
        let descriptor = Descriptor::from_object(envelopes, &bytes)?;
        envelopes.volume.set(descriptor.volume);
        Ok(descriptor)
    }

    /// Sees to it that the replica is this volume's, and that its store creates no object twice unless `unfenced`.
    pub(crate) async fn ensure(
        self,
        access: &Access,
        envelopes: &Envelopes,
        unfenced: bool,
    ) -> Result<(), ReplicaError> {
        envelopes.volume.set(self.volume);
        let body = DescriptorOnDisk { logical_blocks: self.logical_blocks.into() };
        let mut bytes = envelopes.wrap(DESCRIPTOR, ObjectKind::Descriptor, body.as_bytes())?;
        match access.find(DESCRIPTOR).await? {
            Some(found) => bytes = found,
            None => {
                if let Placed::Taken(found) = access.create(DESCRIPTOR, bytes.clone()).await? {
                    bytes = found;
                }
            }
        }
        let found = Descriptor::from_object(envelopes, &bytes)?;
        if found.volume != self.volume {
            return Err(ReplicaError::OtherVolume { found: found.volume, expected: self.volume });
        }
        let (found, expected) = (found.logical_blocks, self.logical_blocks);
        if found != expected {
            return Err(ReplicaError::Resized { found, expected });
        }
        if !unfenced && !access.refuses_second(DESCRIPTOR, bytes).await? {
            return Err(ReplicaError::NotFenced);
        }
        Ok(())
    }
}
