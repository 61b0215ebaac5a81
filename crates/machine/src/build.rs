//! From the file as written to the machine as meant: groups expanded, links and routes derived,
//! latencies and distances filled in. Says what does not fit together.

use crate::check;
use crate::error::{Fault, require};
use crate::file::{File, Interconnect, LinkEntry, RouteEntry, TransferTable};
use crate::limits;
use crate::machine::{Lab, Link, Machine, Node, Route, Transfer};
use crate::route;

/// A matrix `[accessing][holding]`.
type Matrix<T> = Vec<Vec<T>>;

/// Distance of a node to itself, by definition of the SLIT (ACPI 6.5, 5.2.17).
const LOCAL_DISTANCE: u32 = 10;
/// Means that there is no way (same section); a machine with such nodes is refused.
const UNREACHABLE_DISTANCE: u32 = 255;
/// Added for each hop where the file gives no distances: 16 and 22, as the firmware of the 8-node
/// Opteron 6272 reports.
const DISTANCE_PER_HOP: u32 = 6;

/// Builds the machine, or says which field does not fit.
pub(crate) fn machine(file: File) -> Result<Machine, Fault> {
    check::values(&file)?;
    let nodes = nodes(&file)?;
    let net = &file.interconnect;
    let (links, link_ns) = links(net, nodes.len())?;
    let routes = routes(net, nodes.len(), &links)?;
    let wire = wire(&routes, &link_ns);
    let latency_ns = latencies(net, &nodes, &wire)?;
    let transfer_ns = transfers(&file.transfer, net, &nodes, &latency_ns, &wire)?;
    let distances = distances(net, nodes.len(), &routes)?;
    if let Some(lab) = &file.lab {
        check::lab(&file, lab)?;
    }
    Ok(Machine {
        name: file.name,
        title: file.title,
        source: file.source,
        core: file.core,
        caches: file.caches,
        prefetch: file.prefetch,
        nodes,
        latency_ns,
        transfer_ns,
        distances,
        links,
        routes,
        pmu: file.pmu,
        lab: file.lab.unwrap_or(NOT_FOR_THE_LAB),
    })
}

/// What a file without a `[lab]` table means.
const NOT_FOR_THE_LAB: Lab = Lab {
    slow_motion: 1.0,
    cpus_per_node: 0,
    cache_domains_per_node: 0,
    memory_mib: 0,
    cache_scale: 1.0,
    l2_scale: 1.0,
    quantum_ns: 0,
    applied: false,
};

fn nodes(file: &File) -> Result<Vec<Node>, Fault> {
    let count = check::expanded(file).count();
    require(
        (1..=limits::NODES_MAX).contains(&count),
        || "nodes".into(),
        || format!("expected 1 to {} nodes, got {count}", limits::NODES_MAX),
    )?;
    require(
        file.nodes.iter().any(|group| group.cpus > 0),
        || "nodes".into(),
        || "expected at least one node with CPUs".into(),
    )?;
    let node = |group: &crate::file::NodeGroup| Node {
        cpus: group.cpus,
        cache_domains: group.domains(),
        memory_bytes: group.memory,
        controller: group.controller.clone(),
    };
    Ok(check::expanded(file).map(node).collect())
}

