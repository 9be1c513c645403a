//! What blocks read after shares: by every mechanism, across cleaning, and across power cuts.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::small;
use std::rc::Rc;

use weir_flash::{FlashDevice, FlashMutant, FlashOptions, Mechanism, Profile, ShareBy};
use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::{
    BLOCK_BYTES, Command, Extent, Feature, Invalid, Lba, Part, Rejected, Rules, SharePair, Storage, Ticket,
    Write, flush, read, submit_when_free,
};

fn simulated<T>(seed: u64, test: impl AsyncFnOnce(Handle) -> T) -> T {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    runtime.block_on(test(runtime.handle())).unwrap()
}

async fn submit(device: &FlashDevice, command: Command<'_>) -> Ticket {
    submit_when_free(device, command).await.unwrap()
}

async fn write(device: &FlashDevice, block: u64, content: u32) {
    let page = content.to_le_bytes().repeat(BLOCK_BYTES / 4);
    let parts = [Part::bytes(Lba(block), &page)];
    submit(device, Command::Write(Write::new(&parts))).await.transferred().await.unwrap();
}

fn pair(from: u64, to: u64) -> SharePair {
    SharePair { from: Extent::new(Lba(from), 1), to: Lba(to) }
}

fn found(device: &FlashDevice, block: u64) -> u32 {
    let mut page = vec![0xff; BLOCK_BYTES];
    device.peek(Lba(block), &mut page);
    let content = u32::from_le_bytes([page[0], page[1], page[2], page[3]]);
    assert_eq!(page, content.to_le_bytes().repeat(BLOCK_BYTES / 4), "block {block} is mixed");
    content
}

fn restarted(handle: &Handle, device: &FlashDevice, profile: &Profile) -> Rc<FlashDevice> {
    let medium = device.after_cut(&mut handle.random("cut"));
    FlashDevice::restarted(handle, profile, FlashOptions::default(), medium)
}

/// Small devices with each mechanism, and each way of a share that it has.
fn profiles() -> impl Iterator<Item = Profile> {
    Mechanism::ALL.into_iter().flat_map(|mechanism| {
        let profile = move |share_by| {
            let mut profile = small::profile(mechanism);
            profile.ftl.share_by = share_by;
            profile
        };
        let by_log = mechanism.can_log_shares().then(|| profile(ShareBy::Log));
        [profile(ShareBy::Page)].into_iter().chain(by_log)
    })
}

/// What a test that fails was about.
fn title(profile: &Profile) -> String {
    format!("{:?} by {:?}", profile.barrier.mechanism, profile.ftl.share_by)
}

/// The share waits for what was transferred. By a page it is durable when it is answered, by the log behind a flush.
#[test]
fn a_share_is_of_what_was_transferred_and_durable_when_it_is_answered_or_flushed() {
    for profile in profiles() {
        simulated(1, async |handle| {
            let device = FlashDevice::new(&handle, &profile, FlashOptions::default());
            write(&device, 1, 11).await;
            write(&device, 2, 22).await;
            write(&device, 1, 12).await;
            let pairs = [pair(1, 2), pair(2, 3), pair(9, 1)];
            submit(&device, Command::Share(&pairs)).await.transferred().await.unwrap();
            if profile.ftl.share_by == ShareBy::Log {
                let blocks = [1, 2, 3].map(|block| found(&device, block));
                assert_eq!(blocks, [0, 12, 22], "{}, before the flush", title(&profile));
                flush(&*device).await.unwrap();
            }
            let after = restarted(&handle, &device, &profile);
            for device in [&device, &after] {
                let blocks = [1, 2, 3].map(|block| found(device, block));
                assert_eq!(blocks, [0, 12, 22], "{}", title(&profile));
            }
        });
    }
}

