//! Routes over directed links, derived as firmware does it: fewest hops, then the widest way, then
//! the least used one, then the lowest node number. Pure and deterministic.
//!
//! Pairs are routed in order of distance, and each route counts as use of its links. So the
//! diagonals of a ring go round it both ways instead of all over the same side.

use crate::machine::{Link, Route};

/// Number of hops, or of uses, of a node that no link leads to.
const UNREACHED: usize = usize::MAX;

/// All links, and by node the indices of the links that lead into it.
struct Graph<'a> {
    links: &'a [Link],
    into: Vec<Vec<usize>>,
}

impl<'a> Graph<'a> {
    fn new(nodes: usize, links: &'a [Link]) -> Self {
        let mut into = vec![Vec::new(); nodes];
        for (index, link) in links.iter().enumerate() {
            into[link.to].push(index);
        }
        Self { links, into }
    }
}

/// Derived routes of all pairs, `[accessing][holding]`; `None` if no links connect the pair.
pub(crate) fn derive(nodes: usize, links: &[Link]) -> Vec<Vec<Option<Route>>> {
    let graph = Graph::new(nodes, links);
    let hops: Vec<Vec<usize>> =
        (0..nodes).map(|holding| hops_from(holding, nodes, links)).collect();
    let mut routes = vec![vec![None; nodes]; nodes];
    let mut uses = vec![0usize; links.len()];
    for distance in 0..nodes {
        for accessing in 0..nodes {
            for holding in 0..nodes {
                if hops[holding][accessing] == distance {
                    let way = best_way(accessing, &hops[holding], &graph, &uses);
                    way.iter().for_each(|&link| uses[link] += 1);
                    routes[accessing][holding] = Some(Route { links: way, limit_mb_s: None });
                }
            }
        }
    }
    routes
}

/// The links through the given nodes. Error: the first pair of nodes that no link connects.
pub(crate) fn through(stops: &[usize], links: &[Link]) -> Result<Vec<usize>, (usize, usize)> {
    stops
        .windows(2)
        .map(|pair| {
            let found = links.iter().position(|link| link.from == pair[0] && link.to == pair[1]);
            found.ok_or((pair[0], pair[1]))
        })
        .collect()
}

/// Bandwidth of the narrowest link of a way, MB/s; infinite for an empty way.
pub(crate) fn narrowest(way: &[usize], links: &[Link]) -> f64 {
    way.iter().map(|&link| links[link].bandwidth_mb_s).fold(f64::INFINITY, f64::min)
}

/// Least number of links from `start` to each node.
fn hops_from(start: usize, nodes: usize, links: &[Link]) -> Vec<usize> {
    let mut hops = vec![UNREACHED; nodes];
    hops[start] = 0;
    for distance in 0..nodes {
        for link in links {
            if hops[link.from] == distance && hops[link.to] == UNREACHED {
                hops[link.to] = distance + 1;
            }
        }
    }
    hops
}

/// The best of the shortest ways to `target`, as links in the direction of the data. Wider ways are
/// better, then ways with fewer uses so far, then lower node numbers.
fn best_way(target: usize, hops: &[usize], graph: &Graph<'_>, uses: &[usize]) -> Vec<usize> {
    let links = graph.links;
    let widths = widest(hops, graph);
    let wide =
        |link: usize| links[link].bandwidth_mb_s.min(widths[links[link].from]) >= widths[target];
    let least = least_use(hops, graph, uses, &wide);
    let mut way = Vec::new();
    let mut node = target;
    while hops[node] > 0 {
        let best = last_steps(node, hops, graph).filter(|&link| wide(link)).min_by_key(|&link| {
            (uses[link].saturating_add(least[links[link].from]), links[link].from)
        });
        let link = best.expect("a node at a distance has a link from one nearer by");
        way.push(link);
        node = links[link].from;
    }
    way.reverse();
    way
}

/// The last links of all shortest ways to `node`.
fn last_steps<'a>(
    node: usize,
    hops: &'a [usize],
    graph: &'a Graph<'_>,
) -> impl Iterator<Item = usize> + 'a {
    graph.into[node].iter().copied().filter(move |&link| {
        let from = graph.links[link].from;
        hops[from] != UNREACHED && hops[from] + 1 == hops[node]
    })
}

