//! Groups of process trees with the same labels. Their number is bounded, however many processes
//! come and go.
//!
//! A tree has the labels of its root: the service of systemd and the command. Process numbers,
//! scopes and containers are no labels: each login, build or restart would make new series.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rondpoint_core::Pid;

/// Groups with labels of their own. The trees beyond share one group. A group has some 20 series
/// on a machine of 8 nodes (our choice).
pub(super) const MOST: usize = 64;
/// A group without a tree keeps its labels for so long. So users cannot make series faster than
/// `MOST` in this time, whatever names they choose (our choice).
const KEPT: Duration = Duration::from_secs(3600);
/// Ending of the units that are labels.
const SERVICE: &str = ".service";

/// Labels of a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    /// The innermost service that the root's cgroup belongs to; empty where there is none.
    pub(super) unit: String,
    pub(super) command: String,
}

impl Name {
    /// Of a root with this command and this path of its cgroup.
    pub(crate) fn of(command: &str, cgroup: Option<&str>) -> Self {
        let mut parts = cgroup.unwrap_or_default().rsplit('/');
        let unit = parts.find(|part| part.ends_with(SERVICE));
        Self { unit: unit.unwrap_or_default().to_string(), command: command.to_string() }
    }

    /// Of the trees beyond [`MOST`]. No service has that name.
    pub(crate) fn other() -> Self {
        Self { unit: "other".to_string(), command: "other".to_string() }
    }
}

/// What was done to processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) bytes: u64,
    /// Masks given to threads.
    pub(crate) threads: u64,
}

impl std::ops::AddAssign for Moved {
    fn add_assign(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.threads += more.threads;
    }
}

#[derive(Debug)]
struct Group {
    moved: Moved,
    /// When it last had a tree.
    seen: Instant,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Trees by their roots.
    trees: BTreeMap<Pid, Name>,
    named: BTreeMap<Name, Group>,
    /// Of all trees that have no group of their own, and of groups that gave up their labels.
    /// `None` before the first of them.
    other: Option<Moved>,
}

impl Groups {
    /// Takes the trees of now. `name_of`: the labels of a root that was none before, unless it has
    /// ended before its children.
    pub(crate) fn follow(
        &mut self,
        roots: impl Iterator<Item = Pid>,
        name_of: impl Fn(Pid) -> Option<Name>,
        now: Instant,
    ) {
        let mut before = std::mem::take(&mut self.trees);
        for root in roots {
            // A process may change its name at will.
            let name = before.remove(&root).or_else(|| name_of(root)).unwrap_or_else(Name::other);
            self.give_place(&name, now);
            self.trees.insert(root, name);
        }
    }

    fn give_place(&mut self, name: &Name, now: Instant) {
        if let Some(group) = self.named.get_mut(name) {
            group.seen = now;
        } else if *name != Name::other() && (self.named.len() < MOST || self.end_oldest(now)) {
            self.named.insert(name.clone(), Group { moved: Moved::default(), seen: now });
        } else {
            self.other.get_or_insert_default();
        }
    }

    /// Ends the group that has been without a tree longest. Its sums stay, in those of all others.
    fn end_oldest(&mut self, now: Instant) -> bool {
        let oldest = self.named.iter().min_by_key(|(_, group)| group.seen);
        let is_over = |seen: Instant| now.duration_since(seen) >= KEPT;
        let Some((name, _)) = oldest.filter(|(_, group)| is_over(group.seen)) else { return false };
        let name = name.clone();
        if let Some(group) = self.named.remove(&name) {
            *self.other.get_or_insert_default() += group.moved;
        }
        true
    }

    /// Adds to the sums of a tree's group.
    pub(crate) fn add(&mut self, root: Option<Pid>, moved: Moved) {
        let name = root.and_then(|root| self.trees.get(&root));
        match name.and_then(|name| self.named.get_mut(name)) {
            Some(group) => group.moved += moved,
            None => *self.other.get_or_insert_default() += moved,
        }
    }

    /// The labels of a tree's series.
    pub(super) fn name(&self, root: Pid) -> Name {
        let name = self.trees.get(&root).filter(|name| self.named.contains_key(name));
        name.cloned().unwrap_or_else(Name::other)
    }

    /// Number of trees.
    pub(super) fn trees(&self) -> usize {
        self.trees.len()
    }

