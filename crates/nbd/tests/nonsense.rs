//! Clients that send nonsense: they are dropped, and the others are served on.

use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use weir_export::ExportOptions;
use weir_nbd::{NbdError, Transport};
use weir_runtime::{Runtime, Simulation};

use crate::support::{
    BLOCK_STATUS, Client, GO, READ, TRIM, WRITE, WRITE_ZEROES, export, option, request, worst_volume,
};

/// How the connection ends of a client that sends this after the greeting, its flags among it, and nothing more. Another
/// client is served before and after.
fn end_of(sent: &[u8], agrees: bool) -> Result<(), NbdError> {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let script = async {
        let (volume, _disk) = worst_volume(&handle, 2048).await;
        let export = export(volume, ExportOptions::default());
        let other = Client::new(&handle, &export, true).await;
        let last = export.bytes() - 4096;
        other.writes(last, &[9; 4096], 0).await;
        let Client { end, served, .. } = match agrees {
            true => Client::new(&handle, &export, false).await,
            false => Client::connect(&handle, &export),
        };
        let sending = handle.spawn({
            let sent = sent.to_vec();
            async move {
                for piece in sent.chunks(1000) {
                    let _ = Transport::send(&end, piece).await;
                }
                end.end_sending();
                while Transport::receive(&end, &mut [0; 4096]).await.is_ok_and(|bytes| bytes > 0) {}
            }
        });
        let ended = served.await.unwrap();
        drop(sending);
        other.writes(last, &[8; 4096], 0).await;
        assert_eq!(other.reads(last, 4096).await, [8; 4096]);
        ended
    };
    runtime.block_on(script).unwrap()
}

#[test]
fn nonsense_is_named() {
    let flags = 3_u32.to_be_bytes();
    let negotiating = |sent: &[u8]| end_of(&[&flags, sent].concat(), false).unwrap_err();
    assert!(matches!(negotiating(b"GET / HTTP/1.1\r\n\r\n"), NbdError::Magic { what: "an option", .. }));
    assert!(matches!(end_of(&[0xFF; 4], false), Err(NbdError::ClientFlags(0xFFFF_FFFF))));
    assert!(matches!(negotiating(&option(GO, &[0; 9000])), NbdError::OptionTooLong(9000)));
    assert!(matches!(negotiating(&option(1, b"other")), NbdError::UnknownExport(name) if name == "other"));
    assert!(matches!(negotiating(&option(3, &[])[..10]), NbdError::Ended));
    assert!(matches!(negotiating(&option(99, &[]).repeat(129)), NbdError::TooManyOptions));
    let serving = |sent: &[u8]| end_of(sent, true).unwrap_err();
    assert!(matches!(serving(&[1; 28]), NbdError::Magic { what: "a request", .. }));
    assert!(matches!(serving(&request(WRITE, 0, 1, 0, u32::MAX)), NbdError::PayloadTooLong(u32::MAX)));
    assert!(matches!(serving(&request(WRITE, 0, 1, 0, 4096)), NbdError::Ended));
    assert!(matches!(serving(&request(READ, 0, 1, 0, 4096)[..20]), NbdError::Ended));
}

#[test]
fn a_client_that_does_not_begin_is_dropped_in_time() {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let script = async {
        let (volume, _disk) = worst_volume(&handle, 2048).await;
        let client = Client::connect(&handle, &export(volume, ExportOptions::default()));
        client.greet().await;
        let began = handle.now();
        assert!(matches!(client.served.await.unwrap(), Err(NbdError::Slow)));
        assert_eq!(handle.now().since(began).as_secs(), 10);
    };
    runtime.block_on(script).unwrap();
}

/// Requests that look like some, and bytes that do not.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let commands = prop_oneof![Just(READ), Just(TRIM), Just(WRITE_ZEROES), Just(BLOCK_STATUS), any::<u16>()];
    let places = prop_oneof![0..10_u64 << 20, any::<u64>()];
    let lengths = prop_oneof![0..70_000_u32, any::<u32>()];
    prop_oneof![
        (commands, any::<u16>(), any::<u64>(), places, lengths).prop_map(
            |(command, flags, cookie, offset, length)| request(command, flags, cookie, offset, length)
        ),
        (0..5_000_u16).prop_map(|length| {
            [request(WRITE, 0, 1, 77, length.into()), vec![1; length.into()]].concat()
        }),
        (any::<u32>(), vec(any::<u8>(), 0..100)).prop_map(|(number, data)| option(number % 12, &data)),
        vec(any::<u8>(), 0..100),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever comes, the connection ends, and the last block of the other client is as it was written: no request of
    /// these tests but a wild one reaches it, and the other client writes it anew.
    #[test]
    fn whatever_comes_ends_its_own_connection(messages in vec(message(), 0..20), agrees in any::<bool>()) {
        let _any = end_of(&messages.concat(), agrees);
    }
}
