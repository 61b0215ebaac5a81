//! Divides a budget among the trees that want more than there is.
//!
//! Budgets belong to all trees together. Without shares, one tree with thousands of threads would
//! hide the trees of other users.

/// The share of each of `wants` in `budget`, by max-min fairness. A want below the fair share is
/// met in full. The others divide the rest equally. One want alone may take the whole budget.
pub(super) fn shares(wants: &[usize], budget: usize) -> Vec<usize> {
    let mut smallest_first: Vec<usize> = (0..wants.len()).collect();
    smallest_first.sort_by_key(|&index| wants[index]);
    let mut shares = vec![0; wants.len()];
    let mut left = budget;
    for (served, index) in smallest_first.into_iter().enumerate() {
        shares[index] = wants[index].min(left / (wants.len() - served));
        left -= shares[index];
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_wants_are_met_and_large_ones_divide_the_rest() {
        assert_eq!(shares(&[4096, 3, 4096, 10], 1013), [500, 3, 500, 10]);
        assert_eq!(shares(&[9, 9, 9], 10), [3, 3, 4], "all of it is given");
        assert_eq!(shares(&[5, 5, 5], 2), [0, 1, 1]);
        assert!(shares(&[], 7).is_empty());
    }

    proptest! {
        #[test]
        fn no_share_can_grow_without_making_a_smaller_one_smaller(
            wants in prop::collection::vec(0_usize..50, 0..12),
            budget in 0_usize..400,
        ) {
            let shares = shares(&wants, budget);
            let most = shares.iter().max().copied().unwrap_or(0);
            for (share, want) in shares.iter().zip(&wants) {
                prop_assert!(share <= want);
                // The budget is in whole units, so equal wants may differ by one.
                prop_assert!(share == want || share + 1 >= most, "{shares:?} of {wants:?}");
            }
            let total: usize = wants.iter().sum();
            prop_assert_eq!(shares.iter().sum::<usize>(), total.min(budget));
        }

        #[test]
        fn one_want_alone_gets_up_to_the_whole_budget(want: usize, budget: usize) {
            prop_assert_eq!(shares(&[want], budget), [want.min(budget)]);
        }
    }
}
