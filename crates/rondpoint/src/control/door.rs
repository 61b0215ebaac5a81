//! Accepts connections without blocking. If accept(2) fails, for example without free descriptors,
//! it pauses for a while. Otherwise the waiting connection would wake the server in a busy loop.

use std::io;
use std::time::{Duration, Instant};

/// Time without new connections after one that could not be accepted.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Open, or closed for a while.
#[derive(Debug, Default)]
pub(crate) struct Door {
    closed_until: Option<Instant>,
}

impl Door {
    /// Whether it is worth waiting for the listener.
    pub(crate) fn is_open(&self) -> bool {
        self.closed_until.is_none_or(|until| until <= Instant::now())
    }

    /// The stream of a connection that was `accepted`; `None` where there is none or it failed.
    pub(crate) fn let_in<S, A>(&mut self, accepted: io::Result<(S, A)>) -> Option<S> {
        match accepted {
            Ok((stream, _)) => Some(stream),
            Err(error) => {
                let is_none = error.kind() == io::ErrorKind::WouldBlock;
                self.closed_until = (!is_none).then(|| Instant::now() + AFTER_FAILURE);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_closes_it_for_a_while_and_an_empty_queue_does_not() {
        let failed = |kind: io::ErrorKind| Err::<((), ()), _>(kind.into());
        let mut door = Door::default();
        assert_eq!(door.let_in(Ok(((), ()))), Some(()));
        assert_eq!(door.let_in(failed(io::ErrorKind::WouldBlock)), None);
        assert!(door.is_open());
        assert_eq!(door.let_in(failed(io::ErrorKind::Other)), None);
        assert!(!door.is_open());
    }
}
