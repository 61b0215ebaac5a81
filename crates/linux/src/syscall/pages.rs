//! `move_pages(2)`: where pages lie, and moving them.

use std::io;

use super::check;

/// What happened to one page: the node that holds it, or why not.
pub type PageStatus = Result<u32, io::Error>;

fn statuses(raw: &[i32]) -> Vec<PageStatus> {
    raw.iter()
        .map(|&status| u32::try_from(status).map_err(|_| io::Error::from_raw_os_error(-status)))
        .collect()
}

/// The kernel takes and returns addresses as pointers.
fn pointers(addresses: &[u64]) -> Vec<*const libc::c_void> {
    addresses.iter().map(|&address| address as usize as *const libc::c_void).collect()
}

/// The kernel's number of the node that holds each page; process 0 is the caller.
///
/// # Errors
/// EPERM for somebody else's process, ESRCH for none. A page that is not there is a status of its
/// own (ENOENT), not an error.
pub fn locate(process: i32, addresses: &[u64]) -> io::Result<Vec<PageStatus>> {
    call(process, addresses, None)
}

/// Moves each page to its node, as far as it goes; the statuses say how far.
///
/// # Errors
/// EPERM, ESRCH, EACCES (a node outside the process's cpuset), ENODEV (no such node), E2BIG.
pub fn relocate(process: i32, addresses: &[u64], nodes: &[u32]) -> io::Result<Vec<PageStatus>> {
    assert_eq!(addresses.len(), nodes.len(), "one node for each page");
    let nodes: Result<Vec<i32>, _> = nodes.iter().map(|&node| i32::try_from(node)).collect();
    call(process, addresses, Some(&nodes.map_err(io::Error::other)?))
}

fn call(process: i32, addresses: &[u64], nodes: Option<&[i32]>) -> io::Result<Vec<PageStatus>> {
    const MPOL_MF_MOVE: i32 = 2;
    let pages = pointers(addresses);
    let mut status = vec![-libc::ENOENT; pages.len()];
    // SAFETY: all arrays have `pages.len()` entries and live through the call; the kernel reads the
    // addresses as numbers and writes only `status`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            process,
            pages.len(),
            pages.as_ptr(),
            nodes.map_or(std::ptr::null(), <[i32]>::as_ptr),
            status.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    // A positive result is the number of pages that could not be moved; their statuses tell more.
    check(result).map(|_| statuses(&status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syscall::memory::{Anonymous, page_bytes};

    #[test]
    fn a_page_is_located_once_it_has_been_touched() {
        let memory = Anonymous::new(2 * page_bytes()).unwrap();
        let pages = [memory.address(), memory.address() + page_bytes() as u64];
        let before = locate(0, &pages).unwrap();
        assert_eq!(before[0].as_ref().unwrap_err().raw_os_error(), Some(libc::ENOENT));
        memory.touch_every(page_bytes());
        let after = locate(0, &pages).unwrap();
        assert!(after.iter().all(Result::is_ok), "{after:?}");
    }

    #[test]
    fn a_page_moves_to_where_it_is_and_not_to_a_node_that_is_not_there() {
        let memory = Anonymous::new(page_bytes()).unwrap();
        memory.touch_every(page_bytes());
        let page = [memory.address()];
        let home = *locate(0, &page).unwrap()[0].as_ref().unwrap();
        assert_eq!(*relocate(0, &page, &[home]).unwrap()[0].as_ref().unwrap(), home);
        assert_eq!(relocate(0, &page, &[1_000]).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert_eq!(locate(i32::MAX, &page).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
