//! Whether the kernel replicates pages.

use rondpoint_linux::Root;
use rondpoint_linux::act::copies::is_offered;

use super::{Check, good, limited};

/// Carrefour's third technique: the other two do without.
pub(super) fn check(root: &Root) -> Check {
    const NAME: &str = "copies of pages";
    match is_offered(root) {
        true => good(NAME, "this kernel keeps copies of pages that are only read on every node"),
        false => limited(
            NAME,
            "this kernel keeps none (NUMA replication); pages that are only read are interleaved",
            None,
        ),
    }
}
