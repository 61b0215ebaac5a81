//! Pairs of threads that exchange cache lines, as samples named them.

use super::*;

/// Two threads that fetch buffers from two others, each on its own node. Stores are not counted, so
/// the threads that fill the buffers fetch nothing.
fn pairs() -> (Model, Partners) {
    let mut model = scene([0.25; 4], 0.1, 200.0);
    for (tid, thread) in model.threads.iter_mut().enumerate() {
        thread.rates.stall_share = Some(0.05);
        let fetched = if tid < 2 { 2e6 } else { 0.0 };
        thread.rates.coherence_remote_per_s = Some(fetched);
        thread.rates.coherence_local_per_s = Some(0.0);
        thread.rates.instructions_per_s = Some(1e9);
    }
    let mut partners = Partners::default();
    partners.learn([(Tid(0), Tid(2), 40), (Tid(1), Tid(3), 40)].into_iter());
    (model, partners)
}

fn knowing(partners: &Partners) -> Beside<'_> {
    Beside { partners, ..nothing() }
}

fn thread_to(policy: &'static str, tid: u32, cpu: usize) -> Proposal {
    let cpus = [cpu].into_iter().collect();
    step(policy, Action::SetAffinity { pid: Pid(1), tid: Tid(tid), cpus, via: None })
}

#[test]
fn a_thread_goes_to_the_partner_that_samples_named_though_it_fetches_nothing_itself() {
    let (model, partners) = pairs();
    let join = || vec![thread_to("sharing", 2, 1), thread_to("sharing", 3, 3)];
    let chosen = knowing(&partners).choose(&mut arbiter(&model), &model, join());
    assert_eq!(chosen.steps.len(), 2, "{:?}", chosen.refused);
    let apart = vec![thread_to("sharing", 3, 1), thread_to("sharing", 2, 3)];
    let chosen = knowing(&partners).choose(&mut arbiter(&model), &model, apart);
    assert!(chosen.steps.is_empty(), "each to the other's partner");
}

#[test]
fn threads_that_fetch_from_others_do_not_join_each_other_once_their_partners_are_known() {
    let (model, partners) = pairs();
    let gather = || vec![thread_to("sam", 1, 1)];
    let chosen = knowing(&partners).choose(&mut arbiter(&model), &model, gather());
    assert!(chosen.steps.is_empty(), "{:?}", chosen.steps);
    assert_eq!(
        choose(&mut arbiter(&model), &model, gather()).steps.len(),
        1,
        "as far as counters tell"
    );
}

#[test]
fn pairs_that_change_places_together_are_priced_as_where_they_are() {
    let (mut model, partners) = pairs();
    for (tid, cpu) in [(2, 1), (3, 3)] {
        model.threads[tid].cpu = cpu;
        model.threads[tid - 2].rates.coherence_remote_per_s = Some(0.0);
        model.threads[tid - 2].rates.coherence_local_per_s = Some(2e6);
    }
    let together = vec![thread_to("sam", 0, 4), thread_to("sam", 2, 5)];
    let together = won(&model, &partners, together);
    let apart = won(&model, &partners, vec![thread_to("sam", 0, 4)]);
    assert!(apart < -0.1 && together.abs() < 0.01, "{apart} and {together}");
}

/// CPU seconds per second that refused steps would win.
fn won(model: &Model, partners: &Partners, steps: Vec<Proposal>) -> f64 {
    let chosen = knowing(partners).choose(&mut arbiter(model), model, steps);
    match chosen.refused.first().map(|one| one.refusal) {
        Some(Refusal::Worth { worth: Some(worth) }) => worth.won,
        other => panic!("{other:?}"),
    }
}

/// The lines of a pair behind one cache are hits there, which no counter shows as an exchange. As
/// much work as before fetches as many lines.
#[test]
fn parting_a_pair_that_shares_a_cache_loses_what_it_lost_apart() {
    let (mut model, mut partners) = pairs();
    partners.count(&model, &machine());
    for (tid, cpu) in [(2, 1), (3, 3)] {
        model.threads[tid].cpu = cpu;
        model.threads[tid - 2].rates.coherence_remote_per_s = Some(0.0);
    }
    let part = |model: &Model| won(model, &partners, vec![thread_to("sam", 0, 4)]);
    let as_fast = part(&model);
    let twice = |thread: &mut Thread| thread.rates.instructions_per_s = Some(2e9);
    model.threads.iter_mut().for_each(twice);
    let twice_as_fast = part(&model);
    assert!(twice_as_fast < as_fast && as_fast < -0.1, "{as_fast} and {twice_as_fast}");
    let both = vec![thread_to("sam", 0, 4), thread_to("sam", 2, 5)];
    let both = won(&model, &partners, both);
    assert!(both.abs() < 0.01, "together to another node: {both}");
    model.at += Nanos::from_secs(60);
    let later = part(&model);
    assert!(later.abs() < 0.01, "counts of another time: {later}");
}

/// Nobody knows with whom a third thread exchanges lines, and it fetches none.
#[test]
fn a_thread_beside_a_pair_has_no_part_in_what_the_pair_exchanges_unseen() {
    let (mut model, _) = pairs();
    model.threads[1].rates.coherence_remote_per_s = Some(0.0);
    let mut pair = Partners::default();
    pair.learn([(Tid(0), Tid(2), 40)].into_iter());
    pair.count(&model, &machine());
    model.threads[0].rates.coherence_remote_per_s = Some(0.0);
    for tid in 1..3 {
        model.threads[tid].cpu = 1;
    }
    let leaves = |partners: &Partners| won(&model, partners, vec![thread_to("sam", 1, 4)]);
    let [beside, alone] = [leaves(&pair), leaves(Partners::none())];
    assert!((beside - alone).abs() < 0.01, "{beside} and {alone}");
    let part = won(&model, &pair, vec![thread_to("sam", 1, 4), thread_to("sam", 0, 5)]);
    assert!(part < beside - 0.1, "the pair's lines stay with the pair: {part} and {beside}");
}
