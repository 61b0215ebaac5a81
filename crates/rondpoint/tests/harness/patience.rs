//! Waiting for something that another process does.

use std::time::{Duration, Instant};

/// Whether something comes to hold while there is `patience`.
pub(crate) fn comes(patience: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        if holds() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}
