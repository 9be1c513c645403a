//! What requests do, and what they are refused for.

use std::rc::Rc;

use weir_export::{Export, ExportOptions, FlushMode};
use weir_nbd::{NbdError, PAYLOAD_MAX};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{Capabilities, Storage as _};

use crate::support::{
    ACK, BLOCK_STATUS, CACHE, Client, DISCONNECT, FAST_ZERO, FLUSH, FUA, GO, NO_HOLE, ONE_EXTENT, READ,
    STRUCTURED_REPLY, TRIM, WRITE, WRITE_ZEROES, export, request, worst_disk, worst_volume,
};

/// An option that asks what the export is.
const INFO: u32 = 6;

const EPERM: u32 = 1;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const ENOTSUP: u32 = 95;

/// Does something with a client of a volume in virtual time.
fn with_client(structured: bool, options: ExportOptions, work: impl AsyncFnOnce(&Handle, Client, u64)) {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let script = async {
        let (volume, _disk) = worst_volume(&handle, 8192).await;
        let bytes = volume.blocks() * 4096;
        let client = Client::new(&handle, &export(volume, options), structured).await;
        work(&handle, client, bytes).await;
    };
    runtime.block_on(script).unwrap();
}

/// The extents that a reply to block status tells: length and state.
fn extents(data: &[u8]) -> Vec<(u32, u32)> {
    assert_eq!(data[..4], 1_u32.to_be_bytes());
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    data[4..].chunks(8).map(|pair| (number(&pair[..4]), number(&pair[4..]))).collect()
}

#[test]
fn what_is_written_at_any_place_is_read() {
    for structured in [false, true] {
        with_client(structured, ExportOptions::default(), async |_, client, bytes| {
            let mut model = vec![0; 3 << 20];
            for (nth, (offset, length)) in
                [(0, 4096), (4096, 8192), (5000, 1), (100, 9000), (8191, 2), (65536, 1 << 20), (1, 300_000)]
                    .into_iter()
                    .enumerate()
            {
                let content = vec![nth as u8 + 1; length];
                model[offset..offset + length].copy_from_slice(&content);
                client.writes(offset as u64, &content, if nth % 2 == 0 { FUA } else { 0 }).await;
            }
            assert!(client.reads(0, 3 << 20).await == model);
            assert!(client.reads(4999, 7001).await == model[4999..12000]);
            assert_eq!(client.reads(bytes - 1, 1).await, [0]);
        });
    }
}

#[test]
fn zeros_and_trims_change_what_they_name_and_nothing_else() {
    with_client(true, ExportOptions::default(), async |_, client, _| {
        for (command, flags, is_exact) in [
            (WRITE_ZEROES, 0, true),
            (WRITE_ZEROES, NO_HOLE, true),
            (WRITE_ZEROES, FAST_ZERO | FUA, true),
            (TRIM, FUA, false),
        ] {
            client.writes(0, &[7; 65536], 0).await;
            assert_eq!(client.error(command, flags, 5000, 20000).await, 0);
            let mut model = [7; 65536];
            // A trim is for whole blocks.
            model[if is_exact { 5000..25000 } else { 8192..24576 }].fill(0);
            assert!(client.reads(0, 65536).await == model, "command {command}, flags {flags}");
            assert_eq!(client.error(command, flags, 4096, 100).await, 0);
            if is_exact {
                model[4096..4196].fill(0);
            }
            assert!(client.reads(0, 65536).await == model, "command {command}, flags {flags}");
        }
    });
}

#[test]
fn block_status_tells_holes() {
    with_client(true, ExportOptions::default(), async |_, client, bytes| {
        let end = bytes as u32;
        let status = async |offset, length, flags| {
            extents(&client.does(BLOCK_STATUS, flags, offset, length, &[]).await.data)
        };
        assert_eq!(status(0, end, 0).await, [(end, 3)]);
        client.writes(8192, &[1; 8192], 0).await;
        client.writes(40960, &[1; 4096], 0).await;
        let hole = end - 45056;
        assert_eq!(status(0, end, 0).await, [(8192, 3), (8192, 0), (24576, 3), (4096, 0), (hole, 3)]);
        assert_eq!(status(0, end, ONE_EXTENT).await, [(8192, 3)]);
        // From the middle of a block to the middle of another one.
        assert_eq!(status(9000, 30000, 0).await, [(7384, 0), (22616, 3)]);
        assert_eq!(status(8200, 10, 0).await, [(10, 0)]);
        client.error(TRIM, 0, 8192, 4096).await;
        assert_eq!(status(0, 16384, 0).await, [(12288, 3), (4096, 0)]);
    });
}

