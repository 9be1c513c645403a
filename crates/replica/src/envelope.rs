//! The *envelope* of every object: a header that says what it is and of which volume, the body, compressed and encrypted as
//! asked for, and a SHA-256 of all that and of the key. Every byte is in `docs/format/replica.md`.

use std::cell::Cell;

use bytes::Bytes;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::digest::{Context, SHA256};
use weir_runtime::Handle;
use weir_storage::Rules;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Defect, ReplicaError};
use crate::mutants::ReplicaMutant;

const MAGIC: [u8; 8] = *b"WEIR-REP";
const VERSION: u32 = 1;
/// That of a checkpoint with parts of its table of objects.
pub(crate) const VERSION_OF_TABLE_PARTS: u32 = 2;
/// Bytes of a body at most.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 20;
/// Bytes of an object at most; one that is compressed is smaller than its body.
pub const OBJECT_BYTES_MAX: u64 = (HEADER_BYTES + BODY_BYTES_MAX + TAG_BYTES + HASH_BYTES) as u64;
const COMPRESSED: u32 = 1;
const ENCRYPTED: u32 = 2;
const HASH_BYTES: usize = 32;
const TAG_BYTES: usize = 16;

/// A SHA-256.
pub(crate) type Hash = [u8; HASH_BYTES];

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    Descriptor = 1,
    Epoch = 2,
    Log = 3,
    Map = 4,
    Checkpoint = 5,
}

impl ObjectKind {
    /// The newest version of such an object that is known.
    fn newest_version(self) -> u32 {
        if self == ObjectKind::Checkpoint { VERSION_OF_TABLE_PARTS } else { VERSION }
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: U32,
    kind: U32,
    volume: U64,
    epoch: U64,
    flags: U32,
    body_bytes: U32,
    nonce: [u8; 12],
    reserved: U32,
    created_ms: U64,
}

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 64;
const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

/// A key of 256 bits for a replica. It is not shown by `Debug`.
#[derive(Clone)]
pub struct EncryptionKey([u8; 32]);

impl EncryptionKey {
    /// From 64 hexadecimal digits, with white space around them.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<EncryptionKey> {
        let digits = text.trim().as_bytes();
        let mut key = [0; 32];
        if digits.len() != 2 * key.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(EncryptionKey(key))
    }
}

impl std::fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EncryptionKey")
    }
}

/// What an envelope says beside its body.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub volume: u64,
    pub epoch: u64,
    /// Unix time in milliseconds.
    pub created_ms: u64,
    pub hash: Hash,
    pub body: Bytes,
}

/// What the header of an object says of its body, unproved: the hash of the whole object proves it.
pub(crate) struct Outline {
    /// The body is compressed or encrypted.
    pub is_packed: bool,
    /// Bytes of the body as it is below.
    pub body_bytes: u32,
}

impl Outline {
    /// Of an object of this kind; `None` if it is none, or of another version.
    pub(crate) fn from_head(head: &[u8], kind: ObjectKind) -> Option<Outline> {
        let (header, _) = Header::read_from_prefix(head).ok()?;
        let is_known =
            header.magic == MAGIC && header.version.get() == VERSION && header.kind.get() == kind as u32;
        let is_packed = header.flags.get() != 0;
        is_known.then_some(Outline { is_packed, body_bytes: header.body_bytes.get() })
    }
}

/// Makes and opens envelopes.
pub(crate) struct Envelopes {
    handle: Handle,
    compress: bool,
    pub volume: Cell<u64>,
    pub epoch: Cell<u64>,
    opener: EnvelopeOpener,
}

/// Opens envelopes, on any thread.
#[derive(Clone)]
pub(crate) struct EnvelopeOpener {
    key: Option<LessSafeKey>,
    rules: Rules<ReplicaMutant>,
}

/// Makes one envelope, on any thread.
pub(crate) struct EnvelopeMaker {
    header: Header,
    key: Option<LessSafeKey>,
    compress: bool,
}

impl Envelopes {
    /// Whether objects have to be encrypted.
    pub(crate) fn has_key(&self) -> bool {
        self.opener.key.is_some()
    }

    pub(crate) fn new(
        handle: &Handle,
        key: Option<&EncryptionKey>,
        compress: bool,
        rules: Rules<ReplicaMutant>,
    ) -> Envelopes {
        // The key has the length that the algorithm wants.
        let key = key.and_then(|key| UnboundKey::new(&AES_256_GCM, &key.0).ok()).map(LessSafeKey::new);
        let (volume, epoch) = (Cell::new(0), Cell::new(0));
        let opener = EnvelopeOpener { key, rules };
        Envelopes { handle: handle.clone(), compress, volume, epoch, opener }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// For a thread that opens envelopes.
    pub(crate) fn opener(&self) -> &EnvelopeOpener {
        &self.opener
    }

    /// For a thread that wraps an object made now.
    pub(crate) fn maker(&self, kind: ObjectKind) -> EnvelopeMaker {
        let (mut flags, mut nonce) = (0, [0; 12]);
        if self.has_key() {
            flags = ENCRYPTED;
            nonce[..8].copy_from_slice(&self.handle.entropy().to_le_bytes());
            nonce[8..].copy_from_slice(&self.handle.entropy().to_le_bytes()[..4]);
        }
        let header = Header {
            magic: MAGIC,
            version: VERSION.into(),
            kind: (kind as u32).into(),
            volume: self.volume.get().into(),
            epoch: self.epoch.get().into(),
            flags: flags.into(),
            body_bytes: 0.into(),
            nonce,
            reserved: 0.into(),
            created_ms: self.handle.wall_clock_millis().into(),
        };
        EnvelopeMaker { header, key: self.opener.key.clone(), compress: self.compress }
    }

    /// Wraps a body into the object `key`.
    pub(crate) fn wrap(&self, key: &str, kind: ObjectKind, body: &[u8]) -> Result<Bytes, ReplicaError> {
        self.maker(kind).wrap(key, body)
    }
}

impl EnvelopeMaker {
    /// The object has this version.
    pub(crate) fn with_version(mut self, version: u32) -> EnvelopeMaker {
        self.header.version = version.into();
        self
    }

