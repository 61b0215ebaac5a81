//! The lab's own programs in one binary: real work on real threads, each checking its own result.
//!
//! They run in a small guest as well as anywhere else, so they need only the kernel. They use no
//! NUMA library, and no shared library when linked statically. The last line of standard output is
//! `key=value` pairs. Exit code: 0 the result is right, 1 it is wrong, 2 bad usage or no such node.
//!
//! `rondpoint-workloads kmeans --threads 4 --size 64M --iterations 20`

mod apart;
mod bucketsort;
mod chase;
mod churn;
mod clock;
mod copies;
mod crew;
mod evade;
mod flags;
mod fleeting;
mod graph;
mod kmeans;
mod lookup;
mod mix;
mod movers;
mod nodes;
mod own;
mod pages;
mod parts;
mod pingpong;
mod pipeline;
mod random;
mod report;
mod scan;
mod serve;
mod solver;
mod stencil;
mod store;
mod stream;
mod system;
mod team;
mod wellplaced;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::report::{Failure, Report};

#[derive(Parser)]
#[command(version, about = "Programs with known memory behaviour; each checks its own result")]
struct Cli {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Subcommand)]
enum Workload {
    /// k-means over one large array that the main thread touches first
    Kmeans(kmeans::Flags),
    /// Heat on a plate: partitions initialised by one thread, used by others
    Stencil(stencil::Flags),
    /// Each thread touches and uses its own partition: nothing to improve
    Wellplaced(wellplaced::Flags),
    /// Bucket sort: bursts of all-to-all traffic between phases of local work
    Bucketsort(bucketsort::Flags),
    /// Two threads hand one cache line to each other: ns per handoff
    Pingpong(pingpong::Flags),
    /// Latency chase over a random cycle of lines: ns per access
    Chase(chase::Flags),
    /// Bandwidth from one node's CPUs to one node's memory: MB/s
    Stream(stream::Flags),
    /// Reads every line of a region exactly once, to check counters against
    Scan(scan::Flags),
    /// Memory, threads and children that come and go; stops, and becomes itself anew
    Churn(churn::Flags),
    /// Memory and children that are gone before a manager could do something for them: nothing to
    /// improve
    Fleeting(fleeting::Flags),
    /// Breadth-first traversals of a graph that the main thread builds: many short levels
    Graph(flags::Together),
    /// Conjugate gradients on a sparse matrix that the main thread builds: many barriers
    Solver(flags::Together),
    /// Random look-ups and changes in one table that the main thread fills
    Lookup(lookup::Flags),
    /// Pairs of threads that hand each other buffers
    Pipeline(pipeline::Flags),
    /// Threads that read a part each: in bursts, in turns, or one another's
    Parts(parts::Flags),
    /// Memory that is moved between two nodes by one mover after another: seconds of each
    Movers(movers::Flags),
    /// A server with threads that answer another process from one table: both sleep often
    Serve(serve::Flags),
    /// A store whose threads are asked by all threads of another process
    Store(serve::Flags),
    /// Threads with a known need, begun in a known place
    Crew(crew::Flags),
    /// Several of these programs at once
    Mix(mix::Flags),
    /// Leaves, forks, stops, lets go of its memory or becomes itself anew while its pages are being
    /// moved
    Evade(evade::Flags),
    /// Reads the clock without pause on every thread: the longest time between two readings
    Clock(clock::Flags),
    /// What copies of pages on each node cost, where the kernel makes them: ns per page
    Copies(copies::Flags),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    exit_on_panic();
    let result = match cli.workload {
        Workload::Kmeans(flags) => kmeans::run(&flags),
        Workload::Stencil(flags) => stencil::run(&flags),
        Workload::Wellplaced(flags) => wellplaced::run(&flags),
        Workload::Bucketsort(flags) => bucketsort::run(&flags),
        Workload::Pingpong(flags) => pingpong::run(&flags),
        Workload::Chase(flags) => chase::run(&flags),
        Workload::Stream(flags) => stream::run(&flags),
        Workload::Scan(flags) => scan::run(&flags),
        Workload::Churn(flags) => churn::run(&flags),
        Workload::Fleeting(flags) => fleeting::run(&flags),
        Workload::Graph(flags) => graph::run(&flags),
        Workload::Solver(flags) => solver::run(&flags),
        Workload::Lookup(flags) => lookup::run(&flags),
        Workload::Pipeline(flags) => pipeline::run(&flags),
        Workload::Parts(flags) => parts::run(&flags),
        Workload::Movers(flags) => movers::run(&flags),
        Workload::Serve(flags) => serve::run(&flags),
        Workload::Store(flags) => store::run(&flags),
        Workload::Crew(flags) => crew::run(&flags),
        Workload::Mix(flags) => mix::run(&flags),
        Workload::Evade(flags) => evade::run(&flags),
        Workload::Clock(flags) => clock::run(&flags),
        Workload::Copies(flags) => copies::run(&flags),
    };
    finish(result)
}

fn finish(result: Result<Report, Failure>) -> ExitCode {
    match result {
        Ok(report) => {
            println!("{report}");
            if report.right() { ExitCode::SUCCESS } else { ExitCode::from(1) }
        }
        Err(Failure(message)) => {
            eprintln!("rondpoint-workloads: {message}");
            ExitCode::from(2)
        }
    }
}

/// A thread that panics would leave the others waiting at the barrier for ever.
fn exit_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::exit(101);
    }));
}
