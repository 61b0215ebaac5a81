//! Limits log lines that other users can cause at will. The log has a few of them and the number of
//! the others.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// Lines in [`SPAN`] at most.
const MOST: u32 = 20;
const SPAN: Duration = Duration::from_secs(60);
/// Users with lines of their own in [`SPAN`]. A user may have as many other users as /etc/subuid
/// gives, so those beyond these share theirs.
const MOST_USERS: usize = 32;

/// Lines of one kind.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    began: Option<Instant>,
    told: u32,
    untold: u64,
}

impl Seldom {
    fn is_within_span(&self, now: Instant) -> bool {
        self.began.is_some_and(|began| now.duration_since(began) < SPAN)
    }

    /// Whether one more is told: then how many were not told before it.
    pub(crate) fn tell(&mut self, now: Instant) -> Option<u64> {
        if !self.is_within_span(now) {
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

/// Lines of each user.
#[derive(Debug, Default)]
pub(crate) struct SeldomByUser {
    users: BTreeMap<u32, Seldom>,
    others: Seldom,
}

impl SeldomByUser {
    /// Whether one more line of this user is told. Then how many of the user's lines were not told
    /// before it, if any.
    pub(crate) fn tell(&mut self, user: u32, now: Instant) -> Option<Option<NonZeroU64>> {
        if !self.users.contains_key(&user) && self.users.len() >= MOST_USERS {
            let others = &mut self.others;
            self.users.retain(|_, lines| {
                let stays = lines.is_within_span(now);
                others.untold += if stays { 0 } else { lines.untold };
                stays
            });
        }
        let has_place = self.users.contains_key(&user) || self.users.len() < MOST_USERS;
        let lines = match has_place {
            true => self.users.entry(user).or_default(),
            false => &mut self.others,
        };
        lines.tell(now).map(NonZeroU64::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_flood_hides_no_line_of_another_and_many_users_are_bounded_together() {
        let mut lines = SeldomByUser::default();
        let begin = Instant::now();
        let told = |lines: &mut SeldomByUser, user| lines.tell(user, begin).is_some();
        assert_eq!((0..1000).filter(|_| told(&mut lines, 7)).count(), MOST as usize);
        assert!(told(&mut lines, 8));
        let flood = (0..10_000).filter(|count| told(&mut lines, 1000 + count % 5000)).count();
        assert!(flood <= MOST as usize * (MOST_USERS + 1), "{flood}");
        let later = begin + SPAN;
        assert_eq!(lines.tell(7, later), Some(NonZeroU64::new(1000 - u64::from(MOST))));
        assert_eq!(lines.tell(7, later), Some(None));
        // Those of the flood that are quiet leave their places.
        assert_eq!((0..1000).filter(|_| lines.tell(6000, later).is_some()).count(), MOST as usize);
        assert!(lines.tell(6001, later).is_some());
    }

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
