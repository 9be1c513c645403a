//! What client and server agree on before the first request: the fixed newstyle negotiation.

use weir_export::Export;
use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::error::NbdError;
use crate::inbox::Inbox;
use crate::protocol::{
    ALLOCATION, ALLOCATION_ID, OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionHeader, OptionReplyHeader,
    PAYLOAD_MAX, SERVER_MAGIC, export_flags, handshake, info, option, option_reply,
};
use crate::transport::Transport;

/// Options of one client at most.
const OPTIONS_MAX: u32 = 128;
/// Bytes of one option at most: a name of 4 KiB, and some queries.
const OPTION_BYTES_MAX: u32 = 8 << 10;
/// What EXPORT_NAME is answered with behind the export, for clients that do not go without.
const ZEROS: [u8; 124] = [0; 124];
/// Sizes of requests that are told: any at all, whole blocks best.
const SIZES: [u32; 3] = [1, 4096, PAYLOAD_MAX];

/// What was agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// Reads are answered by structured replies.
    pub structured: bool,
    /// The context `base:allocation` was chosen.
    pub allocation: bool,
}

/// What an option says, read from its front.
struct OptionData<'a>(&'a [u8]);

impl<'a> OptionData<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn number(&mut self) -> Option<u32> {
        Some(U32::read_from_bytes(self.bytes(4)?).ok()?.get())
    }

    /// Its length, then so many bytes.
    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.bytes(length as usize)
    }
}

/// The requests that a client may send which has agreed so far.
fn flags_of(export: &Export, agreed: Agreed) -> u16 {
    use export_flags as flags;
    // A flush covers what was answered on any connection (N1). Reads in one piece are a flag of structured replies.
    let fragments = if agreed.structured { flags::SEND_DF } else { 0 };
    let always = flags::HAS_FLAGS
        | flags::SEND_FLUSH
        | flags::SEND_FUA
        | flags::SEND_CACHE
        | flags::CAN_MULTI_CONN
        | fragments;
    if export.is_read_only() {
        return always | flags::READ_ONLY;
    }
    let zeros = if export.discards() { flags::SEND_TRIM | flags::SEND_FAST_ZERO } else { 0 };
    always | flags::SEND_WRITE_ZEROES | zeros
}

/// Agrees with a client on how it is served; none if it wants nothing.
pub(crate) async fn negotiate<T: Transport>(
    inbox: &mut Inbox<T>,
    transport: &T,
    export: &Export,
) -> Result<Option<Agreed>, NbdError> {
    let offered = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
    let mut greeting = [SERVER_MAGIC.to_be_bytes(), OPTION_MAGIC.to_be_bytes()].concat();
    greeting.extend_from_slice(&offered.to_be_bytes());
    transport.send(&greeting).await?;
    if !inbox.fill(size_of::<U32>()).await? {
        return Ok(None);
    }
    let flags = U32::read_from_bytes(inbox.take(size_of::<U32>()).await?).unwrap_or_default().get();
    if flags & !u32::from(offered) != 0 {
        return Err(NbdError::ClientFlags(flags));
    }
    let mut agreed = Agreed::default();
    for _ in 0..OPTIONS_MAX {
        if !inbox.fill(size_of::<OptionHeader>()).await? {
            return Ok(None);
        }
        let header = inbox.take(size_of::<OptionHeader>()).await?;
        let Ok(header) = OptionHeader::read_from_bytes(header) else { return Err(NbdError::Ended) };
        if header.magic != OPTION_MAGIC {
            return Err(NbdError::Magic { what: "an option", found: header.magic.get() });
        }
        let (option, length) = (header.option.get(), header.length.get());
        if length > OPTION_BYTES_MAX {
            return Err(NbdError::OptionTooLong(length));
        }
        let data = inbox.take(length as usize).await?;
        if option == option::EXPORT_NAME {
            let without_zeros = flags & u32::from(handshake::NO_ZEROES) != 0;
            transport.send(&export_reply(export, agreed, data, without_zeros)?).await?;
            return Ok(Some(agreed));
        }
        let (reply, ends) = option_answer(export, option, data, &mut agreed);
        transport.send(&reply).await?;
        match (ends, option) {
            (true, option::GO) => return Ok(Some(agreed)),
            (true, _) => return Ok(None),
            (false, _) => {}
        }
    }
    Err(NbdError::TooManyOptions)
}

