//! Links and routes of a file: listed, or made from a bandwidth matrix; derived, or declared.

use crate::check;
use crate::error::{Fault, require};
use crate::file::{Interconnect, LinkEntry, RouteEntry};
use crate::machine::{Link, Route};
use crate::matrix::{Matrix, check_distances, square};
use crate::route;

/// The links of a file, and the latency in ns that each adds to an access (`None`: not given).
pub(crate) fn links(
    net: &Interconnect,
    nodes: usize,
) -> Result<(Vec<Link>, Vec<Option<f64>>), Fault> {
    let Some(matrix) = &net.bandwidth_mb_s else { return listed_links(net, nodes) };
    require(
        net.links.is_empty(),
        || "interconnect.links".into(),
        || "expected either links or a bandwidth matrix, got both".into(),
    )?;
    let links = matrix_links(matrix, net.distances.as_ref(), nodes)?;
    let latencies = vec![net.hop_ns; links.len()];
    Ok((links, latencies))
}

fn listed_links(net: &Interconnect, nodes: usize) -> Result<(Vec<Link>, Vec<Option<f64>>), Fault> {
    let mut links: Vec<Link> = Vec::new();
    let mut latencies = Vec::new();
    for (index, entry) in net.links.iter().enumerate() {
        let path = format!("interconnect.links[{index}]");
        check::positive(&format!("{path}.bandwidth_mb_s"), entry.bandwidth_mb_s)?;
        if let Some(latency) = entry.latency_ns {
            check::positive(&format!("{path}.latency_ns"), latency)?;
        }
        for (from, to) in ends(&path, entry, nodes)? {
            require(
                !links.iter().any(|link| link.from == from && link.to == to),
                || path.clone(),
                || format!("expected one link from node {from} to node {to}, got a second"),
            )?;
            links.push(Link { from, to, bandwidth_mb_s: entry.bandwidth_mb_s });
            latencies.push(entry.latency_ns.or(net.hop_ns));
        }
    }
    Ok((links, latencies))
}

/// The directed `(from, to)` pairs of a link entry: one or two.
fn ends(path: &str, entry: &LinkEntry, nodes: usize) -> Result<Vec<(usize, usize)>, Fault> {
    let (pairs, field): (Vec<_>, _) = match (entry.between, entry.from, entry.to) {
        (Some([a, b]), None, None) => (vec![(a, b), (b, a)], ".between"),
        (None, Some(from), Some(to)) => (vec![(from, to)], ""),
        _ => return Err(Fault::new(path, "expected either `between = [a, b]` or `from` and `to`")),
    };
    for (from, to) in &pairs {
        let field = if *from >= nodes && field.is_empty() { ".from" } else { field };
        let field = if *to >= nodes && field.is_empty() { ".to" } else { field };
        node_exists(&format!("{path}{field}"), (*from).max(*to), nodes)?;
        require(
            from != to,
            || path.to_owned(),
            || format!("expected a link between two nodes, got node {from} twice"),
        )?;
    }
    Ok(pairs)
}

fn node_exists(path: &str, node: usize, nodes: usize) -> Result<(), Fault> {
    require(
        node < nodes,
        || path.to_owned(),
        || format!("expected a node from 0 to {}, got {node}", nodes - 1),
    )
}

/// Links from a bandwidth matrix `[accessing][holding]`: one for each pair at one hop by the
/// distances, or for every pair without distances.
fn matrix_links(
    matrix: &Matrix<f64>,
    distances: Option<&Matrix<u32>>,
    nodes: usize,
) -> Result<Vec<Link>, Fault> {
    let path = "interconnect.bandwidth_mb_s";
    square(path, matrix, nodes)?;
    let near = match distances {
        None => vec![vec![true; nodes]; nodes],
        Some(distances) => nearest(distances, nodes)?,
    };
    let mut links = Vec::new();
    for (accessing, row) in matrix.iter().enumerate() {
        for (holding, &bandwidth_mb_s) in row.iter().enumerate() {
            let cell = format!("{path}[{accessing}][{holding}]");
            if accessing == holding {
                let zero = bandwidth_mb_s == 0.0;
                require(
                    zero,
                    || cell,
                    || format!("expected 0 on the diagonal, got {bandwidth_mb_s}"),
                )?;
                continue;
            }
            check::positive(&cell, bandwidth_mb_s)?;
            if near[accessing][holding] {
                links.push(Link { from: holding, to: accessing, bandwidth_mb_s });
            }
        }
    }
    Ok(links)
}

