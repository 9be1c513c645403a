//! *Positions*: where a program is in a directory, as `telldir` and the system call `getdents64` tell it.
//!
//! A 32-bit program without large-file support takes positions below 2^31 only, and the kernel does not tell which
//! program asks. So every program gets short positions, as far as there are enough of them:
//!
//! 1. A name whose group (its hash, see [`Cookie::group`]) has no other name has the group's position.
//! 2. In a group of several names, the last one has the group's position, and each of the others one below the next name's.
//!    These are remembered with the directory. Reading that goes on at such a position without being
//!    remembered, as an NFS client's does, begins with the group again: names come twice, and none is left out.
//! 3. Where the position of another name is in the way, or the group is too large to be read again each time, the others
//!    have their cookies as positions, which are 2^32 and above. A 32-bit program gets EOVERFLOW then.
//!
//! Of a million names, some 230 are in a group with another one, and one directory in ten has one with such a long
//! position.

use std::collections::VecDeque;

use weir_format::{Cookie, DirectoryEntry};

/// The greatest short position.
const SHORT_MAX: u64 = (1 << 31) - 1;
/// The position of the first group, less its number: 0 is before all names, 1 behind ".", 2 behind "..".
const GROUPS_FROM: u64 = 2;
/// A group may have so many short positions besides its own.
const OTHERS_MAX: u64 = 15;
/// Positions within groups that are remembered of one reading of a directory, the latest.
pub(crate) const REMEMBERED_MAX: usize = 64;

/// A name, and the position behind it.
#[derive(Clone, Debug)]
pub(crate) struct PlacedEntry {
    pub(crate) position: u64,
    pub(crate) entry: DirectoryEntry,
}

/// The positions within groups that a directory's readers were given, and where reading goes on behind them.
///
/// All readers share them. A reader that begins makes those void that were given before the last one began, as `rewinddir` may. Where two
/// readings have given one position, as the group has changed between them, the earlier name counts: names come
/// twice, and none is left out.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    now: VecDeque<(u64, Cookie)>,
    before: VecDeque<(u64, Cookie)>,
}

impl Positions {
    /// Those that were given, each with the cookie behind it: since the last reader began, and before.
    pub(crate) fn list(&self) -> [Vec<(u64, u64)>; 2] {
        [&self.now, &self.before]
            .map(|given| given.iter().map(|(position, cookie)| (*position, cookie.0)).collect())
    }

    /// Those that the server before has listed.
    pub(crate) fn from_list(list: &[Vec<(u64, u64)>; 2]) -> Positions {
        let [now, before] = list.each_ref().map(|given| {
            let latest = given.iter().skip(given.len().saturating_sub(REMEMBERED_MAX));
            latest.map(|(position, cookie)| (*position, Cookie(*cookie))).collect()
        });
        Positions { now, before }
    }

    /// Where reading goes on behind a position.
    pub(crate) fn cookie_of(&mut self, position: u64) -> Cookie {
        if position == 0 {
            self.before = std::mem::take(&mut self.now);
        }
        let given = self.now.iter().chain(&self.before).filter(|(given, _)| *given == position);
        if let Some(cookie) = given.map(|(_, cookie)| *cookie).min() {
            return cookie;
        }
        match position.checked_sub(GROUPS_FROM) {
            None | Some(0) => Cookie(position),
            Some(group) if position <= SHORT_MAX => Cookie::end_of_group(group as u32),
            Some(_) => Cookie(position),
        }
    }

    /// Gives positions to names that were read from `behind` on, group by group.
    pub(crate) fn place_entries(
        &mut self,
        behind: u64,
        entries: Vec<DirectoryEntry>,
    ) -> VecDeque<PlacedEntry> {
        let mut before = match behind {
            short if short <= SHORT_MAX => short,
            long => position_of(Cookie(long).group()),
        };
        let mut positions = Vec::with_capacity(entries.len());
        for group in entries.chunk_by(|one, next| one.cookie.group() == next.cookie.group()) {
            self.place_group(before, group, &mut positions);
            before = positions.last().copied().map_or(before, |last| last.min(SHORT_MAX));
        }
        let placed = positions.into_iter().zip(entries);
        placed.map(|(position, entry)| PlacedEntry { position, entry }).collect()
    }

