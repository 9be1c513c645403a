//! What the server of a mount hands over to the next one in the same process: a document in memory, and the descriptor of
//! `/dev/fuse`. Both come by a socket at standard input, so that no number of a descriptor has to be agreed on.
//!
//! The document is a header, which names its version and has a checksum, and JSON.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crc_fast::{CrcAlgorithm, checksum};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use weir_fuse::MountState;

use crate::restarts::Restarts;

/// What the document begins with.
const MAGIC: [u8; 8] = *b"weirhand";
/// Its version: another one is refused.
const VERSION: u32 = 1;
/// Magic, version, checksum of what follows the header, and bytes of that.
const HEADER_BYTES: usize = 8 + 4 + 4 + 8;
/// Bytes of a document at most: some 14 for each inode that the kernel knows, and 200 for each open file.
const BYTES_MAX: u64 = 256 << 20;
/// What goes with the descriptors.
const GREETING: &[u8] = b"weir";

/// What the next server has to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Handover {
    /// The program that serves, as it was started: the next server is what lies there by now.
    pub(crate) program: PathBuf,
    /// The directory in which it was started, in which paths of the command line are. The server is in another one by now.
    pub(crate) directory: PathBuf,
    /// The image, and the directory on which it is mounted; links in the latter not followed.
    pub(crate) source: PathBuf,
    pub(crate) mountpoint: PathBuf,
    pub(crate) restarts: Restarts,
    pub(crate) mount: MountState,
}

/// Why what is at standard input is no handover.
#[derive(Debug, Error)]
pub(crate) enum HandoverError {
    #[error("standard input is no socket of a server: {0}")]
    NoSocket(io::Error),
    #[error("no server has sent anything")]
    Nothing,
    #[error("the document cannot be read: {0}")]
    Unreadable(io::Error),
    #[error("it is no document of a server of Weir")]
    Foreign,
    #[error(
        "the document has version {0}, and this program knows {VERSION}: unmount, and mount by this program"
    )]
    Version(u32),
    #[error("the document has {bytes} bytes, and its header says {said}")]
    Length { bytes: u64, said: u64 },
    #[error("the document would have {0} bytes, and {BYTES_MAX} is the most: unmount, and mount again")]
    TooLarge(u64),
    #[error("the document's checksum is wrong")]
    Damaged,
    #[error("the document is malformed: {0}")]
    Malformed(serde_json::Error),
}

impl Handover {
    /// The document.
    ///
    /// # Errors
    /// [`HandoverError::TooLarge`].
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, HandoverError> {
        let body = serde_json::to_vec(self).map_err(HandoverError::Malformed)?;
        let length = body.len() as u64;
        if length > BYTES_MAX {
            return Err(HandoverError::TooLarge(length));
        }
        let header =
            [&MAGIC[..], &VERSION.to_le_bytes(), &checksum_of(&body), &length.to_le_bytes()].concat();
        Ok([header, body].concat())
    }

    /// Of a document.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Handover, HandoverError> {
        let rest = bytes.strip_prefix(&MAGIC[..]).ok_or(HandoverError::Foreign)?;
        let (version, rest) = rest.split_first_chunk().ok_or(HandoverError::Foreign)?;
        match u32::from_le_bytes(*version) {
            VERSION => {}
            other => return Err(HandoverError::Version(other)),
        }
        let (sum, rest) = rest.split_first_chunk().ok_or(HandoverError::Foreign)?;
        let (said, body) = rest.split_first_chunk().ok_or(HandoverError::Foreign)?;
        let (bytes, said) = (body.len() as u64, u64::from_le_bytes(*said));
        if bytes != said {
            return Err(HandoverError::Length { bytes, said });
        }
        if checksum_of(body) != *sum {
            return Err(HandoverError::Damaged);
        }
        serde_json::from_slice(body).map_err(HandoverError::Malformed)
    }
}

fn checksum_of(body: &[u8]) -> [u8; 4] {
    (checksum(CrcAlgorithm::Crc32Iscsi, body) as u32).to_le_bytes()
}

/// Sends a document, and the descriptor of a mount if there is one; what is returned is the standard input of the program that is to
/// have them.
///
/// # Errors
/// What the system says.
pub(crate) fn send(document: &[u8], device: Option<&File>) -> io::Result<OwnedFd> {
    let mut memory = File::from(memfd_create("handover", MemfdFlags::CLOEXEC)?);
    memory.write_all(document)?;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let descriptors: Vec<_> =
        std::iter::once(memory.as_fd()).chain(device.map(|device| device.as_fd())).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(&ours, &[IoSlice::new(GREETING)], &mut ancillary, SendFlags::empty())?;
    Ok(theirs)
}

