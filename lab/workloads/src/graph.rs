//! Breadth-first traversals of a random graph that the main thread builds.
//!
//! The start is serial. A traversal then has a few short levels with a barrier after each. Threads
//! take vertices of the level from one list, so each thread reads edges of all parts of the graph.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::flags::{Memory, Placement, Together};
use crate::pages::Pages;
use crate::random::mix;
use crate::report::{Failure, Report};
use crate::team::{Member, Team, part};

/// Edges from each vertex.
const DEGREE: usize = 8;
/// Vertices that a thread takes from the list of a level at once.
const CHUNK: usize = 32;
/// Depth of a vertex that no traversal has reached.
const UNSEEN: u64 = u64::MAX;

/// A graph, and the state of a traversal.
struct Graph {
    /// Vertex at the end of each edge; [`DEGREE`] edges for each vertex.
    edges: Pages<u64>,
    /// Edges between a vertex and the root.
    depths: Pages<AtomicU64>,
    /// The vertices of two levels: one is read while the other is filled.
    levels: [Level; 2],
}

/// The vertices of one level.
struct Level {
    vertices: Pages<AtomicU64>,
    /// Number of vertices in it.
    length: AtomicUsize,
    /// Number of vertices that threads have taken.
    taken: AtomicUsize,
}

pub(crate) fn run(flags: &Together) -> Result<Report, Failure> {
    let team = Team::new(&flags.threads, Placement::default(), &flags.pace)?;
    let graph = Graph::build(&flags.memory, flags.seed.seed)?;
    let work = |member: &mut Member<'_>, ()| graph.work(member, team.size(), flags.seed.seed);
    let reached: u64 = team.run(vec![(); team.size()], work)?.into_iter().sum();
    let last = graph.root(flags.seed.seed, team.rounds() - 1);
    let depths = graph.depths_from(last);
    let expected = depths.iter().filter(|depth| **depth != UNSEEN).count() as u64;
    let is_right = graph.depths.iter().zip(&depths).all(|(depth, by)| depth.load(Relaxed) == *by);
    Ok(Report::new("graph")
        .pair("threads", team.size())
        .pair("vertices", depths.len())
        .rounds_of(&team)
        .check("reached", reached == expected)
        .check("depths", is_right))
}

impl Graph {
    /// Builds it in this thread, which touches all of it first.
    fn build(memory: &Memory, seed: u64) -> Result<Self, Failure> {
        let count = memory.size / (8 * DEGREE);
        let map = || Pages::map(count * 8, memory.no_huge_pages);
        let mut edges = Pages::<u64>::map(count * 8 * DEGREE, memory.no_huge_pages)?;
        for (at, end) in edges.iter_mut().enumerate() {
            *end = mix(seed ^ mix(at as u64)) % count as u64;
        }
        let level = || {
            let (length, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
            Ok(Level { vertices: map()?, length, taken })
        };
        let graph = Self { edges, depths: map()?, levels: [level()?, level()?] };
        graph.depths.iter().for_each(|depth| depth.store(UNSEEN, Relaxed));
        Ok(graph)
    }

    /// The vertex from which a traversal begins.
    fn root(&self, seed: u64, round: u64) -> usize {
        (mix(mix(seed) ^ round) % self.depths.len() as u64) as usize
    }

    fn neighbours(&self, vertex: usize) -> impl Iterator<Item = usize> + '_ {
        self.edges[vertex * DEGREE..][..DEGREE].iter().map(|end| *end as usize)
    }

    /// One thread's traversals. Returns the vertices that it reached in the last one.
    fn work(&self, member: &mut Member<'_>, threads: usize, seed: u64) -> u64 {
        let own = part(self.depths.len(), member.index, threads);
        let mut round = 0;
        member.start();
        loop {
            self.depths[own.clone()].iter().for_each(|depth| depth.store(UNSEEN, Relaxed));
            member.wait();
            let reached = self.traverse(member, self.root(seed, round));
            round += 1;
            if !member.next_round() {
                return reached;
            }
        }
    }

    /// One thread's share of a traversal. Returns the vertices that it reached first.
    fn traverse(&self, member: &Member<'_>, root: usize) -> u64 {
        let mut reached = 0;
        if member.index == 0 {
            self.depths[root].store(0, Relaxed);
            self.levels[0].begin();
            self.levels[0].add(root);
            reached += 1;
        }
        for depth in 1.. {
            let (from, to) = (&self.levels[(depth + 1) % 2], &self.levels[depth % 2]);
            if member.index == 0 {
                to.begin();
            }
            member.wait();
            while let Some(vertices) = from.take() {
                for vertex in vertices {
                    for end in self.neighbours(vertex.load(Relaxed) as usize) {
                        let seen = &self.depths[end];
                        let is_first = seen.load(Relaxed) == UNSEEN
                            && seen
                                .compare_exchange(UNSEEN, depth as u64, Relaxed, Relaxed)
                                .is_ok();
                        if is_first {
                            to.add(end);
                            reached += 1;
                        }
                    }
                }
            }
            member.wait();
            if to.length.load(Relaxed) == 0 {
                break;
            }
        }
        reached
    }

    /// Depth of each vertex, by this thread alone.
    fn depths_from(&self, root: usize) -> Vec<u64> {
        let mut depths = vec![UNSEEN; self.depths.len()];
        let mut order = vec![root];
        depths[root] = 0;
        let mut at = 0;
        while let Some(&vertex) = order.get(at) {
            at += 1;
            for end in self.neighbours(vertex) {
                if depths[end] == UNSEEN {
                    depths[end] = depths[vertex] + 1;
                    order.push(end);
                }
            }
        }
        depths
    }
}

impl Level {
    /// Empties it.
    fn begin(&self) {
        self.length.store(0, Relaxed);
        self.taken.store(0, Relaxed);
    }

    fn add(&self, vertex: usize) {
        self.vertices[self.length.fetch_add(1, Relaxed)].store(vertex as u64, Relaxed);
    }

    /// The next vertices that no thread has taken.
    fn take(&self) -> Option<&[AtomicU64]> {
        let length = self.length.load(Relaxed);
        let start = self.taken.fetch_add(CHUNK, Relaxed);
        (start < length).then(|| &self.vertices[start..length.min(start + CHUNK)])
    }
}