    fn place_group(&mut self, before: u64, group: &[DirectoryEntry], positions: &mut Vec<u64>) {
        let Some((last, others)) = group.split_last() else { return };
        if last.cookie.group() == 0 {
            positions.extend(group.iter().map(|entry| entry.cookie.0));
            return;
        }
        let own = position_of(last.cookie.group());
        let count = others.len() as u64;
        let is_short = own <= SHORT_MAX;
        let have_room = is_short && count <= OTHERS_MAX && own.saturating_sub(count) > before;
        for (left, pair) in (1..=count).rev().zip(group.windows(2)) {
            // Behind a name whose cookie the next one has, too, both come again.
            let is_shared = pair[0].cookie == pair[1].cookie;
            let cookie = Cookie(pair[0].cookie.0 - u64::from(is_shared));
            if have_room {
                self.remember(own - left, cookie);
            }
            positions.push(if have_room { own - left } else { cookie.0 });
        }
        positions.push(if is_short { own } else { last.cookie.0 });
    }

    fn remember(&mut self, position: u64, cookie: Cookie) {
        let known = self.now.iter().position(|(given, _)| *given == position);
        let earlier = known.and_then(|nth| self.now.remove(nth)).map(|(_, earlier)| earlier);
        if self.now.len() == REMEMBERED_MAX {
            self.now.pop_front();
        }
        self.now.push_back((position, earlier.map_or(cookie, |earlier| earlier.min(cookie))));
    }
}

/// The position of a group, which is not short for the last two.
fn position_of(group: u32) -> u64 {
    u64::from(group) + GROUPS_FROM
}

#[cfg(test)]
mod tests {
    use weir_ext4::{HashVersion, NameHasher};
    use weir_format::{FileType, Target};

    use super::*;

    /// A directory: the group and the minor hash of each name.
    type Names = Vec<(u32, u32)>;

    fn entry((nth, &(group, minor)): (usize, &(u32, u32))) -> DirectoryEntry {
        DirectoryEntry {
            cookie: Cookie(u64::from(group) << 32 | u64::from(minor)),
            name: nth.to_string().into_bytes(),
            target: Target { inode: 12, kind: Some(FileType::Regular) },
        }
    }

    /// Names behind a cookie, as the filesystem gives them: whole groups.
    fn read(names: &Names, after: Cookie, limit: usize) -> Vec<DirectoryEntry> {
        let mut entries: Vec<_> = names.iter().enumerate().map(entry).collect();
        entries.retain(|entry| entry.cookie > after);
        if let Some(last) = entries.get(limit - 1).map(|entry| entry.cookie.group()) {
            entries.retain(|entry| entry.cookie.group() <= last);
        }
        entries
    }

    fn place(positions: &mut Positions, names: &Names, from: u64, limit: usize) -> Vec<(u64, usize)> {
        let after = positions.cookie_of(from);
        let placed = positions.place_entries(from, read(names, after, limit));
        let number = |placed: &PlacedEntry| std::str::from_utf8(&placed.entry.name).unwrap().parse().unwrap();
        placed.iter().map(|placed| (placed.position, number(placed))).collect()
    }

    /// Every position of a directory leads to the rest of the names: the first of them, behind which position.
    fn list(positions: &mut Positions, names: &Names) -> Vec<(u64, usize)> {
        let mut listed: Vec<(u64, usize)> = Vec::new();
        loop {
            let from = listed.last().map_or(0, |(position, _)| *position);
            let more = place(positions, names, from, 3);
            if more.is_empty() {
                return listed;
            }
            listed.extend(more);
        }
    }

    fn next(positions: &mut Positions, names: &Names, from: u64) -> usize {
        place(positions, names, from, 1).first().map_or(names.len(), |(_, nth)| *nth)
    }

    fn tables() -> Vec<(&'static str, Names, bool)> {
        let dots = |more: &[(u32, u32)]| [&[(0, 1), (0, 2)], more].concat();
        let last = (1 << 31) - 1;
        vec![
            ("empty", dots(&[]), true),
            ("apart", dots(&[(1, 0), (2, 9), (700, 3), (last - 2, 1)]), true),
            ("two in a group", dots(&[(5, 1), (9, 1), (9, 7), (20, 1)]), true),
            ("four in a group", dots(&[(9, 1), (9, 2), (9, 7), (9, 8), (20, 1)]), true),
            ("the first group has two", dots(&[(1, 1), (1, 2), (3, 1)]), false),
            ("a neighbour is in the way", dots(&[(8, 1), (9, 1), (9, 7), (20, 1)]), false),
            ("a neighbour is in the way of the second", dots(&[(7, 1), (9, 1), (9, 5), (9, 7)]), false),
            ("the last groups", dots(&[(last - 1, 1), (last - 1, 5), (last, 2)]), false),
        ]
    }