/// Whether a pair of nodes is one hop apart, `[accessing][holding]`: at the smallest distance
/// between two nodes.
fn nearest(distances: &Matrix<u32>, nodes: usize) -> Result<Matrix<bool>, Fault> {
    check_distances(distances, nodes)?;
    let off_diagonal = |a: usize| (0..nodes).filter(move |&h| h != a).map(move |h| (a, h));
    let one_hop = (0..nodes).flat_map(off_diagonal).map(|(a, h)| distances[a][h]).min();
    Ok(distances
        .iter()
        .map(|row| row.iter().map(|&distance| Some(distance) == one_hop).collect())
        .collect())
}

/// Routes of all pairs, `[accessing][holding]`: derived from the links, limited by the bandwidth
/// matrix, replaced by declared ones.
pub(crate) fn routes(
    net: &Interconnect,
    nodes: usize,
    links: &[Link],
) -> Result<Matrix<Route>, Fault> {
    let mut routes = Vec::new();
    for (accessing, row) in route::derive(nodes, links).into_iter().enumerate() {
        let mut found = Vec::new();
        for (holding, route) in row.into_iter().enumerate() {
            found.push(route.ok_or_else(|| {
                Fault::new(
                    "interconnect",
                    format!("expected links from node {holding} to node {accessing}, got no route"),
                )
            })?);
        }
        routes.push(found);
    }
    if let Some(matrix) = &net.bandwidth_mb_s {
        limit_by_matrix(&mut routes, matrix, links)?;
    }
    for (index, entry) in net.routes.iter().enumerate() {
        declare(&mut routes, entry, &format!("interconnect.routes[{index}]"), links)?;
    }
    Ok(routes)
}

/// Limits routes to the bandwidth that the matrix gives. More than the route's links carry is an
/// error.
fn limit_by_matrix(
    routes: &mut Matrix<Route>,
    matrix: &Matrix<f64>,
    links: &[Link],
) -> Result<(), Fault> {
    for (accessing, row) in matrix.iter().enumerate() {
        for (holding, &asked) in row.iter().enumerate().filter(|&(holding, _)| holding != accessing)
        {
            let route = &mut routes[accessing][holding];
            let width = route::narrowest(&route.links, links);
            require(
                asked <= width,
                || format!("interconnect.bandwidth_mb_s[{accessing}][{holding}]"),
                || {
                    format!(
                        "expected at most {width}, the widest way over one-hop links, got {asked}"
                    )
                },
            )?;
            route.limit_mb_s = (asked < width).then_some(asked);
        }
    }
    Ok(())
}

/// Replaces one derived route by the declared one.
fn declare(
    routes: &mut Matrix<Route>,
    entry: &RouteEntry,
    path: &str,
    links: &[Link],
) -> Result<(), Fault> {
    let nodes = routes.len();
    node_exists(&format!("{path}.accessing"), entry.accessing, nodes)?;
    node_exists(&format!("{path}.holding"), entry.holding, nodes)?;
    for (index, &node) in entry.via.iter().enumerate() {
        node_exists(&format!("{path}.via[{index}]"), node, nodes)?;
    }
    let ends = [entry.holding, entry.accessing];
    let mut stops = entry.via.clone();
    stops.insert(0, entry.holding);
    stops.push(entry.accessing);
    let mut seen = stops.clone();
    seen.sort_unstable();
    seen.dedup();
    require(
        seen.len() == stops.len(),
        || path.to_owned(),
        || {
            format!(
                "expected a way from node {} to node {} that passes no node twice",
                ends[0], ends[1]
            )
        },
    )?;
    let way = route::through(&stops, links).map_err(|(from, to)| {
        Fault::new(
            format!("{path}.via"),
            format!("expected links that connect, got none from node {from} to node {to}"),
        )
    })?;
    if let Some(limit) = entry.limit_mb_s {
        let field = format!("{path}.limit_mb_s");
        check::positive(&field, limit)?;
        let width = route::narrowest(&way, links);
        require(
            limit <= width,
            || field,
            || format!("expected at most the {width} of its links, got {limit}"),
        )?;
    }
    routes[entry.accessing][entry.holding] = Route { links: way, limit_mb_s: entry.limit_mb_s };
    Ok(())
}