/// The links and what each adds to an access, ns.
fn links(net: &Interconnect, nodes: usize) -> Result<(Vec<Link>, Vec<Option<f64>>), Fault> {
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

/// The directed pairs of an entry.
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

/// A link for each pair that the distances call nearest (every pair, where there are none).
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

/// Which pairs are one hop apart: those at the smallest distance between two nodes.
fn nearest(distances: &Matrix<u32>, nodes: usize) -> Result<Matrix<bool>, Fault> {
    check_distances(distances, nodes)?;
    let off_diagonal = |a: usize| (0..nodes).filter(move |&h| h != a).map(move |h| (a, h));
    let one_hop = (0..nodes).flat_map(off_diagonal).map(|(a, h)| distances[a][h]).min();
    Ok(distances
        .iter()
        .map(|row| row.iter().map(|&distance| Some(distance) == one_hop).collect())
        .collect())
}

fn routes(net: &Interconnect, nodes: usize, links: &[Link]) -> Result<Matrix<Route>, Fault> {
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

/// A pair reaches what the matrix says: less than its links carry is a limit, more is impossible.
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

/// Latency that the links of each route add; `None` where a link does not say.
fn wire(routes: &Matrix<Route>, link_ns: &[Option<f64>]) -> Matrix<Option<f64>> {
    let sum = |route: &Route| route.links.iter().map(|&link| link_ns[link]).sum();
    routes.iter().map(|row| row.iter().map(sum).collect()).collect()
}

fn latencies(
    net: &Interconnect,
    nodes: &[Node],
    wire: &Matrix<Option<f64>>,
) -> Result<Matrix<f64>, Fault> {
    if let Some(matrix) = &net.latency_ns {
        return given_latencies(matrix, nodes);
    }
    if let Some(hop_ns) = net.hop_ns {
        check::positive("interconnect.hop_ns", hop_ns)?;
    }
    let cell = |wire: &Option<f64>, node: &Node| match (&node.controller, wire) {
        (None, _) => Ok(0.0),
        (Some(controller), Some(wire)) => Ok(controller.latency_ns + wire),
        (Some(_), None) => Err(Fault::new(
            "interconnect",
            "expected hop_ns, a latency_ns for each link, or a latency_ns matrix",
        )),
    };
    wire.iter()
        .map(|row| row.iter().zip(nodes).map(|(wire, node)| cell(wire, node)).collect())
        .collect()
}

fn given_latencies(matrix: &Matrix<f64>, nodes: &[Node]) -> Result<Matrix<f64>, Fault> {
    let path = "interconnect.latency_ns";
    square(path, matrix, nodes.len())?;
    for (accessing, row) in matrix.iter().enumerate() {
        for (holding, &latency) in row.iter().enumerate() {
            let cell = format!("{path}[{accessing}][{holding}]");
            match &nodes[holding].controller {
                None => require(
                    latency == 0.0,
                    || cell,
                    || format!("expected 0, node {holding} has no memory, got {latency}"),
                )?,
                Some(local) if accessing == holding => {
                    require(
                        latency == local.latency_ns,
                        || cell,
                        || format!("expected the controller's {}, got {latency}", local.latency_ns),
                    )?;
                }
                Some(_) => check::positive(&cell, latency)?,
            }
        }
    }
    Ok(matrix.clone())
}

fn transfers(
    table: &TransferTable,
    net: &Interconnect,
    nodes: &[Node],
    latency_ns: &Matrix<f64>,
    wire: &Matrix<Option<f64>>,
) -> Result<Transfer, Fault> {
    let same_node_ns = table.same_node_ns.unwrap_or(table.same_domain_ns);
    let remote_ns = match (&table.matrix_ns, table.remote_ns) {
        (Some(matrix), None) => given_transfers(matrix, nodes, same_node_ns)?,
        (None, remote) => {
            let mut matrix = vec![vec![0.0; nodes.len()]; nodes.len()];
            for (accessing, owner) in cpu_pairs(nodes) {
                matrix[accessing][owner] = if accessing == owner {
                    same_node_ns
                } else {
                    let base = remote.ok_or_else(|| {
                        Fault::new("transfer", "expected remote_ns or matrix_ns between nodes")
                    })?;
                    let sum = base + transfer_wire(accessing, owner, net, nodes, latency_ns, wire)?;
                    check::positive("transfer.remote_ns", sum)?;
                    sum
                };
            }
            matrix
        }
        (Some(_), Some(_)) => {
            return Err(Fault::new("transfer", "expected remote_ns or matrix_ns, got both"));
        }
    };
    Ok(Transfer { same_domain_ns: table.same_domain_ns, same_node_ns, remote_ns })
}

/// The wire's part of a transfer: of the links, or of the given latencies without the controller.
fn transfer_wire(
    accessing: usize,
    owner: usize,
    net: &Interconnect,
    nodes: &[Node],
    latency_ns: &Matrix<f64>,
    wire: &Matrix<Option<f64>>,
) -> Result<f64, Fault> {
    let from_latency = match (&net.latency_ns, &nodes[owner].controller) {
        (Some(_), Some(controller)) => Some(latency_ns[accessing][owner] - controller.latency_ns),
        _ => None,
    };
    from_latency.or(wire[accessing][owner]).ok_or_else(|| {
        Fault::new("transfer", "expected matrix_ns where neither links nor latencies give the wire")
    })
}

fn given_transfers(
    matrix: &Matrix<f64>,
    nodes: &[Node],
    same_node_ns: f64,
) -> Result<Matrix<f64>, Fault> {
    let path = "transfer.matrix_ns";
    square(path, matrix, nodes.len())?;
    for (accessing, row) in matrix.iter().enumerate() {
        for (owner, &latency) in row.iter().enumerate() {
            let cell = format!("{path}[{accessing}][{owner}]");
            let (wanted, why) = if nodes[accessing].cpus == 0 || nodes[owner].cpus == 0 {
                (0.0, "a node without CPUs has no caches")
            } else if accessing == owner {
                (same_node_ns, "same_node_ns")
            } else {
                check::positive(&cell, latency)?;
                continue;
            };
            require(
                latency == wanted,
                || cell,
                || format!("expected {wanted} ({why}), got {latency}"),
            )?;
        }
    }
    Ok(matrix.clone())
}

/// Pairs of nodes that both have CPUs.
fn cpu_pairs(nodes: &[Node]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let with_cpus = move || (0..nodes.len()).filter(move |&node| nodes[node].cpus > 0);
    with_cpus().flat_map(move |accessing| with_cpus().map(move |owner| (accessing, owner)))
}

fn distances(
    net: &Interconnect,
    nodes: usize,
    routes: &Matrix<Route>,
) -> Result<Matrix<u32>, Fault> {
    if let Some(distances) = &net.distances {
        check_distances(distances, nodes)?;
        return Ok(distances.clone());
    }
    let hops = |route: &Route| route.links.len() as u32;
    let distance = |route: &Route| {
        (LOCAL_DISTANCE + DISTANCE_PER_HOP * hops(route)).min(UNREACHABLE_DISTANCE - 1)
    };
    Ok(routes.iter().map(|row| row.iter().map(distance).collect()).collect())
}

fn check_distances(distances: &Matrix<u32>, nodes: usize) -> Result<(), Fault> {
    let path = "interconnect.distances";
    square(path, distances, nodes)?;
    for (accessing, row) in distances.iter().enumerate() {
        for (holding, &distance) in row.iter().enumerate() {
            let fits = if accessing == holding {
                distance == LOCAL_DISTANCE
            } else {
                (LOCAL_DISTANCE + 1..UNREACHABLE_DISTANCE).contains(&distance)
            };
            require(
                fits,
                || format!("{path}[{accessing}][{holding}]"),
                || {
                    format!(
                        "expected {LOCAL_DISTANCE} on the diagonal, 11 to 254 elsewhere, got {distance}"
                    )
                },
            )?;
        }
    }
    Ok(())
}

/// A row for each node, and in each row a number for each node.
fn square<T>(path: &str, matrix: &Matrix<T>, nodes: usize) -> Result<(), Fault> {
    require(
        matrix.len() == nodes,
        || path.to_owned(),
        || format!("expected {nodes} rows, one for each node, got {}", matrix.len()),
    )?;
    for (index, row) in matrix.iter().enumerate() {
        require(
            row.len() == nodes,
            || format!("{path}[{index}]"),
            || format!("expected {nodes} numbers, one for each node, got {}", row.len()),
        )?;
    }
    Ok(())
}
