//! Which node's copy a thread gets.

/// A mask of 8192 CPUs, on the stack: what the largest x86 kernel has.
pub(crate) type Mask = [u64; 128];

/// The node for a thread that may use these CPUs and runs on `current`, and whether it may use CPUs
/// of other nodes too. CPUs beyond the nodes' count for none.
///
/// A thread that is bound to one node gets that node's copy. Any other gets the copy of the node on
/// which it happens to run.
pub(crate) fn choose(
    node_of_cpu: &[Option<usize>],
    allowed: &Mask,
    current: Option<usize>,
) -> Option<(usize, bool)> {
    let is_allowed =
        |cpu: usize| allowed.get(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1);
    let cpus = node_of_cpu.iter().enumerate();
    let mut nodes = cpus.filter(|(cpu, _)| is_allowed(*cpu)).filter_map(|(_, node)| *node);
    let first = nodes.next()?;
    if nodes.all(|node| node == first) {
        return Some((first, false));
    }
    let here = current.and_then(|cpu| *node_of_cpu.get(cpu)?);
    Some((here.unwrap_or(first), true))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPUs 0 and 1 are of the first node, 2 and 70 of the second, 3 of none.
    fn check(allowed: &[usize], current: usize, expected: Option<(usize, bool)>) {
        let mut nodes = vec![None; 71];
        for (cpu, node) in [(0, 0), (1, 0), (2, 1), (70, 1)] {
            nodes[cpu] = Some(node);
        }
        let mut mask = [0; 128];
        allowed.iter().for_each(|cpu| mask[cpu / 64] |= 1 << (cpu % 64));
        assert_eq!(choose(&nodes, &mask, Some(current)), expected, "{allowed:?} on {current}");
    }

    #[test]
    fn a_bound_thread_gets_its_node_wherever_it_runs() {
        check(&[0, 1], 0, Some((0, false)));
        check(&[2, 70], 0, Some((1, false)));
        check(&[70], 70, Some((1, false)));
    }

    #[test]
    fn any_other_gets_the_node_where_it_runs() {
        check(&[0, 1, 2], 2, Some((1, true)));
        check(&[0, 1, 2], 1, Some((0, true)));
    }

    #[test]
    fn cpus_without_a_node_decide_nothing() {
        check(&[3], 3, None);
        check(&[3, 2], 3, Some((1, false)));
        check(&[0, 2], 3, Some((0, true)));
        check(&[0, 2], 5000, Some((0, true)));
    }
}