#[test]
fn what_cannot_be_done_is_refused_by_number() {
    with_client(true, ExportOptions::default(), async |_, client, bytes| {
        let last = bytes - 4096;
        for (command, flags, offset, length, error) in [
            (READ, 0, last, 4097, EINVAL),
            (READ, 0, u64::MAX, 2, EINVAL),
            (READ, 0, 0, PAYLOAD_MAX + 1, EINVAL),
            (READ, NO_HOLE, 0, 1, EINVAL),
            (READ, 0, 0, 0, EINVAL),
            (WRITE, 0, last, 4097, ENOSPC),
            (WRITE, 0, u64::MAX, 4096, ENOSPC),
            (WRITE, 0, 0, 0, EINVAL),
            (WRITE, 1 << 9, 0, 512, EINVAL),
            (WRITE_ZEROES, 0, last, 4097, ENOSPC),
            (WRITE_ZEROES, NO_HOLE | FAST_ZERO, 0, 4096, ENOTSUP),
            (TRIM, 0, last, 4097, EINVAL),
            (BLOCK_STATUS, 0, bytes, 1, EINVAL),
            (99, 0, 0, 0, EINVAL),
            (CACHE, 0, 0, 4096, 0),
            (FLUSH, 0, 0, 0, 0),
        ] {
            assert_eq!(client.error(command, flags, offset, length).await, error, "{command} {offset}");
        }
        client.send(&request(DISCONNECT, 0, 0, 0, 0)).await;
        client.served.await.unwrap().unwrap();
    });
}

/// As when the server stops: the end comes in the middle of a write, while others are under way.
#[test]
fn what_is_under_way_is_answered_when_the_end_comes_in_a_message() {
    with_client(false, ExportOptions::default(), async |_, client, _| {
        client.writes(0, &[5; 4096], 0).await;
        let (flush, read) = (request(FLUSH, 0, 1, 0, 0), request(READ, 0, 2, 0, 4096));
        let part = [&request(WRITE, 0, 3, 0, 4096)[..], &[6; 100]].concat();
        client.send(&[flush, read, part].concat()).await;
        client.end.end_sending();
        // A read waits for less than a flush.
        let replies = [client.reply(4096).await, client.reply(0).await];
        assert_eq!(replies.map(|reply| (reply.cookie, reply.error)), [(2, 0), (1, 0)]);
        assert!(matches!(client.served.await.unwrap(), Err(NbdError::Ended)));
    });
}

#[test]
fn a_read_only_export_refuses_changes() {
    let options = ExportOptions { read_only: true, ..ExportOptions::default() };
    with_client(false, options, async |_, client, _| {
        for command in [WRITE, TRIM, WRITE_ZEROES] {
            assert_eq!(client.error(command, 0, 0, 4096).await, EPERM);
        }
        // Without a context there is no status.
        assert_eq!(client.error(BLOCK_STATUS, 0, 0, 4096).await, EINVAL);
        assert_eq!(client.reads(0, 4096).await, [0; 4096]);
    });
}

