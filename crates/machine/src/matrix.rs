//! Matrices `[accessing][holding]` of a file: their shape, and the distances among them.

use crate::error::{Fault, require};
use crate::file::Interconnect;
use crate::machine::Route;

/// Rows of accessing nodes, columns of holding nodes.
pub(crate) type Matrix<T> = Vec<Vec<T>>;

/// Distance of a node to itself, by definition of the SLIT (ACPI 6.5, 5.2.17).
const LOCAL_DISTANCE: u32 = 10;
/// Distance that means unreachable (same section). A machine with such nodes is refused.
const UNREACHABLE_DISTANCE: u32 = 255;
/// Distance that each hop adds if the file gives no distances. The firmware of the 8-node Opteron
/// 6272 reports 16 and 22 for one and two hops.
const DISTANCE_PER_HOP: u32 = 6;

/// The distances of the file, else from the hops of the routes.
pub(crate) fn distances(
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

/// Checks the distances of a machine. Nodes of one memory with `numa=fake` are 10 from each other,
/// which a SLIT does not allow but this check does.
pub(crate) fn check_distances(distances: &Matrix<u32>, nodes: usize) -> Result<(), Fault> {
    let path = "interconnect.distances";
    square(path, distances, nodes)?;
    for (accessing, row) in distances.iter().enumerate() {
        for (holding, &distance) in row.iter().enumerate() {
            let fits = if accessing == holding {
                distance == LOCAL_DISTANCE
            } else {
                (LOCAL_DISTANCE..UNREACHABLE_DISTANCE).contains(&distance)
            };
            require(
                fits,
                || format!("{path}[{accessing}][{holding}]"),
                || {
                    format!(
                        "expected {LOCAL_DISTANCE} on the diagonal, 10 to 254 elsewhere, got {distance}"
                    )
                },
            )?;
        }
    }
    Ok(())
}

/// Checks that a matrix has one row per node and one number per node in each row.
pub(crate) fn square<T>(path: &str, matrix: &Matrix<T>, nodes: usize) -> Result<(), Fault> {
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
