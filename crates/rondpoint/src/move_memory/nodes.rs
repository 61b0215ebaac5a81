//! Sets of nodes as numactl(8) writes them, and which node's memory goes where, as migratepages(8)
//! pairs them.

use std::collections::BTreeMap;

use rondpoint_linux::parse::cpulist;

/// Reads a set: `0-1,3`, `all`, `!0` (all but these), `+0-1` (counted among those in `all`) and
/// `!+1` (all but the second). `all` holds the nodes with memory, ascending.
pub(super) fn parse(text: &str, all: &[u32]) -> Result<Vec<u32>, String> {
    if text == "all" {
        return Ok(all.to_vec());
    }
    let (is_inverted, rest) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
    let (is_relative, list) = rest.strip_prefix('+').map_or((false, rest), |list| (true, list));
    let numbers = cpulist::parse(list.as_bytes()).ok().filter(|numbers| !numbers.is_empty());
    let numbers = numbers.ok_or_else(|| {
        format!(
            "`{text}`: expected nodes such as 0-1,3 or all, !0 (all but), +0 (the first), \
             !+0 (all but the first)"
        )
    })?;
    let there = |node: u32| match all.contains(&node) {
        true => Ok(node),
        false => Err(format!(
            "node {node}: no such node with memory (nodes with memory: {})",
            cpulist::format(all)
        )),
    };
    let nth = |index: u32| {
        let found = all.get(index as usize).copied();
        found.ok_or_else(|| format!("+{index}: there are {} nodes with memory", all.len()))
    };
    let node_of = |number| if is_relative { nth(number) } else { there(number) };
    let named: Vec<u32> = numbers.into_iter().map(node_of).collect::<Result<_, _>>()?;
    if !is_inverted {
        return Ok(named);
    }
    let left: Vec<u32> = all.iter().copied().filter(|node| !named.contains(node)).collect();
    if left.is_empty() { Err(format!("`{text}`: no node with memory is left")) } else { Ok(left) }
}

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

    fn check(text: &str, expected: &str) {
        let shown = match parse(text, &[0, 2, 3, 8]) {
            Ok(nodes) => cpulist::format(&nodes),
            Err(error) => error,
        };
        assert_eq!(shown, expected, "{text:?}");
    }

    #[test]
    fn sets_are_written_as_for_numactl() {
        check("0", "0");
        check("2-3,0", "0,2-3");
        check("all", "0,2-3,8");
        check("!2-3", "0,8");
        check("+0-1", "0,2");
        check("!+1", "0,3,8");
        check("!+1-2", "0,8");
        check("+0-1,3", "0,2,8");
        let expected = "expected nodes such as 0-1,3 or all, !0 (all but), +0 (the first), !+0 (all \
                        but the first)";
        for bad in
            ["!all", "", "!", "+", "!!1", "++1", "+!1", "!++1", "0,+1", "+0,+1", "1-+2", "0,!1"]
        {
            check(bad, &format!("`{bad}`: {expected}"));
        }
        check("1", "node 1: no such node with memory (nodes with memory: 0,2-3,8)");
        check("!1", "node 1: no such node with memory (nodes with memory: 0,2-3,8)");
        check("+4", "+4: there are 4 nodes with memory");
        check("!+4", "+4: there are 4 nodes with memory");
        check("!0,2-3,8", "`!0,2-3,8`: no node with memory is left");
    }

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
