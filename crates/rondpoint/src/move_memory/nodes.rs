//! Pairs source and target nodes, as migratepages(8) does.

use std::collections::BTreeMap;

/// From which node to which: from the n-th of `from` to the n-th of `to`, counted again from the
/// first where `to` has fewer. Where the two are not equally many, what lies on a node of both
/// stays there (`do_migrate_pages`, mm/mempolicy.c, Linux 6.12).
pub(super) fn ways(from: &[u32], to: &[u32]) -> BTreeMap<u32, u32> {
    let stays = |node: &u32| from.len() != to.len() && to.contains(node);
    let targets = to.iter().copied().cycle();
    let pairs = from.iter().copied().zip(targets);
    pairs.filter(|(source, target)| source != target && !stays(source)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_paired_as_the_kernel_does() {
        let pairs = |from: &[u32], to: &[u32]| {
            ways(from, to).iter().map(|(a, b)| format!("{a}→{b}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(pairs(&[0], &[1]), "0→1");
        assert_eq!(pairs(&[2, 3, 4], &[3, 4, 5]), "2→3 3→4 4→5");
        assert_eq!(pairs(&[0, 1], &[0, 1]), "");
        assert_eq!(pairs(&[0, 1, 2, 3, 4, 5, 6, 7], &[3, 4, 5]), "0→3 1→4 2→5 6→3 7→4");
        assert_eq!(pairs(&[0], &[1, 2]), "0→1");
        assert_eq!(pairs(&[0], &[0, 1]), "");
    }
}
