//! Independent pieces of work on a few threads, each of which drives a machine of its own.

use std::collections::VecDeque;
use std::sync::Mutex;

use anyhow::Result;

/// Does the work with the numbers below `count`, `jobs` at a time; results are in the numbers'
/// order. The first failure ends the rest.
pub(crate) fn side_by_side<R: Send>(
    count: usize,
    jobs: usize,
    work: impl Fn(usize) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let queue = Mutex::new((0..count).collect::<VecDeque<_>>());
    let next = || queue.lock().expect("no thread panics with the queue").pop_front();
    let worker = || -> Result<Vec<(usize, R)>> {
        let mut done = Vec::new();
        while let Some(index) = next() {
            let result = work(index);
            if result.is_err() {
                queue.lock().expect("no thread panics with the queue").clear();
            }
            done.push((index, result?));
        }
        Ok(done)
    };
    let outcomes: Vec<Result<Vec<(usize, R)>>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..jobs.clamp(1, count.max(1))).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a worker panicked")).collect()
    });
    let mut all: Vec<(usize, R)> =
        outcomes.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    all.sort_by_key(|(index, _)| *index);
    Ok(all.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn results_are_in_order_and_a_failure_ends_the_rest() {
        let squares = side_by_side(20, 3, |index| Ok(index * index)).expect("no failure");
        assert_eq!(squares, (0..20).map(|index| index * index).collect::<Vec<_>>());
        assert!(side_by_side(0, 2, Ok).expect("nothing to do").is_empty());
        let begun = Mutex::new(0);
        let fail = |index: usize| {
            *begun.lock().expect("no panic") += 1;
            if index == 2 { bail!("two") } else { Ok(()) }
        };
        assert_eq!(side_by_side(9, 1, fail).expect_err("two").to_string(), "two");
        assert_eq!(*begun.lock().expect("no panic"), 3);
    }
}