#[test]
fn options_are_answered_as_they_should_be() {
    const LIST: u32 = 3;
    const STARTTLS: u32 = 5;
    const LIST_META_CONTEXT: u32 = 9;
    const SET_META_CONTEXT: u32 = 10;
    const UNSUPPORTED: u32 = 1 << 31 | 1;
    const INVALID: u32 = 1 << 31 | 3;
    const UNKNOWN: u32 = 1 << 31 | 6;
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let script = async {
        let (volume, _disk) = worst_volume(&handle, 2048).await;
        let export = export(volume, ExportOptions::default());
        let client = Client::connect(&handle, &export);
        client.greet().await;
        let kinds = async |option, data: &[u8]| {
            client.ask(option, data).await.into_iter().map(|(kind, _)| kind).collect::<Vec<_>>()
        };
        let text = |text: &[u8]| [&(text.len() as u32).to_be_bytes(), text].concat();
        let query = |names: &[&[u8]]| {
            let names: Vec<u8> = names.iter().flat_map(|name| text(name)).collect();
            move |count: u32| [&[0; 4][..], &count.to_be_bytes(), &names].concat()
        };
        assert_eq!(kinds(STARTTLS, &[]).await, [UNSUPPORTED]);
        assert_eq!(kinds(1000, b"what").await, [UNSUPPORTED]);
        assert_eq!(kinds(LIST, &[]).await, [2, ACK]);
        assert_eq!(kinds(LIST, b"x").await, [INVALID]);
        assert_eq!(kinds(INFO, &[0; 6]).await, [3, 3, ACK]);
        assert_eq!(kinds(INFO, &[0; 5]).await, [INVALID]);
        assert_eq!(kinds(INFO, &[0, 0, 0, 0, 0, 2, 0, 0]).await, [INVALID]);
        assert_eq!(kinds(GO, &[&text(b"other")[..], &[0; 2]].concat()).await, [UNKNOWN]);
        assert_eq!(kinds(LIST_META_CONTEXT, &query(&[])(0)).await, [4, ACK]);
        assert_eq!(kinds(LIST_META_CONTEXT, &query(&[b"base:"])(1)).await, [4, ACK]);
        assert_eq!(kinds(LIST_META_CONTEXT, &query(&[b"other:"])(1)).await, [ACK]);
        // Only with structured replies.
        assert_eq!(kinds(SET_META_CONTEXT, &query(&[b"base:allocation"])(1)).await, [INVALID]);
        assert_eq!(kinds(STRUCTURED_REPLY, &[]).await, [ACK]);
        assert_eq!(kinds(SET_META_CONTEXT, &query(&[b"base:allocation"])(2)).await, [INVALID]);
        assert_eq!(kinds(SET_META_CONTEXT, &query(&[b"base:", b"base:allocation"])(2)).await, [4, ACK]);
        // The newest choice counts.
        assert_eq!(kinds(SET_META_CONTEXT, &query(&[])(0)).await, [ACK]);
        assert_eq!(kinds(GO, &[0; 6]).await, [3, 3, ACK]);
        assert_eq!(client.error(BLOCK_STATUS, 0, 0, 4096).await, EINVAL);
    };
    runtime.block_on(script).unwrap();
}

#[test]
fn the_old_way_to_name_an_export_is_answered() {
    const EXPORT_NAME: u32 = 1;
    for (flags, zeros) in [(1_u32, 124), (3, 0)] {
        let runtime = Runtime::simulated(Simulation::default());
        let handle = runtime.handle();
        let script = async {
            let (volume, _disk) = worst_volume(&handle, 2048).await;
            let bytes = volume.blocks() * 4096;
            let client = Client::connect(&handle, &export(volume, ExportOptions::default()));
            client.take(18).await.unwrap();
            client.send(&flags.to_be_bytes()).await;
            client.send(&crate::support::option(EXPORT_NAME, &[])).await;
            let told = client.take(10 + zeros).await.unwrap();
            assert_eq!(told[..8], bytes.to_be_bytes());
            client.writes(0, &[3; 512], 0).await;
            assert_eq!(client.reads(0, 512).await, [3; 512]);
        };
        runtime.block_on(script).unwrap();
    }
}

#[test]
fn reads_in_one_piece_are_offered_with_structured_replies_alone() {
    const SEND_DF: u16 = 1 << 7;
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let script = async {
        let (volume, _disk) = worst_volume(&handle, 2048).await;
        let client = Client::connect(&handle, &export(volume, ExportOptions::default()));
        client.greet().await;
        let offers_df = async || {
            let replies = client.ask(INFO, &[0; 6]).await;
            u16::from_be_bytes(replies[0].1[10..12].try_into().unwrap()) & SEND_DF != 0
        };
        assert!(!offers_df().await);
        client.ask(STRUCTURED_REPLY, &[]).await;
        assert!(offers_df().await);
    };
    runtime.block_on(script).unwrap();
}

#[test]
fn order_takes_a_storage_that_keeps_it() {
    let runtime = Runtime::simulated(Simulation::default());
    let disk = worst_disk(&runtime.handle(), 64, Capabilities::legacy(32, 64, 512));
    let options = ExportOptions { flush: FlushMode::Order, ..ExportOptions::default() };
    assert!(Export::new(Rc::clone(&disk) as _, options).is_err());
    assert!(Export::new(disk, ExportOptions::default()).is_ok());
}