/// One command of a random host on `device`, and what it makes of `expected`.
async fn one(device: &FlashDevice, random: &mut Random, expected: &mut [u32], number: u32) {
    let blocks = expected.len() as u64;
    match random.below(20) {
        0 => flush(device).await.unwrap(),
        1 => {
            let extent = Extent::new(Lba(random.below(blocks - 4)), 1 + random.below(4) as u32);
            submit(device, Command::Discard(&[extent])).await.transferred().await.unwrap();
            extent.iter().for_each(|lba| expected[lba.0 as usize] = 0);
        }
        2..5 => {
            let draw = |_| pair(random.below(blocks), random.below(blocks));
            let mut pairs: Vec<SharePair> = (0..8).map(draw).collect();
            pairs.retain(|pair| pair.from.start != pair.to);
            let before = expected.to_vec();
            submit(device, Command::Share(&pairs)).await.transferred().await.unwrap();
            for pair in pairs {
                expected[pair.to.0 as usize] = before[pair.from.start.0 as usize];
            }
        }
        _ => {
            let block = random.below(blocks);
            write(device, block, number).await;
            expected[block as usize] = number;
        }
    }
}

#[test]
fn shared_blocks_read_the_same_across_cleaning_and_power_cuts() {
    for (seed, profile) in profiles().enumerate() {
        simulated(seed as u64, async |handle| {
            let mut device = FlashDevice::new(&handle, &profile, FlashOptions::default());
            let mut expected = vec![0; profile.blocks as usize];
            let mut random = handle.random("host");
            let (mut moved, mut number) = (0, 0);
            for _ in 0..8 {
                for _ in 0..400 {
                    number += 1;
                    one(&device, &mut random, &mut expected, number).await;
                }
                flush(&*device).await.unwrap();
                for (block, expected) in (0..).zip(&expected) {
                    assert_eq!(found(&device, block), *expected, "{}: block {block}", title(&profile));
                }
                moved += device.stats().moved_blocks;
                let after = restarted(&handle, &device, &profile);
                device.cut_power();
                device = after;
            }
            assert!(moved > 500, "{}: {moved} blocks moved", title(&profile));
        });
    }
}

/// A device that shares by its log, with firmware that drops a rule.
fn logging(handle: &Handle, mutant: Option<FlashMutant>) -> (Rc<FlashDevice>, Profile) {
    let mut profile = small::profile(Mechanism::None);
    profile.ftl.share_by = ShareBy::Log;
    let options = FlashOptions { rules: Rules::but(mutant), ..FlashOptions::default() };
    (FlashDevice::new(handle, &profile, options), profile)
}

/// Reads see a share that is answered, though it is in the cache alone.
#[test]
fn a_read_finds_what_a_share_that_is_answered_says() {
    for (mutant, expected) in [(None, 11), (Some(FlashMutant::ShareUnseen), 22)] {
        simulated(1, async |handle| {
            let (device, _) = logging(&handle, mutant);
            write(&device, 1, 11).await;
            write(&device, 2, 22).await;
            flush(&*device).await.unwrap();
            submit(&device, Command::Share(&[pair(1, 2)])).await.transferred().await.unwrap();
            let data = read(&*device, Extent::new(Lba(2), 1)).await.unwrap();
            assert_eq!(data[..4], u32::to_le_bytes(expected));
        });
    }
}

#[test]
fn a_mechanism_that_cannot_log_shares_is_refused() {
    for mechanism in Mechanism::ALL {
        let mut profile = small::profile(mechanism);
        profile.ftl.share_by = ShareBy::Log;
        assert_eq!(profile.check().is_ok(), mechanism.can_log_shares(), "{mechanism:?}");
    }
}

#[test]
fn a_device_takes_as_much_in_a_share_as_its_profile_says() {
    simulated(1, async |handle| {
        let mut profile = small::profile(Mechanism::InOrderRecovery);
        let device = FlashDevice::new(&handle, &profile, FlashOptions::default());
        assert!(device.capabilities().share && device.capabilities().max_share_blocks == 16);
        let many = |blocks| [SharePair { from: Extent::new(Lba(0), blocks), to: Lba(40) }];
        submit(&device, Command::Share(&many(16))).await.transferred().await.unwrap();
        let refused = device.submit(Command::Share(&many(17))).map(drop);
        assert_eq!(refused, Err(Rejected::Invalid(Invalid::TooLarge { blocks: 17, limit: 16 })));
        profile.ftl.share = 0;
        let device = FlashDevice::new(&handle, &profile, FlashOptions::default());
        assert!(!device.capabilities().share);
        let refused = device.submit(Command::Share(&many(1))).map(drop);
        assert_eq!(refused, Err(Rejected::Unsupported(Feature::Share)));
        profile.ftl.share = 513;
        assert!(profile.check().unwrap_err().to_string().contains("`ftl.share` is 513"));
    });
}