    #[test]
    fn each_position_leads_to_the_next_name() {
        for (what, names, all_short) in tables() {
            let mut positions = Positions::default();
            let listed = list(&mut positions, &names);
            let numbers: Vec<usize> = listed.iter().map(|(_, nth)| *nth).collect();
            assert_eq!(numbers, (0..names.len()).collect::<Vec<_>>(), "{what}");
            assert_eq!(listed.iter().all(|(position, _)| *position <= SHORT_MAX), all_short, "{what}");
            for (position, nth) in &listed {
                assert_eq!(next(&mut positions, &names, *position), nth + 1, "{what}");
            }
        }
    }

    /// Another open directory, as that of an NFS client's next call, remembers nothing.
    #[test]
    fn a_position_that_is_not_remembered_leaves_no_name_out() {
        for (what, names, _) in tables() {
            for (position, nth) in list(&mut Positions::default(), &names) {
                let first = next(&mut Positions::default(), &names, position);
                assert!(first <= nth + 1, "{what}");
                assert!(first == nth + 1 || names[first].0 == names[nth].0, "{what}");
            }
        }
    }

    /// As all have that the oldest hash function gives one value.
    #[test]
    fn names_with_one_cookie_come_again_and_none_is_left_out() {
        for count in [2, 16, 17, 300] {
            let mut names = vec![(0, 1), (0, 2), (40, 1)];
            names.extend(vec![(90, 0); count]);
            names.push((91, 0));
            let mut positions = Positions::default();
            for (position, nth) in list(&mut positions, &names) {
                let first = next(&mut positions, &names, position);
                assert!(first <= nth + 1, "{count} names");
            }
            assert!(positions.now.len() <= REMEMBERED_MAX);
        }
    }

    #[test]
    fn names_that_go_and_come_leave_no_other_out() {
        let names = vec![(0, 1), (0, 2), (9, 1), (9, 4), (9, 7), (20, 1)];
        let mut positions = Positions::default();
        let listed = list(&mut positions, &names);
        let behind_second = listed[3].0;
        // The first two of the group go, and another one comes: the last is the next all the same.
        let names = vec![(0, 1), (0, 2), (9, 5), (9, 7), (20, 1)];
        assert_eq!(next(&mut positions, &names, behind_second), 2);
        let names = vec![(0, 1), (0, 2), (9, 7), (20, 1)];
        assert_eq!(next(&mut positions, &names, behind_second), 2);
    }

    /// Two readers, and a name that comes into the group between: the second gives the first one's position to another name.
    #[test]
    fn a_reader_beside_another_one_leaves_no_name_out() {
        let names = vec![(0, 1), (0, 2), (9, 1), (9, 4), (9, 7), (20, 1)];
        let mut positions = Positions::default();
        let behind_first = list(&mut positions, &names)[2].0;
        let names = vec![(0, 1), (0, 2), (9, 1), (9, 4), (9, 5), (9, 7), (20, 1)];
        list(&mut positions, &names);
        assert_eq!(next(&mut positions, &names, behind_first), 3);
    }

    #[test]
    fn few_of_a_million_names_share_a_group_and_hardly_one_has_a_long_position() {
        let (mut others, mut long) = (0, 0);
        for seed in 0..4 {
            let hasher = NameHasher { version: HashVersion::HalfMd4, seed: [1, 2, 3, seed] };
            let mut names: Names = (0..1_000_000)
                .map(|nth| hasher.hash(format!("entry number {nth}").as_bytes()))
                .map(|hash| ((hash.major >> 1) + 1, hash.minor))
                .collect();
            names.sort_unstable();
            others += names.windows(2).filter(|pair| pair[0].0 == pair[1].0).count();
            let mut positions = Positions::default();
            let entries: Vec<_> = names.iter().enumerate().map(entry).collect();
            let placed = positions.place_entries(2, entries);
            long += placed.iter().filter(|placed| placed.position > SHORT_MAX).count();
        }
        eprintln!("in four directories of a million names: {others} share a group, {long} long positions");
        // As many as by chance: 10^12 / 2^32 in each.
        assert!((700..1200).contains(&others) && long <= 3, "{others}, {long}");
    }

    #[test]
    fn the_bound_holds() {
        let names: Names = (1..1000).flat_map(|nth| [(nth * 50, 1), (nth * 50, 2)]).collect();
        let mut positions = Positions::default();
        assert_eq!(list(&mut positions, &names).len(), names.len());
        assert_eq!(positions.now.len(), REMEMBERED_MAX);
        positions.cookie_of(0);
        assert_eq!((positions.now.len(), positions.before.len()), (0, REMEMBERED_MAX));
        positions.cookie_of(0);
        assert!(positions.before.is_empty());
    }
}
