//! `move_pages(2)`: where pages lie, and moving them.

use std::io;

use super::check;

/// The pages to move: those of one process alone, or shared ones too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Pages that only this process has mapped (`MPOL_MF_MOVE`); others answer EACCES.
    Own = 2,
    /// Also pages that others have mapped too (`MPOL_MF_MOVE_ALL`); needs `CAP_SYS_NICE`.
    Shared = 4,
}

/// Status of one page: the node that holds it, or an error number.
pub type PageStatus = Result<u32, i32>;

/// Initial value of a status, which the kernel never writes.
const UNTOLD: i32 = i32::MIN;

fn statuses(raw: &[i32]) -> Vec<Option<PageStatus>> {
    let status = |&status: &i32| match status {
        UNTOLD => None,
        status => Some(u32::try_from(status).map_err(|_| -status)),
    };
    raw.iter().map(status).collect()
}

/// Addresses as the pointers that the call takes.
fn pointers(addresses: &[u64]) -> Vec<*const libc::c_void> {
    addresses.iter().map(|&address| address as usize as *const libc::c_void).collect()
}

/// The node of each page, the kernel's number. Process 0 is the caller.
///
/// # Errors
/// EPERM: another user's process. ESRCH: no such process. An absent page is a status (ENOENT), no
/// error.
pub fn locate(process: i32, addresses: &[u64]) -> io::Result<Vec<PageStatus>> {
    let statuses = call(process, addresses, None, Reach::Own)?;
    Ok(statuses.into_iter().map(|status| status.unwrap_or(Err(libc::ENOENT))).collect())
}

/// Moves these pages to one node, as many as possible. `None`: the kernel gives no status. After a
/// page of a batch that it cannot move it goes on moving but writes no status. Such pages need
/// [`locate`] (`move_pages_and_store_status`, mm/migrate.c, Linux 6.12).
///
/// # Errors
/// EPERM, ESRCH, EACCES (a node outside the process's cpuset), ENODEV (no such node), ENOMEM (it is
/// full; some pages may have moved), E2BIG. EPERM also without the privilege that `reach` needs.
pub fn relocate(
    process: i32,
    addresses: &[u64],
    node: u32,
    reach: Reach,
) -> io::Result<Vec<Option<PageStatus>>> {
    let node = i32::try_from(node).map_err(io::Error::other)?;
    call(process, addresses, Some(&vec![node; addresses.len()]), reach)
}

fn call(
    process: i32,
    addresses: &[u64],
    nodes: Option<&[i32]>,
    reach: Reach,
) -> io::Result<Vec<Option<PageStatus>>> {
    let pages = pointers(addresses);
    let mut status = vec![UNTOLD; pages.len()];
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
            reach as i32,
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
        assert_eq!(locate(0, &pages).unwrap()[0], Err(libc::ENOENT));
        memory.touch_every(page_bytes());
        let after = locate(0, &pages).unwrap();
        assert!(after.iter().all(Result::is_ok), "{after:?}");
    }

    #[test]
    fn a_page_moves_to_where_it_is_and_not_to_a_node_that_is_not_there() {
        let memory = Anonymous::new(page_bytes()).unwrap();
        memory.touch_every(page_bytes());
        let page = [memory.address()];
        let home = locate(0, &page).unwrap()[0].unwrap();
        assert_eq!(relocate(0, &page, home, Reach::Own).unwrap(), [Some(Ok(home))]);
        let error = relocate(0, &page, 1_000, Reach::Own).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        assert_eq!(locate(i32::MAX, &page).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
