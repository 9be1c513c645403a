//! Damaged volumes with good checksums: the fields of every structure are changed, and sealed again so that the change
//! is reached. Whatever comes of it is an error, or a volume that keeps what is written from then on; never a panic, never
//! without end, and never without bound in memory.

#[path = "support/hostile.rs"]
mod support;

use support::trial::{cases, play_corpus, within_memory};
use support::{Kind, Outcome, SHARED, Seed, Seeds, live};
use weir_runtime::{Runtime, Simulation};
use weir_storage::Lba;

/// What each field is set to, of which the first bytes are taken: one of the pairs, in turn.
const VALUES: [[u64; 2]; 2] = [[0, u64::MAX], [1, 0x1122]];

#[test]
fn seeds_are_sound_and_seals_are_right() {
    for seed in [Seed::fresh(), Seed::closed(), Seed::crashed(), Seed::thin(), Seed::shared()] {
        for how in 0..4 {
            assert_eq!(live(&seed.image, how), Outcome::Kept, "how {how}");
        }
        // To seal what is sealed changes nothing.
        for &block in seed.kinds.keys() {
            let mut image = seed.image.clone();
            seed.seal(&mut image, block);
            // The older checkpoint may name pages that were written again since.
            if !matches!(seed.kinds[&block], Kind::MapPage | Kind::Data { .. }) {
                assert_eq!(image.hash(), seed.image.hash(), "{block}: {:?}", seed.kinds[&block]);
            }
            assert_eq!(live(&image, 0), Outcome::Kept, "{block}: {:?}", seed.kinds[&block]);
        }
    }
    let of = |wanted: fn(Kind) -> bool| Seed::crashed().blocks(wanted).len();
    assert!(of(|kind| kind == Kind::Chunk) > 30 && of(|kind| matches!(kind, Kind::Data { .. })) > 60);
    assert_eq!(of(|kind| kind == Kind::MapPage), 1);
    assert!(Seed::thin().blocks(|kind| kind == Kind::MapPage).len() > 10);
}

/// An edit without a seal is seen wherever it counts: that is why edits are sealed.
#[test]
fn without_a_seal_edits_are_noticed() {
    // The newest checkpoint. A closed volume has two of one moment, and does without the one that is edited.
    for seed in [Seed::closed(), Seed::crashed()] {
        let mut bytes = seed.image.read(Lba(3));
        bytes[52] ^= 1;
        let mut image = seed.image.clone();
        image.write(Lba(3), &bytes);
        let sealed = seed.with(3, 52, &bytes[52..53]);
        assert_ne!(live(&image, 0), live(&sealed, 0));
    }
}

/// Each field of each structure, and every entry of the shorter lists.
#[test]
fn every_field() {
    let (mut refused, mut kept, mut failed) = (0, 0, 0);
    for seed in [Seed::closed(), Seed::crashed(), Seed::thin(), Seed::shared()] {
        let mut chunks = 0;
        for (&block, &kind) in &seed.kinds {
            let fields: Vec<usize> = match kind {
                Kind::Superblock => (0..88).step_by(4).collect(),
                Kind::Checkpoint => (0..240).step_by(4).collect(),
                Kind::MapPage => (0..96).step_by(4).chain(4080..4096).step_by(4).collect(),
                Kind::Chunk if chunks % 9 == 0 => (0..100).step_by(2).collect(),
                Kind::Chunk | Kind::Data { .. } => vec![],
            };
            chunks += u32::from(kind == Kind::Chunk);
            for (turn, at) in fields.into_iter().enumerate() {
                for (nth, value) in VALUES[turn % 2].into_iter().enumerate() {
                    let width = if kind == Kind::Chunk { 2 } else { 4 };
                    match live(&seed.with(block, at, &value.to_le_bytes()[..width]), (turn + nth) as u8) {
                        Outcome::Refused(_) => refused += 1,
                        Outcome::Kept => kept += 1,
                        Outcome::Failed => failed += 1,
                    }
                }
            }
        }
        within_memory();
    }
    assert!(refused > 200 && kept > 200, "{refused} refused, {kept} kept, {failed} failed");
}

/// Targets and sources of shares that are elsewhere or nowhere, shared flags that are missing, and ones that should not be.
#[test]
fn damaged_shares() {
    let seed = Seed::shared();
    let (shares, entries) = (seed.shares(), seed.entries());
    let shared = entries.iter().filter(|(.., block)| block & SHARED != 0).count();
    assert!(shares.len() > 40 && shared > 20, "{} shares, {shared} shared flags", shares.len());
    let (mut refused, mut kept) = (0, 0);
    let mut judge = |image, how| match live(&image, how) {
        Outcome::Refused(_) => refused += 1,
        Outcome::Kept | Outcome::Failed => kept += 1,
    };
    for (turn, (block, at)) in shares.into_iter().enumerate().step_by(3) {
        for (nth, value) in [0_u32, 75, 5_000, u32::MAX].into_iter().enumerate() {
            judge(seed.with(block, at + 4 * (turn % 2), &value.to_le_bytes()), nth as u8);
        }
        // Data and a share of itself, in one.
        judge(seed.with(block, at + 8, &1_u32.to_le_bytes()), turn as u8);
    }
    for (turn, (page, entry, block)) in entries.iter().copied().enumerate().step_by(3) {
        judge(seed.with(page, 8 * entry, &(block ^ SHARED).to_le_bytes()), turn as u8);
        let (.., other) = entries[turn * 7 % entries.len()];
        judge(seed.with(page, 8 * entry, &(other | SHARED).to_le_bytes()), turn as u8);
    }
    within_memory();
    assert!(refused > 20 && kept > 50, "{refused} refused, {kept} kept");
}

/// Edits as the fuzz target makes them, of places and values that count more often than others. `WEIR_CASES` says how
/// many cases; 200 if it is not set.
#[test]
fn edits_of_chance() {
    let cases = cases(200);
    let runtime = Runtime::simulated(Simulation { seed: 14, ..Simulation::default() });
    let mut random = runtime.handle().random("edits");
    let seeds = Seeds::new();
    let (mut refused, mut kept) = (0, 0);
    for _ in 0..cases {
        let mut data = vec![random.below(256) as u8];
        for _ in 0..1 + random.below(3) {
            let place = random.below(256) as u16;
            let within = [100, 4096][random.below(2) as usize];
            let at = random.below(within) as u16;
            let most = [4, 300, 1 << 16][random.below(3) as usize];
            let (how, value) = (random.below(256) as u8 & !64, random.below(most) as u16);
            let [place, at, value] = [place, at, value].map(u16::to_le_bytes);
            // One of eight is not sealed, and one is a copy.
            let how = if random.below(8) == 0 { how | 64 } else { how };
            let how = if random.below(8) == 0 { how | 128 } else { how & !128 };
            data.extend([&place[..], &at, &[how], &value].concat());
        }
        match seeds.play(&data) {
            Outcome::Refused(_) => refused += 1,
            Outcome::Kept => kept += 1,
            Outcome::Failed => {}
        }
    }
    assert!(refused > cases / 20 && kept > cases / 4, "{refused} refused, {kept} kept of {cases}");
}

/// What the fuzz target has found worth keeping: each case a file of bytes that edit a seed.
#[test]
fn cases_of_the_fuzz_target() {
    let seeds = Seeds::new();
    play_corpus("volume_recovery", |case| {
        seeds.play(case);
    });
}
