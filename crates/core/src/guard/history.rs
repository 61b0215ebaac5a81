//! Times of the moves of each page and thread. They enforce the residence and limit moves back and
//! forth.

use super::settings::GuardSettings;
use crate::limits::MAX_REMEMBERED_MOVES;
use crate::plan::Refusal;
use crate::units::{Nanos, Pid, Tid};
use alloc::vec::Vec;
use core::hash::{BuildHasherDefault, Hash, Hasher};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

/// A page, its copies, or a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    /// A page by its process and first address.
    Page(Pid, u64),
    /// The copies of a page; making them does not move the page.
    Copies(Pid, u64),
    /// A thread.
    Thread(Tid),
}

/// Times at which a subject moved.
#[derive(Debug, Clone, PartialEq)]
struct Moves {
    last: Nanos,
    /// Earlier moves that may still be in the window. Most subjects move once, and an empty list
    /// takes no memory of its own.
    earlier: Vec<Nanos>,
}

/// Moves within the last window of time.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct History {
    /// No result depends on its order.
    moves: HashMap<Subject, Moves, BuildHasherDefault<Mix>>,
    swept: Nanos,
}

impl History {
    /// Forgets moves older than the window, once per window.
    pub(super) fn forget_old(&mut self, now: Nanos, settings: &GuardSettings) {
        if now.since(self.swept) >= settings.window {
            self.moves.retain(|_, moves| now.since(moves.last) < settings.window);
            self.swept = now;
        }
    }

    /// Whether a subject may move now. `urgent` skips residence, never the bound on moves.
    pub(super) fn may_move(
        &self,
        subject: Subject,
        now: Nanos,
        settings: &GuardSettings,
        urgent: bool,
    ) -> Result<(), Refusal> {
        match self.moves.get(&subject) {
            None => self.has_room(settings),
            Some(moves) => moves.may_move(subject, now, settings, urgent),
        }
    }

    /// Whether a subject was moved in the present step.
    pub(super) fn moves_now(&self, subject: Subject, now: Nanos) -> bool {
        self.moves.get(&subject).is_some_and(|moves| moves.last == now)
    }

    /// Remembers a move.
    pub(super) fn moved(&mut self, subject: Subject, now: Nanos, settings: &GuardSettings) {
        match self.moves.entry(subject) {
            Entry::Vacant(vacant) => drop(vacant.insert(Moves::first(now))),
            Entry::Occupied(mut occupied) => occupied.get_mut().add(now, settings),
        }
    }

    /// Notes a move if the subject may move now and did not move in the present step; `urgent`
    /// skips residence. It searches the table once, because a step calls it for many pages.
    pub(super) fn admit(
        &mut self,
        subject: Subject,
        now: Nanos,
        settings: &GuardSettings,
        urgent: bool,
    ) -> Result<(), Refusal> {
        let room = self.has_room(settings);
        match self.moves.entry(subject) {
            Entry::Vacant(vacant) => {
                room?;
                vacant.insert(Moves::first(now));
            }
            Entry::Occupied(mut occupied) => {
                let moves = occupied.get_mut();
                if moves.last == now {
                    return Err(Refusal::Conflict);
                }
                moves.may_move(subject, now, settings, urgent)?;
                moves.add(now, settings);
            }
        }
        Ok(())
    }

    /// A full history refuses new subjects, because it could not limit their moves.
    fn has_room(&self, settings: &GuardSettings) -> Result<(), Refusal> {
        match self.moves.len() < MAX_REMEMBERED_MOVES {
            true => Ok(()),
            false => Err(Refusal::Residence { left: settings.window }),
        }
    }
}

impl Moves {
    fn first(now: Nanos) -> Self {
        Self { last: now, earlier: Vec::new() }
    }

    fn add(&mut self, now: Nanos, settings: &GuardSettings) {
        self.earlier.retain(|at| now.since(*at) < settings.window);
        self.earlier.push(self.last);
        self.last = now;
    }

    /// Moves in the window that ends now.
    fn within(&self, now: Nanos, window: Nanos) -> u32 {
        let moves = self.earlier.iter().chain([&self.last]);
        moves.filter(|at| now.since(**at) < window).count() as u32
    }

    fn may_move(
        &self,
        subject: Subject,
        now: Nanos,
        settings: &GuardSettings,
        urgent: bool,
    ) -> Result<(), Refusal> {
        let residence = match subject {
            Subject::Page(..) | Subject::Copies(..) => settings.page_residence,
            Subject::Thread(_) => settings.thread_residence,
        };
        let stayed = now.since(self.last);
        if stayed < residence && !urgent {
            return Err(Refusal::Residence { left: residence.since(stayed) });
        }
        match self.within(now, settings.window) {
            moves if moves >= settings.max_moves_per_window => Err(Refusal::PingPong { moves }),
            _ => Ok(()),
        }
    }
}

/// A hash with fixed constants, the same in every run.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number ^ 0x9e37_79b9_7f4a_7c15)
            * u128::from(0xa076_1d64_78bd_642f_u64);
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_memory_refuses_new_subjects_until_it_has_forgotten_old_ones() {
        let settings = GuardSettings::acting();
        let mut history = History::default();
        let page = |number: usize| Subject::Page(Pid(1), (number as u64) << 12);
        let full = Err(Refusal::Residence { left: settings.window });
        let begin = Nanos::from_secs(100);
        for number in 0..MAX_REMEMBERED_MOVES {
            assert_eq!(history.admit(page(number), begin, &settings, false), Ok(()));
        }
        let new = page(MAX_REMEMBERED_MOVES);
        assert_eq!(history.admit(new, begin, &settings, false), full);
        assert_eq!(history.may_move(Subject::Thread(Tid(1)), begin, &settings, true), full);
        let later = begin + settings.page_residence;
        assert_eq!(history.admit(page(0), later, &settings, false), Ok(()), "it is known");
        history.forget_old(begin + settings.window, &settings);
        assert_eq!(history.moves.len(), 1, "the page that moved later");
        assert_eq!(history.admit(new, begin + settings.window, &settings, false), Ok(()));
    }
}
