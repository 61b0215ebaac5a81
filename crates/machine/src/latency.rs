//! Unloaded latencies of a file: given as matrices, or summed over the links of each route.

use crate::check;
use crate::error::{Fault, require};
use crate::file::{Interconnect, TransferTable};
use crate::machine::{Node, Route, Transfer};
use crate::matrix::{Matrix, square};

/// Latency in ns that the links of each route add, `[accessing][holding]`; `None` if one of them
/// gives none.
pub(crate) fn wire(routes: &Matrix<Route>, link_ns: &[Option<f64>]) -> Matrix<Option<f64>> {
    let sum = |route: &Route| route.links.iter().map(|&link| link_ns[link]).sum();
    routes.iter().map(|row| row.iter().map(sum).collect()).collect()
}

/// Unloaded DRAM latencies in ns by `[accessing][holding]`; 0 for a holding node without memory.
pub(crate) fn latencies(
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

/// Cache-to-cache latencies, ns.
pub(crate) fn transfers(
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
    Ok(Transfer {
        same_domain_ns: table.same_domain_ns,
        same_node_ns,
        remote_ns,
        forwards_clean: table.forwards_clean,
    })
}

/// The interconnect's part of a transfer, ns: from the given latencies without the controller's,
/// else from the links.
fn transfer_wire(
    accessing: usize,
    owner: usize,
    net: &Interconnect,
    nodes: &[Node],
    latency_ns: &Matrix<f64>,
    wire: &Matrix<Option<f64>>,
) -> Result<f64, Fault> {
    let one_way = |accessing: usize, holding: usize| {
        let controller = nodes[holding].controller.as_ref()?;
        net.latency_ns.as_ref()?;
        Some(latency_ns[accessing][holding] - controller.latency_ns)
    };
    // The latency to a node without memory is not given, so that of the opposite direction counts.
    let from_latency = one_way(accessing, owner).or_else(|| one_way(owner, accessing));
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
