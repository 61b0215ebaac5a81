//! One decision step, from a model to an admitted plan: how it grows with nodes, threads and
//! sampled pages. The largest has 64 nodes, 1024 CPUs, 20,000 threads and 10⁶ pages. The same for
//! the whole step of a controller, observation in and plan out, which takes in two samples a page
//! first. Goal for the whole step of `auto` at the largest size: at most 80 ms, aim 25 ms, and
//! linear. The last line compares a median with it. One benchmark is how fast observations with
//! samples become a model with page records. Goal: 10⁷ samples a second on one core, at most 64
//! bytes a page.
//!
//! `cargo bench -p rondpoint-core --bench step`; with `-- goal` the comparison with the goal alone.

mod goal;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rondpoint_core::arbiter::Arbiter;
use rondpoint_core::controller::{Controller, Input, Settings};
use rondpoint_core::cost::{Facts, Sampled, Seen};
use rondpoint_core::guard::{Guard, GuardSettings, Scene, Standing};
use rondpoint_core::ledger::Ledger;
use rondpoint_core::limits::MAX_TRACKED_PAGES;
use rondpoint_core::model::UpdateSettings;
use rondpoint_core::observation::{
    AddressSample, Counter, Counters, Event, Observation, ProcessObservation, Samples, Source,
    ThreadObservation,
};
use rondpoint_core::plan::{Choice, Kind, Permitted, Sampling};
use rondpoint_core::policy::auto::Auto;
use rondpoint_core::policy::carrefour::Carrefour;
use rondpoint_core::policy::carrefour::preset::{FINAL, Preset};
use rondpoint_core::policy::views::Views;
use rondpoint_core::policy::{Pace, Policy, by_name};
use rondpoint_core::topology::synthetic;
use rondpoint_core::{
    Action, Bytes, Matrix, Model, Nanos, Pid, Plan, Proposal, Random, Tid, Topology,
};

/// A size of everything.
#[derive(Clone, Copy)]
struct Size {
    nodes: usize,
    cpus_per_node: usize,
    threads: usize,
    pages: usize,
}

const LARGEST: Size = Size { nodes: 64, cpus_per_node: 16, threads: 20_000, pages: 1_000_000 };

fn machine(size: Size) -> Topology {
    synthetic::parse(&format!("node:{} core:{} gbs:20 mhz:2400", size.nodes, size.cpus_per_node))
        .expect("a machine")
}

/// Threads of eight processes; traffic mostly to node 0, so that there is something to decide.
fn observation(size: Size, second: u64, random: &mut Random) -> Observation {
    let processes = 8;
    let per_process = size.threads / processes;
    let rate = |n: usize, m: usize| if m == 0 { 40_000_000 } else { 1_000_000 + (n as u64) };
    let traffic = Matrix::from_fn(size.nodes, |n, m| Counter::exact(second * rate(n, m)));
    let process = |p: usize| ProcessObservation {
        pid: Pid(1 + p as u32),
        threads: (0..per_process)
            .map(|t| thread(size, (p * per_process + t) as u32, second))
            .collect(),
        node_traffic: Some(traffic.clone()),
        memory: Some(vec![Bytes(1 << 30); size.nodes]),
        ..ProcessObservation::default()
    };
    Observation {
        at: Nanos::from_secs(second),
        node_traffic: Some(traffic.map(|c| Counter::exact(8 * c.value))),
        free_memory: Some(vec![Bytes(8 << 30); size.nodes]),
        processes: (0..processes).map(process).collect(),
        samples: Some(samples(size, random)),
        ..Observation::default()
    }
}

fn thread(size: Size, number: u32, second: u64) -> ThreadObservation {
    let counter = |per_s: u64| Counter::exact(second * per_s);
    let counters: Counters = [
        (Event::Instructions, counter(1_000_000_000)),
        (Event::Cycles, counter(2_000_000_000)),
        (Event::LlcMisses, counter(5_000_000 + u64::from(number % 100))),
        (Event::RemoteHitm, counter(u64::from(number % 1000) * 1_000)),
        (Event::RemoteDram, counter(1_000_000)),
        (Event::LocalDram, counter(4_000_000)),
    ]
    .into_iter()
    .collect();
    let cpus = size.nodes * size.cpus_per_node;
    ThreadObservation {
        tid: Tid(1 + number),
        cpu: number as usize % cpus,
        cpu_time: Nanos::from_millis(second * 900),
        allowed: (0..cpus).collect(),
        counters,
        ..ThreadObservation::default()
    }
}

