//! What is in a directory.

use futures_util::future::LocalBoxFuture;
use weir_format::{Cookie, FileTime, FileType};
use weir_vfs::{Attributes, FilesystemCalls};

use crate::error::{ImageError, in_image};

const SECONDS_A_DAY: i64 = 86_400;

/// One line for each name of a directory, sorted, without "." and ".."; for anything else one line. A long one has
/// type, permissions, links, owner, group, size and time too. Names are as they are in the image, without a line's
/// end.
///
/// # Errors
/// [`ImageError::InImage`] for what cannot be read.
pub fn list<'a>(
    filesystem: &'a dyn FilesystemCalls,
    inside: &'a [u8],
    long: bool,
) -> LocalBoxFuture<'a, Result<Vec<Vec<u8>>, ImageError>> {
    Box::pin(async move {
        let inode = filesystem.resolve(inside).await.map_err(in_image(inside))?;
        let attributes = filesystem.attributes(inode).await.map_err(in_image(inside))?;
        if attributes.kind != FileType::Directory {
            return Ok(vec![line(filesystem, inside, inside.to_vec(), inode, long).await?]);
        }
        let mut lines = Vec::new();
        for (name, inode) in names(filesystem, inside, inode).await? {
            lines.push(line(filesystem, &join(inside, &name), name, inode, long).await?);
        }
        Ok(lines)
    })
}

/// A path in an image with another name behind it.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}

/// The names of a directory and their inodes, sorted, without "." and "..".
pub(crate) async fn names(
    filesystem: &dyn FilesystemCalls,
    inside: &[u8],
    directory: u32,
) -> Result<Vec<(Vec<u8>, u32)>, ImageError> {
    let mut names = Vec::new();
    let mut cookie = Cookie::DOT_DOT;
    loop {
        let entries = filesystem.read_directory(directory, cookie).await.map_err(in_image(inside))?;
        let Some(last) = entries.last() else { break };
        cookie = last.cookie;
        names.extend(entries.into_iter().map(|entry| (entry.name, entry.target.inode)));
    }
    names.sort();
    Ok(names)
}

async fn line(
    filesystem: &dyn FilesystemCalls,
    inside: &[u8],
    name: Vec<u8>,
    inode: u32,
    long: bool,
) -> Result<Vec<u8>, ImageError> {
    if !long {
        return Ok(name);
    }
    let found = filesystem.attributes(inode).await.map_err(in_image(inside))?;
    let size = match found.kind {
        FileType::CharacterDevice | FileType::BlockDevice => {
            format!("{},{}", found.device.major, found.device.minor)
        }
        _ => found.size.to_string(),
    };
    let Attributes { links, uid, gid, modified, .. } = found;
    let mut line =
        format!("{} {links:>3} {uid:>5} {gid:>5} {size:>12} {} ", mode(&found), date(modified)).into_bytes();
    line.extend(name);
    if found.kind == FileType::Symlink {
        line.extend(b" -> ");
        line.extend(filesystem.read_link(inode).await.map_err(in_image(inside))?);
    }
    Ok(line)
}

/// Type and permissions as `ls` shows them.
fn mode(attributes: &Attributes) -> String {
    let kind = match attributes.kind {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::Symlink => 'l',
    };
    let permissions = attributes.permissions;
    let mut text = String::from(kind);
    for (shift, special, letters) in
        [(6, 0o4000, ('s', 'S')), (3, 0o2000, ('s', 'S')), (0, 0o1000, ('t', 'T'))]
    {
        let bits = permissions >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, permissions & special != 0) {
            (true, false) => 'x',
            (false, false) => '-',
            (true, true) => letters.0,
            (false, true) => letters.1,
        });
    }
    text
}

/// Day and minute in UTC.
fn date(time: FileTime) -> String {
    let (days, seconds) = (time.seconds.div_euclid(SECONDS_A_DAY), time.seconds.rem_euclid(SECONDS_A_DAY));
    // Years from March on, so that the leap day is the last: 146,097 days are 400 of them.
    let day = days + 719_468;
    let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", seconds / 3600, seconds / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        let at = |seconds| date(FileTime { seconds, nanoseconds: 0 });
        assert_eq!(at(0), "1970-01-01 00:00");
        assert_eq!(at(951_782_400 + 3_661), "2000-02-29 01:01");
        assert_eq!(at(-1), "1969-12-31 23:59");
        assert_eq!(at(4_102_444_800), "2100-01-01 00:00");
        assert_eq!(at(4_107_542_400), "2100-03-01 00:00");
    }
}