/// Bandwidth of the widest shortest way to each node, MB/s.
fn widest(hops: &[usize], graph: &Graph<'_>) -> Vec<f64> {
    by_distance(hops, f64::INFINITY, |node, known| {
        let ways = last_steps(node, hops, graph);
        let width = |link: &Link| link.bandwidth_mb_s.min(known[link.from]);
        ways.map(|link| width(&graph.links[link])).fold(0.0, f64::max)
    })
}

/// Least sum of uses over the shortest ways to each node along links that are all `wide`.
fn least_use(
    hops: &[usize],
    graph: &Graph<'_>,
    uses: &[usize],
    wide: &impl Fn(usize) -> bool,
) -> Vec<usize> {
    by_distance(hops, 0usize, |node, known| {
        last_steps(node, hops, graph)
            .filter(|&link| wide(link))
            .map(|link| known[graph.links[link].from].saturating_add(uses[link]))
            .min()
            .unwrap_or(UNREACHED)
    })
}

/// Computes a value for each node in order of distance. `step` gets the values of nearer nodes.
fn by_distance<T: Clone>(hops: &[usize], start: T, step: impl Fn(usize, &[T]) -> T) -> Vec<T> {
    let mut order: Vec<usize> = (0..hops.len()).filter(|&node| hops[node] != UNREACHED).collect();
    order.sort_by_key(|&node| (hops[node], node));
    let mut values = vec![start; hops.len()];
    for node in order.into_iter().filter(|&node| hops[node] > 0) {
        values[node] = step(node, &values);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(text: &str) -> Vec<Link> {
        let link = |word: &str| {
            let (ends, bandwidth) = word.split_once(':').unwrap();
            let (from, to) = ends.split_once('>').unwrap();
            Link {
                from: from.parse().unwrap(),
                to: to.parse().unwrap(),
                bandwidth_mb_s: bandwidth.parse().unwrap(),
            }
        };
        text.split_whitespace().map(link).collect()
    }

    /// Links as `from>to:bandwidth`; the expected way as the nodes that the data passes.
    fn check(nodes: usize, text: &str, accessing: usize, holding: usize, expected: &str) {
        let links = links(text);
        let routes = derive(nodes, &links);
        let actual = match &routes[accessing][holding] {
            None => "none".to_owned(),
            Some(route) => {
                let to = route.links.iter().map(|&link| links[link].to);
                let stops: Vec<String> =
                    std::iter::once(holding).chain(to).map(|node| node.to_string()).collect();
                stops.join(" ")
            }
        };
        assert_eq!(actual, expected, "{text}: {accessing} reads from {holding}");
    }

    const RING: &str = "0>1:1 1>0:1 1>2:1 2>1:1 2>3:1 3>2:1 3>0:1 0>3:1";

    #[test]
    fn data_goes_the_shortest_way() {
        check(3, "0>1:9 1>2:9 0>2:1", 2, 0, "0 2");
        check(4, RING, 1, 0, "0 1");
    }

    #[test]
    fn of_equally_short_ways_the_widest_is_taken() {
        check(4, "0>1:9 1>3:2 0>2:5 2>3:4", 3, 0, "0 2 3");
    }

    #[test]
    fn a_link_in_one_direction_does_not_lead_back() {
        check(2, "0>1:1", 1, 0, "0 1");
        check(2, "0>1:1", 0, 1, "none");
    }

    #[test]
    fn the_diagonals_of_a_ring_use_each_link_once() {
        let links = links(RING);
        let mut uses = vec![0; links.len()];
        for (accessing, row) in derive(4, &links).into_iter().enumerate() {
            for (holding, route) in row.into_iter().enumerate() {
                let route = route.expect("a ring connects all");
                if accessing.abs_diff(holding) == 2 {
                    route.links.iter().for_each(|&link| uses[link] += 1);
                }
            }
        }
        assert_eq!(uses, vec![1; 8]);
    }

    #[test]
    fn declared_stops_must_be_linked() {
        let links = links("0>1:1 1>2:1");
        assert_eq!(through(&[0, 1, 2], &links), Ok(vec![0, 1]));
        assert_eq!(through(&[0, 2], &links), Err((0, 2)));
        assert_eq!(narrowest(&[0, 1], &links), 1.0);
    }
}
