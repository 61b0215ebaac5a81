//! Whether the kernel replicates pages, and whether this process may ask for it.

use rondpoint_linux::Root;
use rondpoint_linux::act::copies::is_offered;
use rondpoint_linux::probe::{self, Capability};

use super::{Check, good, limited};

/// Carrefour's third technique: the other two do without.
pub(super) fn check(root: &Root) -> Check {
    // CAP_SYS_NICE of a user namespace does not count.
    let may_ask = probe::has_capability(root, Capability::SysNice).unwrap_or(false)
        && !probe::may_not_move_shared();
    judged(is_offered(root), may_ask)
}

fn judged(is_offered: bool, may_ask: bool) -> Check {
    const NAME: &str = "copies of pages";
    match (is_offered, may_ask) {
        (true, true) => {
            good(NAME, "this kernel keeps copies of pages that are only read on every node")
        }
        (true, false) => limited(
            NAME,
            "this kernel keeps them on every node, but making them needs CAP_SYS_NICE; pages that \
             are only read are interleaved",
            Some(super::as_root()),
        ),
        (false, _) => limited(
            NAME,
            "this kernel keeps none (NUMA replication); pages that are only read are interleaved",
            None,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_missing_capability_is_named_where_the_kernel_could_make_copies() {
        let lacking = judged(true, false);
        assert_eq!(lacking.verdict, Verdict::Limited);
        assert!(lacking.finding.contains("needs CAP_SYS_NICE"), "{}", lacking.finding);
        assert!(lacking.fix.is_some());
        assert_eq!(judged(true, true).verdict, Verdict::Good);
        let none = judged(false, false);
        assert!(!none.finding.contains("CAP_SYS_NICE") && none.fix.is_none(), "{}", none.finding);
    }
}
