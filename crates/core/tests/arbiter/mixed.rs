//! Threads that wait for memory beside threads that compute.

use super::*;

/// A thread on node 0 that waits for the memory of node 1, and one on `cpu` that computes.
fn mixed(cpu: usize) -> Model {
    let mut model = scene([0.0, 1.0, 0.0, 0.0], 0.0, 400.0);
    model.threads.truncate(2);
    model.apps[0].threads = 0..2;
    for (thread, (cpu, per_us, stalled)) in
        model.threads.iter_mut().zip([(0, 20.0, 0.8), (cpu, 0.0, 0.0)])
    {
        thread.cpu = cpu;
        thread.rates.stall_share = Some(stalled);
        thread.rates.memory_per_s = Some(1e6 * per_us);
    }
    let asked = |from, holding| if (from, holding) == (0, 1) { 20.0 } else { 0.0 };
    model.apps[0].traffic = Some(Traffic::new(Matrix::from_fn(4, asked)));
    model.traffic.clone_from(&model.apps[0].traffic);
    model
}

/// Predicted gain of the move of the first thread to its memory.
fn gain(model: &Model) -> f64 {
    let cpus = [3].into_iter().collect();
    let home = Action::SetAffinity { pid: Pid(1), tid: Tid(0), cpus, via: None };
    let chosen = choose(&mut arbiter(model), model, vec![step("sam", home)]);
    chosen.predicted.get(&Pid(1)).copied().unwrap_or(0.0)
}

#[test]
fn a_thread_takes_its_own_accesses_with_it_whoever_it_leaves_behind() {
    let (beside, apart) = (gain(&mixed(1)), gain(&mixed(4)));
    assert!(apart > 0.03, "{apart}");
    assert!((beside - apart).abs() < 0.005, "{beside} {apart}");
}
