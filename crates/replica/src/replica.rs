//! Data with a copy near to every thread.

use std::sync::Arc;
use std::{fmt, io};

use rondpoint_linux::Root;

use crate::copying::{self, Copy, Placement};
use crate::cpu;
use crate::refusal::Amount;
use crate::{NodeMap, Refusal, Source, room};

/// Options of copies.
#[derive(Debug, Clone)]
pub struct Options {
    /// Most bytes of all copies together, old versions with readers included. `None`: as much as
    /// the nodes and the cgroup have.
    pub budget_bytes: Option<u64>,
    /// Threads that fill one copy; at least 1, and at most one for each CPU of the place.
    pub threads_per_node: usize,
    /// Whether to advise huge pages, for data of 2 MiB and more.
    pub huge_pages: bool,
    /// The places of copies and their CPUs. `None`: one for each node ([`NodeMap::discover`]).
    pub node_map: Option<NodeMap>,
}

impl Default for Options {
    fn default() -> Self {
        // A few threads saturate a memory controller (our choice: 4). More would disturb the
        // program.
        Self { budget_bytes: None, threads_per_node: 4, huge_pages: true, node_map: None }
    }
}

/// Read-only data with a copy on each memory node, if that is possible.
#[derive(Debug)]
pub struct Replica<'a>(Held<'a>);

#[derive(Debug)]
enum Held<'a> {
    Copies {
        copies: Box<[Copy]>,
        /// The copy of each CPU, by the kernel's number.
        nearest: Box<[u16]>,
    },
    Original(Source<'a>, Refusal),
}

impl<'a> Replica<'a> {
    /// Copies the data to every node. If that is not possible, readers get the original and
    /// [`Replica::refusal`] says why. On a machine with one node nothing is copied.
    ///
    /// The calling thread waits until the data was read once for each node.
    pub fn new(source: impl Into<Source<'a>>, options: &Options) -> Self {
        let (map, refusal) = map(options);
        Self::with_map(source.into(), &map, refusal, 0, options)
    }

    /// Copies the data by a given map, or makes no copies for a given reason. `earlier`: bytes of
    /// older versions' copies, which count towards the budget.
    pub(crate) fn with_map(
        source: Source<'a>,
        map: &NodeMap,
        refusal: Option<Refusal>,
        earlier: u64,
        options: &Options,
    ) -> Self {
        let copies = match refusal {
            Some(refusal) => Err(refusal),
            None => copies(&source, map, earlier, options),
        };
        let held = match copies {
            Ok(copies) => Held::Copies { copies: copies.into(), nearest: map.nearest().into() },
            Err(refusal) => Held::Original(source, refusal),
        };
        Self(held)
    }

    /// The copy nearest to the calling thread. All copies are equal, so a thread that moves to
    /// another node may keep the slice. It is faster if it calls this again.
    #[inline]
    #[must_use]
    pub fn nearest(&self) -> &[u8] {
        match &self.0 {
            Held::Copies { copies, nearest } => {
                let copy = nearest.get(cpu::current()).map_or(0, |&copy| usize::from(copy));
                copies[copy].bytes()
            }
            Held::Original(source, _) => source.bytes(),
        }
    }

    /// The copy of one place of the map.
    #[inline]
    pub(crate) fn at(&self, place: usize) -> &[u8] {
        match &self.0 {
            Held::Copies { copies, .. } => copies[place].bytes(),
            Held::Original(source, _) => source.bytes(),
        }
    }

    /// The copies in the order of the map's places; empty if readers get the original.
    #[must_use]
    pub fn copies(&self) -> &[Copy] {
        match &self.0 {
            Held::Copies { copies, .. } => copies,
            Held::Original(..) => &[],
        }
    }

    /// Why there are no copies.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match &self.0 {
            Held::Copies { .. } => None,
            Held::Original(_, refusal) => Some(refusal),
        }
    }

    /// Bytes of all copies.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        self.copies().iter().map(|copy| copy.bytes().len() as u64).sum()
    }
}

