//! Limits log lines that other users can cause at will. The log has a few of them and the number of
//! the others.

use std::time::{Duration, Instant};

/// Lines in [`SPAN`] at most.
const MOST: u32 = 20;
const SPAN: Duration = Duration::from_secs(60);

/// Lines of one kind.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    began: Option<Instant>,
    told: u32,
    untold: u64,
}

impl Seldom {
    /// Whether one more is told: then how many were not told before it.
    pub(crate) fn tell(&mut self, now: Instant) -> Option<u64> {
        if self.began.is_none_or(|began| now.duration_since(began) >= SPAN) {
            (self.began, self.told) = (Some(now), 0);
        }
        if self.told >= MOST {
            self.untold += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_in_part_and_counted_in_whole() {
        let mut seldom = Seldom::default();
        let begin = Instant::now();
        let told: Vec<u64> = (0..1000).filter_map(|_| seldom.tell(begin)).collect();
        assert_eq!(told, [0; MOST as usize]);
        assert_eq!(seldom.tell(begin + SPAN), Some(1000 - u64::from(MOST)));
        assert_eq!(seldom.tell(begin + SPAN), Some(0));
    }
}