/// The reply to EXPORT_NAME, which cannot be refused but by dropping the client.
fn export_reply(
    export: &Export,
    agreed: Agreed,
    name: &[u8],
    without_zeros: bool,
) -> Result<Vec<u8>, NbdError> {
    if !name.is_empty() {
        return Err(NbdError::UnknownExport(String::from_utf8_lossy(name).into_owned()));
    }
    let mut reply = export.bytes().to_be_bytes().to_vec();
    reply.extend_from_slice(&flags_of(export, agreed).to_be_bytes());
    reply.extend_from_slice(if without_zeros { &[] } else { &ZEROS });
    Ok(reply)
}

/// The replies to one option, and whether it ends the negotiation.
fn option_answer(export: &Export, option: u32, data: &[u8], agreed: &mut Agreed) -> (Vec<u8>, bool) {
    let mut reply = Vec::new();
    let answered = match option {
        option::ABORT => Ok(true),
        option::LIST if data.is_empty() => {
            // The length of its name.
            push_reply(&mut reply, option, option_reply::SERVER, &0_u32.to_be_bytes());
            Ok(false)
        }
        option::STRUCTURED_REPLY if data.is_empty() => {
            agreed.structured = true;
            Ok(false)
        }
        option::INFO | option::GO => export_info(export, *agreed, data, |info| {
            push_reply(&mut reply, option, option_reply::INFO, info)
        })
        .map(|()| option == option::GO),
        option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
            let sets = option == option::SET_META_CONTEXT;
            meta_contexts(data, sets, agreed).map(|is_chosen| {
                if is_chosen {
                    // A list has no numbers.
                    let id = if sets { ALLOCATION_ID } else { 0 };
                    let context = [&id.to_be_bytes(), ALLOCATION.as_bytes()].concat();
                    push_reply(&mut reply, option, option_reply::META_CONTEXT, &context);
                }
                false
            })
        }
        option::LIST | option::STRUCTURED_REPLY => Err(option_reply::INVALID),
        _ => Err(option_reply::UNSUPPORTED),
    };
    push_reply(&mut reply, option, answered.err().unwrap_or(option_reply::ACK), &[]);
    (reply, answered == Ok(true))
}

fn push_reply(reply: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    let header = OptionReplyHeader {
        magic: OPTION_REPLY_MAGIC.into(),
        option: option.into(),
        kind: kind.into(),
        length: U32::new(data.len() as u32),
    };
    reply.extend_from_slice(header.as_bytes());
    reply.extend_from_slice(data);
}

/// What INFO and GO tell: the export always, and the sizes of requests, asked for or not.
fn export_info(export: &Export, agreed: Agreed, data: &[u8], mut push: impl FnMut(&[u8])) -> Result<(), u32> {
    let mut data = OptionData(data);
    let name = data.text().ok_or(option_reply::INVALID)?;
    let count = data.bytes(size_of::<U16>()).and_then(|bytes| U16::read_from_bytes(bytes).ok());
    if count.map(|count| usize::from(count.get()) * size_of::<U16>()) != Some(data.0.len()) {
        return Err(option_reply::INVALID);
    }
    if !name.is_empty() {
        return Err(option_reply::UNKNOWN);
    }
    let mut told = info::EXPORT.to_be_bytes().to_vec();
    told.extend_from_slice(&export.bytes().to_be_bytes());
    told.extend_from_slice(&flags_of(export, agreed).to_be_bytes());
    push(&told);
    let mut told = info::BLOCK_SIZE.to_be_bytes().to_vec();
    SIZES.iter().for_each(|size| told.extend_from_slice(&size.to_be_bytes()));
    push(&told);
    Ok(())
}

/// Whether `base:allocation` is chosen, or listed.
fn meta_contexts(data: &[u8], sets: bool, agreed: &mut Agreed) -> Result<bool, u32> {
    if sets && !agreed.structured {
        return Err(option_reply::INVALID);
    }
    let mut data = OptionData(data);
    let name = data.text().ok_or(option_reply::INVALID)?;
    let count = data.number().ok_or(option_reply::INVALID)?;
    let mut is_chosen = count == 0 && !sets;
    for _ in 0..count {
        let query = data.text().ok_or(option_reply::INVALID)?;
        is_chosen |= query == ALLOCATION.as_bytes() || !sets && query == b"base:";
    }
    if !data.0.is_empty() {
        return Err(option_reply::INVALID);
    }
    if sets {
        agreed.allocation = false;
    }
    if !name.is_empty() {
        return Err(option_reply::UNKNOWN);
    }
    agreed.allocation |= sets && is_chosen;
    Ok(is_chosen)
}