/// What was sent to standard input, which is empty from then on. There is no descriptor where a server only asks whether this program
/// could go on.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn receive() -> Result<(Handover, Option<OwnedFd>), HandoverError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut greeting = [0; GREETING.len()];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    recvmsg(rustix::stdio::stdin(), &mut [IoSliceMut::new(&mut greeting)], &mut ancillary, flags)
        .map_err(|errno| HandoverError::NoSocket(errno.into()))?;
    let mut descriptors = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let (memory, device) = (descriptors.next().ok_or(HandoverError::Nothing)?, descriptors.next());
    let read = || {
        let null = File::options().read(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        read_document(&File::from(memory))
    };
    let document = read().map_err(HandoverError::Unreadable)?;
    Ok((Handover::from_bytes(&document)?, device))
}

fn read_document(memory: &File) -> io::Result<Vec<u8>> {
    let length = memory.metadata()?.len();
    if length > BYTES_MAX + HEADER_BYTES as u64 {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut document = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    memory.read_exact_at(&mut document, 0)?;
    Ok(document)
}

/// A handover, and the mount's descriptor of `/dev/fuse`.
pub(crate) struct TakenOver {
    pub(crate) handover: Handover,
    pub(crate) device: OwnedFd,
}

/// Whether a path leads to the filesystem that is mounted at `mountpoint`, which has to be answered for that.
pub(crate) fn is_on_mount(path: &Path, mountpoint: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let device = |path: &Path| path.metadata().map(|found| found.dev()).ok();
    let place = if path.exists() { Some(path) } else { path.parent() };
    place.and_then(device).is_some_and(|found| Some(found) == device(mountpoint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handover() -> Handover {
        Handover {
            program: "/usr/bin/weir".into(),
            directory: "/".into(),
            source: "/srv/a.weir".into(),
            mountpoint: "/mnt/weir".into(),
            restarts: Restarts { restarts: 3, restarts_asked: 4, restart_refused: Some("busy".to_owned()) },
            mount: MountState::default(),
        }
    }

    #[test]
    fn a_document_comes_back() {
        let bytes = handover().to_bytes().unwrap();
        assert_eq!(Handover::from_bytes(&bytes).unwrap(), handover());
    }

    /// Each field of the header, and the rest.
    #[test]
    fn a_damaged_document_is_an_error() {
        let whole = handover().to_bytes().unwrap();
        let refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = whole.clone();
            change(&mut bytes);
            Handover::from_bytes(&bytes).unwrap_err()
        };
        assert!(matches!(refused(&|bytes| bytes[0] ^= 1), HandoverError::Foreign));
        assert!(matches!(refused(&|bytes| bytes[8] = 2), HandoverError::Version(2)));
        assert!(matches!(refused(&|bytes| bytes[12] ^= 1), HandoverError::Damaged));
        assert!(matches!(refused(&|bytes| bytes[16] ^= 1), HandoverError::Length { .. }));
        assert!(matches!(refused(&|bytes| bytes.push(0)), HandoverError::Length { .. }));
        for nth in HEADER_BYTES..whole.len() {
            assert!(matches!(refused(&|bytes| bytes[nth] ^= 0x10), HandoverError::Damaged), "{nth}");
        }
        for length in 0..whole.len() {
            refused(&|bytes| bytes.truncate(length));
        }
        // A good checksum over something else.
        for body in [&b"{}"[..], b"", b"[]", b"null", b"\xff"] {
            let length = (body.len() as u64).to_le_bytes();
            let bytes = [&MAGIC[..], &VERSION.to_le_bytes(), &checksum_of(body), &length, body].concat();
            assert!(matches!(Handover::from_bytes(&bytes), Err(HandoverError::Malformed(_))), "{body:?}");
        }
    }

    #[test]
    fn the_version_of_another_program_is_named() {
        let mut bytes = handover().to_bytes().unwrap();
        bytes[8] = 9;
        let told = Handover::from_bytes(&bytes).unwrap_err().to_string();
        assert!(told.contains("version 9") && told.contains("knows 1"), "{told}");
    }
}
