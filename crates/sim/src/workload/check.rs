//! Ranges of a workload's values.

use super::{Bursts, Lock, Program, Region, Requests, Used, Waits, Workload, WorkloadError};

/// Threads of all processes that a simulated machine holds.
const MOST_THREADS: f64 = 1e5;
/// Accesses beyond the private caches in 1,000 instructions.
pub(crate) const MOST_ACCESSES: f64 = 500.0;
/// Pages of all processes, 1 TiB. The simulator keeps two bytes for each.
const MOST_PAGES: f64 = (1_u64 << 28) as f64;

/// Field, value, valid range, and the range in words.
type Bounds = (&'static str, f64, std::ops::RangeInclusive<f64>, &'static str);

/// Refuses a program with a value out of range.
pub(super) fn check(program: &Program, file: &str) -> Result<(), WorkloadError> {
    let shares: f64 = program.regions.iter().map(|region| region.share).sum();
    let last_s = program.every_s * f64::from(program.instances);
    let mut fields: Vec<Bounds> = vec![
        ("instances", f64::from(program.instances), 1.0..=1e5, "1 to 100,000"),
        ("threads", f64::from(program.threads), 0.0..=1e5, "0 to 100,000"),
        ("threads_per_cpu", program.threads_per_cpu, 0.0..=1000.0, "0 to 1,000"),
        ("every_s", program.every_s, 0.0..=1e5, "0 to 100,000 s"),
        ("every_s × instances", last_s, 0.0..=1e5, "0 to 100,000 s"),
        ("start_s", program.start_s, 0.0..=1e5, "0 to 100,000 s"),
        ("seconds", program.seconds, 0.1..=1e5, "0.1 to 100,000 s"),
        ("cycles_per_instruction", program.cycles_per_instruction, 0.05..=100.0, "0.05 to 100"),
        ("accesses_per_kilo", program.accesses_per_kilo, 0.0..=MOST_ACCESSES, "0 to 500"),
        ("outstanding", program.outstanding, 0.5..=64.0, "0.5 to 64"),
        ("transfers_per_kilo", program.transfers_per_kilo, 0.0..=500.0, "0 to 500"),
        ("sharers", f64::from(program.sharers), 0.0..=1e5, "0 to 100,000"),
        ("burst", program.burst, 0.0..=0.9, "0 to 0.9"),
        ("sum of the regions' shares", shares, 0.999..=1.001, "1"),
    ];
    for region in &program.regions {
        fields.push(("regions.mib", region.mib, 0.0039..=1e6, "0.0039 (a page) to 1,000,000"));
        fields.push(("regions.share", region.share, 0.0..=1.0, "0 to 1"));
        fields.push(("regions.writes", region.writes, 0.0..=1.0, "0 to 1"));
        let lives = region.lives_s;
        fields.push(("regions.lives_s", lives, 0.0..=1e5, "0 (for ever) to 100,000 s"));
        fields.push(("regions.reuse", region.reuse, 0.0..=1.0, "0 to 1"));
    }
    program.bursts.iter().for_each(|bursts| fields.extend(bounds_of_bursts(bursts)));
    program.lock.iter().for_each(|lock| fields.extend(bounds_of_lock(program, lock)));
    if let Some(requests) = &program.requests {
        fields.extend(bounds_of(requests));
        let barriers = program.waits != Waits::Never || !program.phases.is_empty();
        let barriers = barriers || program.lock.is_some();
        let expected = "a program without waits, lock and phases";
        fields.push(("requests", f64::from(u8::from(barriers)), 0.0..=0.0, expected));
    }
    let mut from = 0.0;
    for phase in &program.phases {
        fields.push(("phases.at", phase.at, from..=1.0, "ascending shares, 0 to 1"));
        fields.push(("phases.intensity", phase.intensity, 0.0..=100.0, "0 to 100"));
        from = phase.at;
        let serial = f64::from(u8::from(phase.active > 0 && program.waits == Waits::Never));
        fields.push((
            "phases.active without barriers",
            serial,
            0.0..=0.0,
            "waits = \"spin\" or \"sleep\"",
        ));
    }
    let bad = fields.into_iter().find(|(_, value, range, _)| !range.contains(value));
    bad.map_or(Ok(()), |(field, got, _, expected)| {
        let field = format!("program {}: {field}", program.name);
        Err(WorkloadError::Range { file: file.to_string(), field, expected, got })
    })
}

/// Pages of one part of a region.
pub(crate) fn pages_of(region: &Region) -> usize {
    ((region.mib * 256.0) as usize).max(1)
}