    /// Every group, with its sums and the number of its trees.
    pub(super) fn all(&self) -> BTreeMap<Name, (Moved, usize)> {
        let named = self.named.iter().map(|(name, group)| (name.clone(), (group.moved, 0)));
        let other = self.other.map(|moved| (Name::other(), (moved, 0)));
        let mut all: BTreeMap<Name, (Moved, usize)> = named.chain(other).collect();
        for root in self.trees.keys() {
            all.entry(self.name(*root)).or_default().1 += 1;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(command: &str) -> Name {
        Name::of(command, None)
    }

    fn follow(groups: &mut Groups, trees: &[(u32, &str)], now: Instant) {
        let of = |pid: Pid| trees.iter().find(|(root, _)| Pid(*root) == pid);
        let roots = trees.iter().map(|(root, _)| Pid(*root));
        groups.follow(roots, |pid| of(pid).map(|(_, command)| name(command)), now);
    }

    fn moved(bytes: u64) -> Moved {
        Moved { bytes, threads: 1 }
    }

    #[test]
    fn the_labels_of_a_tree_have_no_number_of_a_login_a_container_or_a_process() {
        let unit = |cgroup: &str| Name::of("cc1plus", Some(cgroup)).unit;
        assert_eq!(unit("/system.slice/postgresql@15-main.service"), "postgresql@15-main.service");
        assert_eq!(
            unit("/user.slice/user-7.slice/user@7.service/app.slice/app-x-4242.scope"),
            "user@7.service"
        );
        assert_eq!(unit("/user.slice/user-7.slice/session-31.scope"), "");
        assert_eq!(unit("/kubepods.slice/cri-containerd-0123456789abcdef.scope"), "");
        assert_eq!(Name::of("java", None), Name { unit: String::new(), command: "java".into() });
    }

    #[test]
    fn thousands_of_short_processes_are_one_group_whose_sums_never_go_down() {
        let (mut groups, now) = (Groups::default(), Instant::now());
        let mut before = 0;
        for root in 0..5_000 {
            follow(&mut groups, &[(root, "cc1plus")], now);
            groups.add(Some(Pid(root)), moved(10));
            let all = groups.all();
            assert_eq!(all.len(), 1, "{all:?}");
            let sum = all[&name("cc1plus")].0.bytes;
            assert!(sum > before, "{sum} after {before}");
            before = sum;
        }
        follow(&mut groups, &[], now);
        assert_eq!(groups.all()[&name("cc1plus")], (Moved { bytes: 50_000, threads: 5_000 }, 0));
    }

    #[test]
    fn names_beyond_the_bound_share_a_group_and_get_their_own_after_an_hour() {
        let (mut groups, now) = (Groups::default(), Instant::now());
        let sum = |groups: &Groups| groups.all().values().map(|one| one.0.bytes).sum::<u64>();
        for root in 0..1_000 {
            follow(&mut groups, &[(root, &format!("random-{root}"))], now);
            groups.add(Some(Pid(root)), moved(1));
        }
        assert_eq!(groups.all().len(), MOST + 1);
        assert_eq!(groups.all()[&Name::other()].0.bytes, 1_000 - MOST as u64);
        assert_eq!((groups.name(Pid(999)), sum(&groups)), (Name::other(), 1_000));
        // A group with a tree stays. Of the others one gives its labels up.
        let later = now + KEPT;
        follow(&mut groups, &[(0, "random-0"), (2_000, "late")], later);
        assert_eq!(
            (groups.name(Pid(2_000)), groups.name(Pid(0))),
            (name("late"), name("random-0"))
        );
        assert_eq!((groups.all().len(), sum(&groups)), (MOST + 1, 1_000));
    }

    #[test]
    fn a_root_that_ended_before_its_children_keeps_its_labels() {
        let (mut groups, now) = (Groups::default(), Instant::now());
        follow(&mut groups, &[(7, "make")], now);
        let unasked = |pid: Pid| -> Option<Name> { panic!("{pid} is known") };
        groups.follow([Pid(7)].into_iter(), unasked, now);
        assert_eq!((groups.name(Pid(7)), groups.trees()), (name("make"), 1));
        groups.follow([].into_iter(), unasked, now);
        assert_eq!((groups.name(Pid(7)), groups.trees()), (Name::other(), 0));
        assert_eq!(groups.all().len(), 1);
    }
}
