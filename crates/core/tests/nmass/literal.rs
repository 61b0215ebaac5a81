//! What algorithm 3 of the paper would do if it were implemented letter by letter. Nothing of this
//! is in the product.

/// The ways in which the printed loop ends, if it does.
#[derive(Debug, PartialEq)]
enum Ending {
    /// It left the loop after this many rounds with these numbers of processes on each side.
    Stopped { rounds: usize, mapped: [usize; 2] },
    /// It went on for a thousand rounds without moving anything.
    Loops,
}

/// One process: cache pressure, penalty.
type Entry = (f64, f64);

/// The printed loop on two lists in penalty-descending order. `cores` a side; defects (b), (c) and
/// (e) as they stand.
fn printed_loop(mut lists: [Vec<Entry>; 2], cores: usize, threshold: f64) -> Ending {
    let mut pressures =
        [0, 1].map(|side: usize| lists[side].iter().map(|entry| entry.0).sum::<f64>());
    for rounds in 1..=1000 {
        let cost = |side: usize| {
            lists[side].last().map_or(f64::INFINITY, |entry: &Entry| entry.0 * entry.1)
        };
        let first = usize::from(cost(0) > cost(1));
        let mut is_current = true;
        for source in [first, 1 - first] {
            let target = 1 - source;
            let Some(&(mpki, penalty)) = lists[source].last() else { continue };
            // (b): subtracted and added before anything is decided, and never put back.
            pressures[source] -= mpki;
            pressures[target] += mpki * penalty;
            if lists[target].len() < cores && pressures[target] < threshold {
                let moved = lists[source].pop().expect("it has a last entry");
                lists[target].insert(0, moved);
                is_current = false;
                break;
            }
        }
        // (c): "until decision != CURRENT".
        if !is_current {
            return Ending::Stopped { rounds, mapped: [lists[0].len(), lists[1].len()] };
        }
    }
    Ending::Loops
}

#[test]
fn the_literal_print_stops_after_one_move_or_never() {
    // Vector 2: two moves are needed to balance; the print is done after one.
    let heavy = vec![(25.0, 1.45), (22.0, 1.35), (18.0, 1.30), (30.0, 1.10)];
    let ending = printed_loop([heavy, vec![]], 4, 60.0);
    assert_eq!(ending, Ending::Stopped { rounds: 1, mapped: [3, 1] });
    // Vector 4: nothing should move. The refused first direction leaves 25 instead of 43 MPKI
    // behind. So the second direction, which should be refused with 76, passes with 58, and the
    // more loaded side gets another process.
    let balanced = [vec![(22.0, 1.35), (30.0, 1.10)], vec![(25.0, 1.45), (18.0, 1.30)]];
    let ending = printed_loop(balanced.clone(), 4, 60.0);
    assert_eq!(ending, Ending::Stopped { rounds: 1, mapped: [1, 3] });
    // With every core taken no move can ever succeed, whatever the pressures: the loop cannot end.
    assert_eq!(printed_loop(balanced, 2, 60.0), Ending::Loops);
    // Empty lists: no direction, hence CURRENT, hence for ever.
    assert_eq!(printed_loop([vec![], vec![]], 4, 60.0), Ending::Loops);
}
