//! Whether memory of a large process has a policy of its own, in bounded time.
//!
//! For each line of `numa_maps` the kernel walks the page tables of a mapping, under the process's
//! map lock. No part of a mapping can be asked for. So lines are read one by one, up to the mapping
//! with which they would tell of too much memory. A policy of the whole program (`numactl`) shows
//! in the small mappings below, such as the program's own data. The kernel writes it for every
//! mapping without a policy of its own.

use std::io::{self, Read};
use std::path::Path;

use rondpoint_core::Bytes;

use super::allowed;
use crate::LinuxError;
use crate::lines::Lines;
use crate::parse::maps;
use crate::root::{is_absent, open};

/// Lines at most: reading them letter by letter takes some ten microseconds each.
const MOST_LINES: usize = 1_000;

/// How the policies begin that are no choice of the program's: `default` and `local`.
const USUAL: [[u8; 4]; 2] = [*b"defa", *b"loca"];

/// Whether one of the lowest mappings, which together have at most `most` bytes of address space,
/// has a policy of its own. `None` where nothing may be read.
///
/// # Errors
/// A refusal other than for want of rights, or a malformed line.
pub(super) fn is_own(numa_maps: &Path, most: Bytes) -> Result<Option<bool>, LinuxError> {
    let Some(count) = mappings_within(&numa_maps.with_file_name("maps"), most)? else {
        return Ok(None);
    };
    let file = match open(numa_maps) {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return allowed(Err(LinuxError::io(numa_maps, "open", error))),
    };
    match any_is_own(file, count.min(MOST_LINES)) {
        Err(error) if !is_absent(&error) => allowed(Err(LinuxError::io(numa_maps, "read", error))),
        found => Ok(Some(found.unwrap_or(false))),
    }
}

/// Whether one of the first `count` lines has a policy of its own.
///
/// The file is asked for letter by letter, and never for the end of the last of these lines. Where
/// a line is read to its end, the kernel goes on to the mapping behind it (`seq_read_iter`,
/// fs/seq_file.c, Linux 6.12).
fn any_is_own(mut file: impl Read, count: usize) -> io::Result<bool> {
    for number in 1..=count {
        let Some(begin) = policy_of(&mut file)? else { return Ok(false) };
        if !USUAL.contains(&begin) {
            return Ok(true);
        }
        if number < count {
            while letter_of(&mut file)?.is_some_and(|letter| letter != b'\n') {}
        }
    }
    Ok(false)
}

/// The first letters of the next line's policy, behind the address.
fn policy_of(file: &mut impl Read) -> io::Result<Option<[u8; 4]>> {
    while letter_of(file)?.is_some_and(|letter| letter != b' ') {}
    let mut begin = [0; 4];
    for place in &mut begin {
        let Some(letter) = letter_of(file)? else { return Ok(None) };
        *place = letter;
    }
    Ok(Some(begin))
}

fn letter_of(file: &mut impl Read) -> io::Result<Option<u8>> {
    let mut letter = [0];
    Ok((file.read(&mut letter)? == 1).then_some(letter[0]))
}

/// How many of the lowest mappings have at most `most` bytes of address space together. What may
/// not be accessed is not counted: a reserve without pages.
fn mappings_within(path: &Path, most: Bytes) -> Result<Option<usize>, LinuxError> {
    let Some(mut lines) = allowed(Lines::open(path))?.flatten() else { return Ok(None) };
    let (mut count, mut bytes) = (0, 0_u64);
    while let Some((number, line)) = lines.next_line()? {
        let parsed = maps::mapping_of(number, line).map_err(|source| lines.format(source))?;
        if let Some(mapping) = parsed.filter(|mapping| mapping.is_accessible) {
            bytes = bytes.saturating_add(mapping.end.saturating_sub(mapping.start));
        }
        if bytes > most.0 {
            break;
        }
        count += 1;
    }
    Ok(Some(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maps of 1, 2 and 4 MiB, one after the other, the second a reserve.
    const MAPS: &str = "100000-200000 rw-p 00000000 00:00 0 \n\
         200000-400000 ---p 00000000 00:00 0 \n\
         400000-800000 rw-p 00000000 00:00 0 \n";

    fn asked(policies: [&str; 3], most: u64) -> Option<bool> {
        let folder = tempfile::tempdir().unwrap();
        let [low, reserve, high] = policies;
        let text = format!("100000 {low} anon=1 N0=1\n200000 {reserve}\n400000 {high} anon=9\n");
        std::fs::write(folder.path().join("numa_maps"), text).unwrap();
        std::fs::write(folder.path().join("maps"), MAPS).unwrap();
        is_own(&folder.path().join("numa_maps"), Bytes(most)).unwrap()
    }

    #[test]
    fn a_policy_shows_up_to_the_mapping_that_would_be_too_much() {
        const MIB: u64 = 1 << 20;
        assert_eq!(asked(["default", "default", "default"], 9 * MIB), Some(false));
        assert_eq!(asked(["bind:0", "bind:0", "bind:0"], 2 * MIB), Some(true));
        assert_eq!(asked(["default", "default", "bind:0"], 5 * MIB), Some(true));
        assert_eq!(asked(["default", "default", "bind:0"], 4 * MIB), Some(false), "not read");
        assert_eq!(asked(["default", "bind:0", "default"], MIB), Some(true), "a reserve is free");
        assert_eq!(is_own(Path::new("/nonexistent/numa_maps"), Bytes(1)).unwrap(), None);
    }

    /// Gives one letter at a time and tells how far it was read.
    struct Told<'a> {
        text: &'a [u8],
        read: usize,
    }

    impl Read for &mut Told<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            assert_eq!(into.len(), 1);
            let Some(letter) = self.text.get(self.read) else { return Ok(0) };
            into[0] = *letter;
            self.read += 1;
            Ok(1)
        }
    }

    #[test]
    fn the_last_line_is_never_read_to_its_end() {
        let text = b"100000 default anon=1\n200000 local\n300000 bind:0\n";
        let read = |count| {
            let mut told = Told { text, read: 0 };
            let found = any_is_own(&mut told, count).unwrap();
            (found, text[..told.read].rsplit(|letter| *letter == b'\n').next().unwrap())
        };
        assert_eq!(read(0), (false, &b""[..]));
        assert_eq!(read(1), (false, &b"100000 defa"[..]));
        assert_eq!(read(2), (false, &b"200000 loca"[..]), "the kernel has not gone on");
        assert_eq!(read(3), (true, &b"300000 bind"[..]));
        let (mut empty, mut cut) = (Told { text: b"", read: 0 }, Told { text: b"1 de", read: 0 });
        assert!(!any_is_own(&mut empty, 1).unwrap() && !any_is_own(&mut cut, 1).unwrap());
    }

    /// This program's own file, whatever kernel runs.
    #[test]
    fn a_real_file_is_read() {
        assert_eq!(is_own(Path::new("/proc/self/numa_maps"), Bytes(1 << 30)).unwrap(), Some(false));
    }
}