/// Refuses programs that together have too many threads or pages for a simulated machine.
pub(super) fn check_size(workload: &Workload, cpus: usize) -> Result<(), WorkloadError> {
    let (mut threads, mut pages) = (0.0, 0.0);
    for program in &workload.programs {
        let each = program.threads_on(cpus);
        let parts = program.regions.iter().enumerate();
        let parts = parts.map(|(at, region)| (program.parts_of(at, each), pages_of(region)));
        let of_each: f64 = parts.map(|(parts, pages)| parts as f64 * pages as f64).sum();
        let instances = f64::from(program.instances);
        threads += each as f64 * instances;
        pages += of_each * instances;
        for (what, got, most, expected) in [
            ("threads × instances", threads, MOST_THREADS, "up to 100,000 on one machine"),
            ("pages × instances", pages, MOST_PAGES, "up to 268,435,456 (1 TiB) on one machine"),
        ] {
            if got > most {
                let field =
                    format!("program {}: {what}, with the programs before it", program.name);
                return Err(WorkloadError::Range {
                    file: workload.name.clone(),
                    field,
                    expected,
                    got,
                });
            }
        }
    }
    Ok(())
}

fn bounds_of_bursts(bursts: &Bursts) -> [Bounds; 3] {
    [
        ("bursts.every_s", bursts.every_s, 0.1..=1e5, "0.1 to 100,000 s"),
        ("bursts.share", bursts.share, 0.0..=1.0, "0 to 1"),
        ("bursts.quiet", bursts.quiet, 0.0..=1.0, "0 to 1"),
    ]
}

fn bounds_of_lock(program: &Program, lock: &Lock) -> [Bounds; 6] {
    let wrong = |is_wrong: bool| f64::from(u8::from(is_wrong));
    let of = program.regions.get(lock.region).map(|region| region.used);
    let is_alone = matches!(of, Some(Used::Own | Used::Next));
    let barriers = ![Waits::Never, lock.waits].contains(&program.waits);
    let last = program.regions.len() as f64 - 1.0;
    [
        ("lock.region", lock.region as f64, 0.0..=last, "the place of a region, from 0"),
        ("lock.region", wrong(is_alone), 0.0..=0.0, "a region of several threads: all or circle"),
        ("lock.share", lock.share, 1e-6..=1.0, "above 0, to 1"),
        ("lock.kilo_instructions", lock.kilo_instructions, 1e-3..=1e6, "0.001 to 1,000,000"),
        ("lock.lines", lock.lines, 0.0..=1e4, "0 to 10,000"),
        (
            "lock.waits",
            wrong(barriers || lock.waits == Waits::Never),
            0.0..=0.0,
            "\"spin\" or \"sleep\", as at the program's barriers",
        ),
    ]
}

fn bounds_of(requests: &Requests) -> [Bounds; 3] {
    let kilo = requests.kilo_instructions;
    [
        ("requests.kilo_instructions", kilo, 0.1..=1e6, "0.1 to 1,000,000"),
        ("requests.lines", requests.lines, 0.0..=1e4, "0 to 10,000"),
        ("requests.per_s", requests.per_s, 0.0..=1e9, "0 to 1,000,000,000"),
    ]
}

/// Refuses requests to a program that answers none, and programs that nobody asks.
pub(super) fn check_requests(programs: &[Program], file: &str) -> Result<(), WorkloadError> {
    let requests = || programs.iter().filter_map(|one| Some((one, one.requests.as_ref()?)));
    let refuse = |program: &Program, expected: &str| {
        let message = format!("program {}: requests: expected {expected}", program.name);
        Err(WorkloadError::Parse { file: file.to_string(), message })
    };
    for (program, of) in requests().filter(|(_, of)| !of.to.is_empty()) {
        let answers =
            |(other, its): (&Program, &Requests)| other.name == of.to && its.to.is_empty();
        if !requests().any(answers) {
            let expected = format!("`to` to name a program that answers requests, got {:?}", of.to);
            return refuse(program, &expected);
        }
    }
    for (program, of) in requests().filter(|(_, of)| !of.to.is_empty()) {
        let waits = |of: &Requests| of.per_s == 0.0;
        if requests().any(|(_, its)| its.to == of.to && waits(its) != waits(of)) {
            return refuse(program, "`per_s` for all programs that ask one, or for none");
        }
    }
    // A name that is wrong above leaves a server without clients too.
    for (program, _) in requests().filter(|(_, of)| of.to.is_empty()) {
        if !requests().any(|(_, its)| its.to == program.name) {
            return refuse(program, "another program whose requests go `to` it");
        }
    }
    Ok(())
}
