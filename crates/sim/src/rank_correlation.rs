//! Spearman's rank correlation. The developer commands include this file for their own pages.

/// How alike two lists of the same length rank, from −1 to 1; equal values share their mean rank.
/// `None` where one list is all alike.
pub(crate) fn rank_correlation(one: &[f64], other: &[f64]) -> Option<f64> {
    let (one, other) = (ranks(one), ranks(other));
    let mean = (one.len() as f64 - 1.0) / 2.0;
    let product = |x: &[f64], y: &[f64]| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum()
    };
    let scale = (product(&one, &one) * product(&other, &other)).sqrt();
    (scale > 0.0).then(|| product(&one, &other) / scale)
}

/// Rank of each value, the least is 0.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let (mut ranks, mut below) = (vec![0.0; values.len()], 0);
    for alike in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let shared = below as f64 + (alike.len() as f64 - 1.0) / 2.0;
        alike.iter().for_each(|place| ranks[*place] = shared);
        below += alike.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_agree_correlate_whatever_the_scale() {
        assert_eq!(rank_correlation(&[1.0, 2.0, 30.0], &[10.0, 11.0, 12.0]), Some(1.0));
        assert_eq!(rank_correlation(&[1.0, 2.0, 30.0], &[12.0, 11.0, 10.0]), Some(-1.0));
        let far = rank_correlation(&[1.0, 2.0, 3.0], &[10.0, 40.0, 90.0]);
        assert!((far.unwrap() - 1.0).abs() < 1e-12);
        let falling = rank_correlation(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]);
        assert!((falling.unwrap() + 1.0).abs() < 1e-12);
    }

    #[test]
    fn ties_share_a_rank() {
        assert_eq!(ranks(&[5.0, 1.0, 5.0]), [1.5, 0.0, 1.5]);
        let tied = rank_correlation(&[1.0, 1.0, 2.0, 2.0], &[1.0, 2.0, 3.0, 4.0]);
        assert!((tied.unwrap() - 0.894).abs() < 1e-3);
        let both = rank_correlation(&[1.0, 1.0, 2.0], &[5.0, 5.0, 9.0]);
        assert!((both.unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(rank_correlation(&[1.0, 1.0], &[1.0, 2.0]), None);
    }
}
