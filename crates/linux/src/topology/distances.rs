//! The distance table, corrected where the firmware violates ACPI's rules.

use rondpoint_core::Matrix;

use super::nodes::FoundNode;
use super::reader::Reader;
use super::{Note, nodes};
use crate::LinuxError;
use crate::parse::fields;

/// Distance of a node to itself, and the least one to another (ACPI 6.5, 5.2.17).
const LOCAL: u32 = 10;
/// Largest distance in the table, which means unreachable. Linux shows such nodes anyway.
const LARGEST: u64 = 255;
/// Distance for missing entries: Linux's `REMOTE_DISTANCE` (include/linux/topology.h).
const REMOTE: u32 = 20;

/// Distances by `[accessing][holding]`.
pub(super) fn read(
    reader: &mut Reader<'_>,
    found: &[FoundNode],
) -> Result<Matrix<u32>, LinuxError> {
    let count = found.len();
    let plain = Matrix::from_fn(count, |a, b| if a == b { LOCAL } else { REMOTE });
    if count == 1 {
        return Ok(plain);
    }
    let orders = column_orders(reader)?;
    let (mut missing, mut invalid) = (Vec::new(), Vec::new());
    let mut told: Vec<Vec<Option<u64>>> = Vec::new();
    for node in found {
        let path = format!("devices/system/node/node{}/distance", node.kernel_id);
        let row = reader.told(&path, fields::number_row);
        let row = row.and_then(|row| by_node(&row, &orders, node.kernel_id, found));
        if row.is_none() {
            missing.push(node.kernel_id);
        }
        told.push(row.unwrap_or_else(|| vec![None; count]));
    }
    let valid = |a: usize, b: usize| {
        // A row whose own distance is not 10 is not valid.
        let row = &told[a];
        let told = row[b].filter(|_| row[a] == Some(LOCAL.into()));
        let distance = told.filter(|distance| (LOCAL.into()..=LARGEST).contains(distance));
        distance.and_then(|distance| u32::try_from(distance).ok())
    };
    for (a, node) in found.iter().enumerate().filter(|(a, _)| told[*a].iter().any(Option::is_some))
    {
        let is_right = |b: usize| {
            if a == b { told[a][b] == Some(LOCAL.into()) } else { valid(a, b).is_some() }
        };
        if !(0..count).all(is_right) {
            invalid.push(node.kernel_id);
        }
    }
    if !missing.is_empty() {
        reader.notes.push(Note::DistanceRows { nodes: missing });
    }
    if !invalid.is_empty() {
        reader.notes.push(Note::DistanceValues { nodes: invalid });
    }
    Ok(Matrix::from_fn(count, |a, b| match a == b {
        true => LOCAL,
        false => valid(a, b).or_else(|| valid(b, a)).unwrap_or(REMOTE),
    }))
}

/// Possible nodes of the columns, the most likely first. The kernel writes a column for each online
/// node. A table of a partial capture may have a column for each node of the original machine.
fn column_orders(reader: &mut Reader<'_>) -> Result<Vec<Vec<u32>>, LinuxError> {
    let online = nodes::numbers(reader)?;
    let folders = reader.numbered("devices/system/node", "node");
    let possible = reader.list("devices/system/node/possible").ok().flatten();
    Ok([Some(online), Some(folders), possible].into_iter().flatten().collect())
}

/// A row in the order of the found nodes; `None` if no order of columns fits. Other orders than the
/// kernel's are accepted only if the node's distance to itself is right. The last order tried is a
/// column for each number.
fn by_node(
    row: &[u64],
    orders: &[Vec<u32>],
    own: u32,
    found: &[FoundNode],
) -> Option<Vec<Option<u64>>> {
    let column = |order: &[u32], node: u32| {
        let place = order.iter().position(|number| *number == node)?;
        row.get(place).copied()
    };
    let fits = |(index, order): &(usize, &Vec<u32>)| {
        let is_local = column(order, own) == Some(LOCAL.into());
        order.len() == row.len() && (*index == 0 || is_local)
    };
    let numbers: Vec<u32> = (0u32..).take(row.len()).collect();
    let (_, order) = orders.iter().chain([&numbers]).enumerate().find(fits)?;
    Some(found.iter().map(|node| column(order, node.kernel_id)).collect())
}