    /// Wraps a body into the object `key`, unless it has more bytes than are opened.
    pub(crate) fn wrap(self, key: &str, body: &[u8]) -> Result<Bytes, ReplicaError> {
        if body.len() > BODY_BYTES_MAX {
            return Err(ReplicaError::TooLarge { key: key.to_owned(), bytes: body.len() });
        }
        let packed = self.compress.then(|| lz4_flex::block::compress(body));
        let packed = packed.filter(|packed| packed.len() < body.len());
        let mut header = self.header;
        header.body_bytes = (body.len() as u32).into();
        if packed.is_some() {
            header.flags |= U32::from(COMPRESSED);
        }
        let payload = packed.as_deref().unwrap_or(body);
        let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len() + TAG_BYTES + HASH_BYTES);
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(payload);
        if let Some(cipher) = &self.key {
            let aad = Aad::from(associated(key, &header));
            let nonce = Nonce::assume_unique_for_key(header.nonce);
            // It fails for more bytes than an object may have.
            if let Ok(tag) = cipher.seal_in_place_separate_tag(nonce, aad, &mut bytes[HEADER_BYTES..]) {
                bytes.extend_from_slice(tag.as_ref());
            }
        }
        let hash = hash_of(key, &bytes);
        bytes.extend_from_slice(&hash);
        Ok(bytes.into())
    }
}

impl EnvelopeOpener {
    /// Opens the object `key`, which is to be of this kind.
    pub(crate) fn open(&self, key: &str, kind: ObjectKind, bytes: &Bytes) -> Result<Opened, ReplicaError> {
        let damaged = |defect| ReplicaError::Damaged { key: key.to_owned(), defect };
        let (header, _) = Header::read_from_prefix(bytes).map_err(|_| damaged(Defect::Checksum))?;
        if header.magic != MAGIC {
            return Err(damaged(Defect::Foreign));
        }
        if !(VERSION..=kind.newest_version()).contains(&header.version.get()) {
            return Err(ReplicaError::Version { key: key.to_owned(), version: header.version.get() });
        }
        let end = bytes.len().checked_sub(HASH_BYTES).filter(|end| *end >= HEADER_BYTES);
        let end = end.ok_or(damaged(Defect::Checksum))?;
        let hash = hash_of(key, &bytes[..end]);
        if hash[..] != bytes[end..] && !self.rules.drops(ReplicaMutant::ObjectUnchecked) {
            return Err(damaged(Defect::Checksum));
        }
        if header.kind.get() != kind as u32 {
            return Err(damaged(Defect::Content));
        }
        let (flags, size) = (header.flags.get(), header.body_bytes.get() as usize);
        if flags & !(COMPRESSED | ENCRYPTED) != 0 || size > BODY_BYTES_MAX {
            return Err(damaged(Defect::Content));
        }
        let payload = self.decrypt(key, &header, bytes.slice(HEADER_BYTES..end))?;
        let body = if flags & COMPRESSED == 0 {
            payload
        } else {
            lz4_flex::block::decompress(&payload, size).map_err(|_| damaged(Defect::Content))?.into()
        };
        if body.len() != size {
            return Err(damaged(Defect::Content));
        }
        let (volume, epoch) = (header.volume.get(), header.epoch.get());
        Ok(Opened { volume, epoch, created_ms: header.created_ms.get(), hash, body })
    }

    fn decrypt(&self, key: &str, header: &Header, payload: Bytes) -> Result<Bytes, ReplicaError> {
        let cipher = match (header.flags.get() & ENCRYPTED != 0, &self.key) {
            (false, None) => return Ok(payload),
            (true, None) => return Err(ReplicaError::KeyNeeded),
            (false, Some(_)) => return Err(ReplicaError::NotEncrypted),
            (true, Some(cipher)) => cipher,
        };
        let mut payload = payload.to_vec();
        let aad = Aad::from(associated(key, header));
        let nonce = Nonce::assume_unique_for_key(header.nonce);
        let plain = cipher.open_in_place(nonce, aad, &mut payload);
        let plain = plain.map_err(|_| ReplicaError::Key(key.to_owned()))?.len();
        payload.truncate(plain);
        Ok(payload.into())
    }
}

/// What is authenticated, but not encrypted.
fn associated(key: &str, header: &Header) -> Vec<u8> {
    [key.as_bytes(), &[0], header.as_bytes()].concat()
}

fn hash_of(key: &str, bytes: &[u8]) -> Hash {
    let mut context = Context::new(&SHA256);
    context.update(key.as_bytes());
    context.update(&[0]);
    context.update(bytes);
    let mut hash = [0; HASH_BYTES];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

/// The hash of a whole object that was opened or wrapped.
pub(crate) fn hash_at_end(bytes: &[u8]) -> Hash {
    let mut hash = [0; HASH_BYTES];
    if let Some(end) = bytes.last_chunk::<HASH_BYTES>() {
        hash = *end;
    }
    hash
}