/// One line about the copies, or why there are none.
impl fmt::Display for Replica<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copies = match &self.0 {
            Held::Original(_, refusal) => return write!(formatter, "no copies: {refusal}"),
            Held::Copies { copies, .. } => copies,
        };
        let bytes = copies.first().map_or(0, |copy| copy.bytes().len() as u64);
        write!(formatter, "{} copies of {}:", copies.len(), Amount(bytes))?;
        for (number, copy) in copies.iter().enumerate() {
            let separator = if number == 0 { "" } else { "," };
            write!(formatter, "{separator} node {}", copy.node)?;
            if let Placement::FirstTouch(refused) = copy.placement {
                let refused = io::Error::from_raw_os_error(refused);
                write!(formatter, " by first touch (mbind: {refused})")?;
            }
        }
        Ok(())
    }
}

/// The map of the options, else this machine's. If that cannot be read, a map of one place and the
/// reason.
pub(crate) fn map(options: &Options) -> (Arc<NodeMap>, Option<Refusal>) {
    cpu::prepare();
    match options.node_map.clone().map_or_else(NodeMap::discover, Ok) {
        Ok(map) => (Arc::new(map), None),
        Err(error) => (Arc::new(NodeMap::one_place()), Some(error.into())),
    }
}

fn copies(
    source: &Source<'_>,
    map: &NodeMap,
    earlier: u64,
    options: &Options,
) -> Result<Vec<Copy>, Refusal> {
    if map.places().len() < 2 {
        return Err(Refusal::OneNode);
    }
    let length = source.bytes().len();
    if length == 0 {
        return Err(Refusal::Empty);
    }
    room::check(&Root::live(), map, length as u64, earlier, options)?;
    copying::make(source, map, options)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use rondpoint_linux::syscall::affinity;

    use super::*;
    use crate::Place;

    /// One place for each CPU of this process, all on the memory of node 0.
    fn by_cpu() -> NodeMap {
        let cpus = affinity::get(0).unwrap();
        let places = cpus.iter().map(|cpu| Place { node: 0, cpus: vec![cpu as u32] });
        NodeMap::by_hand(places.collect()).unwrap()
    }

    fn two_places() -> Options {
        let places = [0, 1].map(|cpu| Place { node: 0, cpus: vec![cpu] });
        Options { node_map: NodeMap::by_hand(places.to_vec()).ok(), ..Options::default() }
    }

    #[test]
    fn every_copy_has_the_data_and_memory_of_its_own() {
        // Not a multiple of a page, of a part, or of a huge page.
        let data: Vec<u8> = (0..5_000_011u32).map(|number| (number % 251) as u8).collect();
        let replica = Replica::new(data.as_slice(), &two_places());
        assert!(replica.refusal().is_none(), "{:?}", replica.refusal());
        let [one, other] = [replica.at(0), replica.at(1)];
        assert!(one == data && other == data);
        let addresses = [one, other, &data].map(<[u8]>::as_ptr);
        assert!(addresses[0] != addresses[1] && addresses.iter().all(|a| !a.is_null()));
        assert!(!addresses[..2].contains(&addresses[2]));
        assert_eq!(replica.copied_bytes(), 2 * 5_000_011);
    }

    #[test]
    fn copies_lie_on_their_node_where_the_kernel_tells() {
        let replica = Replica::new(vec![5; 3 << 20], &two_places());
        for copy in replica.copies() {
            let (sampled, there) = copy.sampled.unwrap_or((1, 1));
            assert_eq!((there, sampled > 0, copy.node), (sampled, true, 0));
            assert!(matches!(copy.placement, Placement::Policy | Placement::FirstTouch(_)));
        }
    }

    #[test]
    fn a_thread_gets_the_copy_of_its_cpu() {
        let map = by_cpu();
        let options = Options { node_map: Some(map.clone()), ..Options::default() };
        let replica = Replica::new(vec![1; 100], &options);
        for (number, place) in map.places().iter().enumerate() {
            thread::scope(|scope| {
                scope.spawn(|| {
                    affinity::set(0, &[place.cpus[0] as usize].into_iter().collect()).unwrap();
                    assert_eq!(replica.nearest().as_ptr(), replica.at(number).as_ptr());
                });
            });
        }
    }

    #[test]
    fn one_node_reads_the_original() {
        let places = vec![Place { node: 0, cpus: vec![0, 1] }];
        let options = Options { node_map: NodeMap::by_hand(places).ok(), ..Options::default() };
        let data = [3; 10];
        let replica = Replica::new(&data[..], &options);
        assert!(matches!(replica.refusal(), Some(Refusal::OneNode)));
        assert_eq!(replica.nearest().as_ptr(), data.as_ptr());
    }

    #[test]
    fn a_line_says_what_there_is() {
        let placed =
            |replica: &Replica<'_>| matches!(replica.copies()[0].placement, Placement::Policy);
        let replica = Replica::new(vec![1; 5 << 20], &two_places());
        if placed(&replica) {
            assert_eq!(replica.to_string(), "2 copies of 5 MiB: node 0, node 0");
        } else {
            assert!(replica.to_string().contains("node 0 by first touch (mbind: "), "{replica}");
        }
        let refused = Options { budget_bytes: Some(0), ..two_places() };
        assert_eq!(
            Replica::new(vec![1; 10], &refused).to_string(),
            "no copies: copies need 20 bytes; the budget is 0 bytes"
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_and_the_original_read() {
        let options = Options { budget_bytes: Some(19), ..two_places() };
        let data = [3; 10];
        let replica = Replica::new(&data[..], &options);
        let refusal = replica.refusal().unwrap();
        assert!(matches!(refusal, Refusal::Budget { needed: 20, .. }), "{refusal}");
        assert_eq!((replica.nearest().as_ptr(), replica.copied_bytes()), (data.as_ptr(), 0));
        let none: &[u8] = &[];
        let replica = Replica::new(none, &two_places());
        assert!(matches!(replica.refusal(), Some(Refusal::Empty)));
        assert_eq!(replica.nearest(), none);
    }

    #[test]
    fn a_node_that_is_not_there_is_refused_with_its_number() {
        let places = [0, 900].map(|node| Place { node, cpus: vec![node] });
        let options = Options { node_map: NodeMap::by_hand(places.to_vec()).ok(), ..two_places() };
        let data = vec![3; 10];
        let replica = Replica::new(data.as_slice(), &options);
        let refusal = replica.refusal().unwrap().to_string();
        assert!(refusal.contains("node 900") || refusal.contains("meminfo"), "{refusal}");
        assert_eq!(replica.nearest(), data);
    }

    /// The policy is refused, so threads on the place's CPUs touch the copy first. It comes to lie
    /// on their node, which the place does not name.
    #[test]
    fn a_copy_that_came_to_lie_elsewhere_is_refused() {
        let cpu = affinity::get(0).unwrap().iter().next().unwrap() as u32;
        let place = |node, cpu| Place { node, cpus: vec![cpu] };
        let places = vec![place(900, cpu), place(0, cpu + 1)];
        let options = Options { node_map: NodeMap::by_hand(places).ok(), ..two_places() };
        let replica = Replica::new(vec![3; 100_000], &options);
        let refusal = replica.refusal().unwrap();
        let Refusal::Misplaced { node: 900, misplaced, sampled } = refusal else {
            panic!("{refusal}");
        };
        assert_eq!((misplaced, *sampled > 20), (sampled, true));
        assert_eq!(replica.nearest()[99_999], 3);
    }

    #[test]
    fn owned_data_is_freed_once_it_is_copied() {
        let data = Arc::new([1; 64]);
        struct Counted(Arc<[u8; 64]>);
        impl AsRef<[u8]> for Counted {
            fn as_ref(&self) -> &[u8] {
                &*self.0
            }
        }
        let copied = Replica::new(Source::owned(Counted(Arc::clone(&data))), &two_places());
        assert_eq!(Arc::strong_count(&data), 1);
        assert_eq!(copied.nearest(), *data);
        let refused = Options { budget_bytes: Some(0), ..two_places() };
        let kept = Replica::new(Source::owned(Counted(Arc::clone(&data))), &refused);
        assert_eq!(Arc::strong_count(&data), 2);
        drop(kept);
        assert_eq!(Arc::strong_count(&data), 1);
    }

    #[test]
    fn copies_are_unmapped_when_they_are_dropped() {
        let replica = Replica::new(vec![1; 4 << 20], &two_places());
        let address = format!("{:x}-", replica.at(0).as_ptr() as usize);
        let is_mapped = || fs::read_to_string("/proc/self/maps").unwrap().contains(&address);
        assert!(is_mapped());
        drop(replica);
        assert!(!is_mapped());
    }
}