/// Two samples a page, half of the pages from two nodes, in random order.
fn samples(size: Size, random: &mut Random) -> Samples {
    let per_process = size.threads / 8;
    let sample = |number: usize, random: &mut Random| {
        let page = random.below(size.pages);
        let process = page % 8;
        let thread = if page.is_multiple_of(2) { page } else { number } % per_process;
        let number = process * per_process + thread;
        AddressSample {
            pid: Pid(1 + process as u32),
            tid: Tid(1 + number as u32),
            cpu: (number % (size.nodes * size.cpus_per_node)) as u16,
            node: 0,
            address: (page as u64) << 12,
            latency_cycles: 400,
            page_shift: 12,
            source: Source::Dram,
            store: page.is_multiple_of(3),
        }
    };
    Samples {
        list: (0..2 * size.pages).map(|number| sample(number, random)).collect(),
        ..Samples::default()
    }
}

/// Carrefour, guard and ledger on a model that is there: as published, and our preset, which also
/// fills in pages between the sampled ones. Beside it `auto`, which prices all.
fn decide(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(3))
        .warm_up_time(Duration::from_millis(500));
    let sizes = [
        ("pages", Size { pages: 125_000, ..LARGEST }),
        ("pages", Size { pages: 250_000, ..LARGEST }),
        ("pages", Size { pages: 500_000, ..LARGEST }),
        ("pages", LARGEST),
        ("threads", Size { threads: 5_000, pages: 100_000, ..LARGEST }),
        ("threads", Size { threads: 20_000, pages: 100_000, ..LARGEST }),
        ("nodes", Size { nodes: 8, threads: 2_000, pages: 100_000, ..LARGEST }),
        ("nodes", Size { nodes: 64, threads: 2_000, pages: 100_000, ..LARGEST }),
    ];
    let steady = [500_000, 1_000_000].map(|pages| ("steady", Size { pages, ..LARGEST }));
    let auto = [(5_000, 100_000), (20_000, 100_000), (20_000, 1_000_000)];
    let auto = auto.map(|(threads, pages)| ("auto", Size { threads, pages, ..LARGEST }));
    for (what, size) in sizes.into_iter().chain(steady).chain(auto) {
        let (policy, preset) = match what {
            "auto" => ("auto", None),
            "steady" => ("carrefour", Some("steady")),
            _ => ("carrefour", None),
        };
        let (topology, before, after) = interval(size);
        let model = Model::update(&topology, &before, &after, &UpdateSettings::default());
        let name = format!("{} nodes, {} threads, {} pages", size.nodes, size.threads, size.pages);
        let fresh = || {
            let policy = (by_name(policy).expect("built in").make)(preset).expect("a preset");
            (policy, Guard::new(GuardSettings::acting(), size.nodes), Ledger::default())
        };
        group.bench_function(BenchmarkId::new(what, name), |bencher| {
            bencher.iter_batched(
                fresh,
                |stage| decide_once(stage, &model, &topology),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// What a step does with a ready model; all of it is given back, so that dropping it is not
/// measured.
fn decide_once(
    (mut policy, mut guard, mut ledger): (Box<dyn Policy>, Guard, Ledger),
    model: &Model,
    topology: &Topology,
) -> impl Sized {
    let proposals = policy.propose(model, topology, &mut Random::new(1));
    let (accounts, running, unready, tried) = Default::default();
    let scene = Scene {
        model,
        topology,
        accounts: &accounts,
        standing: Standing { now: model.at, running: &running, unready: &unready, tried: &tried },
        ledger: &ledger,
    };
    let (steps, refused) = guard.admit(proposals, &scene);
    let plan = Plan { number: 1, steps, refused, ..Plan::default() };
    let inverses = ledger.enter(&plan, model);
    (policy, guard, ledger, plan, inverses)
}

/// The whole step of a controller that has watched for long enough to act: with Carrefour, and at
/// the largest size with `auto`.
fn step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("controller");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(3))
        .warm_up_time(Duration::from_millis(500));
    let carrefour = [125_000, 250_000, 500_000, 1_000_000].map(|pages| ("step", pages));
    for (what, pages) in carrefour.into_iter().chain([("auto", LARGEST.pages)]) {
        let size = Size { pages, ..LARGEST };
        let scene = Watched::new(size);
        let watched = || scene.controller(what);
        let (mut controller, input) = watched();
        let plan = controller.step(input).plan;
        // `auto` may refuse a move by its price. It was decided all the same.
        let refused = plan.refused.iter().map(|one| &one.proposal);
        let mut moves = plan.steps.iter().chain(refused.filter(|_| what == "auto"));
        let any = moves.any(|step| matches!(step.action, Action::MovePages { .. }));
        assert!(any, "{what}: there is something to decide");
        let name = format!("{} nodes, {} threads, {pages} pages", size.nodes, size.threads);
        group.throughput(Throughput::Elements(2 * pages as u64));
        group.bench_function(BenchmarkId::new(what, name), |bencher| {
            bencher.iter_batched(
                watched,
                |(mut controller, input)| (controller.step(input), controller),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// Seconds that a controller has watched, and the second at whose end it decides.
struct Watched {
    topology: Topology,
    seconds: Vec<Observation>,
    last: Observation,
}

impl Watched {
    fn new(size: Size) -> Self {
        let mut random = Random::new(1);
        let mut seconds: Vec<Observation> =
            (1..=WATCHED + 1).map(|second| observation(size, second, &mut random)).collect();
        let last = seconds.pop().expect("it was just made");
        seconds.iter_mut().for_each(|earlier| earlier.samples = None);
        Self { topology: machine(size), seconds, last }
    }

    /// A controller before the step in which it decides, and the input of that step.
    fn controller(&self, what: &str) -> (Controller, Input) {
        let settings = Settings { guard: GuardSettings::acting(), ..Settings::default() };
        let policy: Box<dyn Policy> = match what {
            "auto" => Box::new(TrackingAll(Auto::default())),
            _ => Box::new(Carrefour::new(tracking_all())),
        };
        let mut controller = Controller::new(self.topology.clone(), vec![policy], settings);
        for observation in &self.seconds {
            controller.step(input(observation.clone()));
        }
        (controller, input(self.last.clone()))
    }
}

/// The whole step of `auto` at the largest size beside its goal.
const STEP: goal::Goal = goal::Goal {
    name: "a step of auto with 1,024 CPUs, 20,000 threads, 1,000,000 pages",
    most: Duration::from_millis(80),
};
/// Steps that are measured for the goal.
const STEPS: usize = 9;

fn compare_with_goal(_: &mut Criterion) {
    if !goal::are_wanted() {
        return;
    }
    let scene = Watched::new(LARGEST);
    let time = |_| {
        let (mut controller, input) = scene.controller("auto");
        let begin = Instant::now();
        let step = black_box(controller.step(input));
        let took = begin.elapsed();
        drop(step);
        took
    };
    STEP.tell((0..STEPS).map(time).collect());
}

/// Carrefour asks for 30,000 pages at most; here it gets what the core bears.
fn tracking_all() -> Preset {
    let mut preset = FINAL.clone();
    for sampling in [&mut preset.sampling.accurate, &mut preset.sampling.cheap] {
        if let Sampling::Every { tracked_pages, .. } = sampling {
            *tracked_pages = MAX_TRACKED_PAGES;
        }
    }
    preset
}

/// `auto` without its requests for sampling rates, for which the core tracks as many pages as it
/// bears.
struct TrackingAll(Auto);

impl Policy for TrackingAll {
    fn propose(&mut self, model: &Model, machine: &Topology, random: &mut Random) -> Vec<Proposal> {
        without_rates(self.0.propose(model, machine, random))
    }

    fn propose_due(
        &mut self,
        views: &Views<'_>,
        machine: &Topology,
        random: &mut Random,
    ) -> Vec<Proposal> {
        without_rates(self.0.propose_due(views, machine, random))
    }

    fn take_choice(&mut self) -> Choice {
        self.0.take_choice()
    }

    fn wants_touches(&self) -> bool {
        self.0.wants_touches()
    }

    fn lanes(&self) -> usize {
        self.0.lanes()
    }

    fn pace(&self, lane: usize) -> Pace {
        self.0.pace(lane)
    }

    fn begins_anew(&mut self, lane: usize) -> bool {
        self.0.begins_anew(lane)
    }

    fn period(&self) -> Nanos {
        self.0.period()
    }
}

fn without_rates(mut steps: Vec<Proposal>) -> Vec<Proposal> {
    steps.retain(|step| step.action.kind() != Kind::Sampling);
    steps
}

/// Seconds without samples after which a trial could be judged, and so may begin.
const WATCHED: u64 = 4;

fn input(observation: Observation) -> Input {
    Input { observation, ..Input::default() }
}

fn interval(size: Size) -> (Topology, Observation, Observation) {
    let mut random = Random::new(1);
    let mut before = observation(size, 1, &mut random);
    before.samples = None;
    (machine(size), before, observation(size, 2, &mut random))
}

/// Samples to page records, on a machine with dense records and on a large one; prints bytes a
/// page.
fn ingest(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ingest");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(3))
        .warm_up_time(Duration::from_millis(500));
    for size in [
        Size { nodes: 8, cpus_per_node: 16, threads: 128, pages: 30_000 },
        Size { nodes: 8, cpus_per_node: 16, threads: 128, pages: 1_000_000 },
        LARGEST,
    ] {
        let (topology, before, after) = interval(size);
        let samples = after.samples.as_ref().map_or(0, |samples| samples.list.len());
        let model = Model::update(&topology, &before, &after, &UpdateSettings::default());
        let each = model.pages.memory().0 as f64 / model.pages.len() as f64;
        eprintln!("{} pages on {} nodes: {each:.1} bytes each", model.pages.len(), size.nodes);
        let name = format!("{} nodes, {} threads, {} pages", size.nodes, size.threads, size.pages);
        group.throughput(Throughput::Elements(samples as u64));
        group.bench_function(BenchmarkId::new("samples", name), |bencher| {
            bencher.iter_with_large_drop(|| {
                Model::update(&topology, &before, &after, &UpdateSettings::default())
            });
        });
    }
    group.finish();
}

/// What pricing adds to a step: the fit of a window, the sums over its pages, and the choice.
/// Candidates are what Carrefour proposes for eight processes.
fn price(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("price");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(3))
        .warm_up_time(Duration::from_millis(500));
    for pages in [125_000, 1_000_000] {
        let size = Size { pages, ..LARGEST };
        let (topology, before, after) = interval(size);
        let model = Model::update(&topology, &before, &after, &UpdateSettings::default());
        let mut carrefour = Carrefour::new(FINAL.clone());
        let proposals = carrefour.propose(&model, &topology, &mut Random::new(1));
        let moves = proposals.iter().any(|one| matches!(one.action, Action::MovePages { .. }));
        assert!(moves, "there is something to price");
        let mut arbiter = Arbiter::default();
        arbiter.observe(&model, &topology);
        let name = format!("{} nodes, {} threads, {pages} pages", size.nodes, size.threads);
        group.bench_function(BenchmarkId::new("facts", &name), |bencher| {
            bencher.iter_with_large_drop(|| Facts::of(&model, &topology));
        });
        group.bench_function(BenchmarkId::new("all", &name), |bencher| {
            bencher.iter_batched(
                || proposals.clone(),
                |proposals| {
                    let facts = Facts::of(&model, &topology);
                    let pages = Sampled::of(&model, &topology);
                    let seen =
                        Seen { model: &model, pages: &pages, topology: &topology, facts: &facts };
                    let mut choice = Choice::default();
                    arbiter.choose(seen, proposals, &Permitted::all, &|_| false, &mut choice)
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, decide, step, price, ingest, compare_with_goal);
criterion_main!(benches);
