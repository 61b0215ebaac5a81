//! `rondpoint move`: moves the memory of a running process between nodes, as migratepages(8) does,
//! with several workers. All checks are made before the first page moves.

mod nodes;
mod report;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rondpoint_core::{Bytes, Pid};
use rondpoint_linux::bulk::{self, Control, End, MAX_PASSES, Moved, Order};
use rondpoint_linux::freeze::{self, Still, Stood};
use rondpoint_linux::ledger_file::LedgerFile;
use rondpoint_linux::parse::{cpulist, meminfo, status};
use rondpoint_linux::privileges::{self, Needs};
use rondpoint_linux::probe;
use rondpoint_linux::syscall::pages::Reach;
use rondpoint_linux::{LinuxError, Root, root, topology};

use self::report::{Done, Report};
use crate::number_sets::Range;
use crate::targets::Target;
use crate::{ledgers, session, terminal};

/// Something was not moved.
const INCOMPLETE: u8 = 1;
/// Bad usage or input, nothing was moved.
const REFUSED: u8 = 2;
/// How often progress is shown.
const PROGRESS: Duration = Duration::from_millis(500);

const EXAMPLES: &str = "\
Examples:
  sudo rondpoint move --pid 4711 --from 0 --to 1
  sudo rondpoint move --pid 4711 --from 0,1 --to 2,3 --limit 500M    # 0 to 2 and 1 to 3
  sudo rondpoint move --pid 4711 --from 0 --to 1 --freeze             # faster; stops the process
  rondpoint move --pid 4711 --from all --to 0 --dry-run               # how much that would be";

const DETAILS: &str = "

Nodes are written as for numactl: 0-1,3 is a list, all is every node, !0 is all but 0, +0 is
the first node with memory, !+0 is all but that one. Sources and targets are paired in
ascending order, as migratepages does. If --to has fewer nodes than --from, its nodes are used again from the first.
Memory on a node that is both source and target stays.
Memory policies do not change: a process that is bound to its old nodes goes on to allocate
there, and the kernel's NUMA balancing may move pages again.

Exit status: 0 all memory is on its target; 1 some pages could not be moved, the process ended or
could not be resumed, or ^C stopped the move; 2 nothing was tried.";

/// Move the memory of a running process to other nodes
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = [EXAMPLES, DETAILS].concat())]
pub(crate) struct Arguments {
    /// The process: its number or its name (name:postgres, or postgres alone). Or all processes of
    /// a unit (unit:nginx.service) or of a cgroup (cgroup:/machine.slice), one after the other
    #[arg(long, short, value_name = "PROGRAM", value_parser = Target::parse)]
    pid: Target,

    /// Nodes to move memory from
    #[arg(long, value_name = "NODES")]
    from: String,

    /// Nodes to move memory to
    #[arg(long, value_name = "NODES")]
    to: String,

    /// Stop the process while its memory moves: by its cgroup if it is alone there, otherwise by
    /// SIGSTOP, which its parent may see. A guardian process resumes it if this command dies, and
    /// `rondpoint restore` if both die
    #[arg(long)]
    freeze: bool,

    /// Resume the process after this many seconds and move the rest while it runs [default: 5 % of
    /// its run time, at least 1]
    #[arg(long, value_name = "SECONDS", requires = "freeze", value_parser = seconds)]
    freeze_limit: Option<Duration>,

    /// Bytes a second at most; K, M and G are powers of 1024
    #[arg(long, value_name = "BYTES/S", value_parser = bytes)]
    limit: Option<u64>,

    /// Threads that move pages [default: one for each CPU, 4 at most]
    #[arg(long, value_name = "N", value_parser = workers)]
    workers: Option<NonZeroUsize>,

    /// Move pages that other processes have mapped too; needs CAP_SYS_NICE
    #[arg(long)]
    shared: bool,

    /// Only say how much would be moved
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,

    /// No progress on stderr
    #[arg(long, short)]
    quiet: bool,
}

/// Runs the command.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    let done = match run(arguments) {
        Ok(done) => done,
        Err(error) => {
            terminal::fail("move", &error);
            return ExitCode::from(REFUSED);
        }
    };
    let shown = match arguments.json {
        true => done.json(arguments.pid.is_set()).and_then(|text| terminal::print_json_text(&text)),
        false => terminal::print(&done.processes.iter().map(Report::text).collect::<String>()),
    };
    if let Err(error) = &shown {
        terminal::fail("move", error);
    }
    ExitCode::from(if shown.is_ok() && done.is_good() { 0 } else { INCOMPLETE })
}

fn run(arguments: &Arguments) -> Result<Done> {
    session::has_heap()?;
    let root = Root::live();
    let pids = arguments.pid.find(&root)?;
    let orders = pids.iter().map(|pid| order(&root, arguments, Pid(*pid)));
    let orders = orders.collect::<Result<Vec<Order>>>()?;
    let control = Control::default();
    let mut watch = Watch::new(&control, arguments)?;
    let _ = privileges::keep_only(&Needs::to_move());
    let mut done = Done::default();
    for order in &orders {
        match process(&root, arguments, order, &mut watch) {
            Ok(report) => done.processes.push(report),
            Err(error) if !arguments.pid.is_set() => return Err(error),
            Err(error) => {
                terminal::fail("move", &error);
                done.fail(order.process.pid, &error);
            }
        }
        if control.is_stopped() {
            break;
        }
    }
    Ok(done)
}

/// Moves the memory of one process.
fn process(
    root: &Root,
    arguments: &Arguments,
    order: &Order,
    watch: &mut Watch<'_>,
) -> Result<Report> {
    let control = watch.control;
    let before = bulk::survey(root, order.process, order.workers, control, &mut || watch.look())?;
    let planned = Report::planned(order, before.clone(), control.is_stopped());
    if arguments.dry_run || control.is_stopped() {
        return Ok(planned);
    }
    watch.total = planned.on_sources();
    room(root, &order.ways, &before)?;
    let ledgers = ledgers::folder()?;
    ledgers::put_back_what_was_left(&ledgers, &topology::discover(root)?.topology)?;
    let (moved, stood) = match arguments.freeze {
        true => {
            let limit = arguments.freeze_limit.unwrap_or_else(|| freeze::budget(order.process));
            let mut ledger = LedgerFile::create(&ledgers, root)?;
            let done = move_frozen(root, order, limit, &mut ledger, watch);
            // The process runs again, and pages stay where they are: there is nothing to undo.
            if let Err(error) = ledgers::close(ledger) {
                terminal::fail("move", &error);
            }
            done?
        }
        false => {
            let moved = bulk::relocate(root, order, control, &mut || watch.look())?;
            (moved, Stood::default())
        }
    };
    watch.end();
    Ok(Report::new(order, before, &moved).with(stood))
}

/// Moves while the process stands still, and the rest when it had to go on before the end.
fn move_frozen(
    root: &Root,
    order: &Order,
    limit: Duration,
    ledger: &mut LedgerFile,
    watch: &mut Watch<'_>,
) -> Result<(Moved, Stood)> {
    let control = watch.control;
    let mut still = Still::begin(root, order.process, limit, ledger)?;
    // A frozen process maps nothing new.
    let once = Order { passes: 1, ..order.clone() };
    let mut moved = bulk::relocate(root, &once, control, &mut || {
        still.look();
        watch.look();
    })?;
    let went_on = still.stood.note.is_some();
    still.end();
    if went_on && moved.end == End::Complete && order.leads_away() {
        moved.follow(bulk::relocate(root, order, control, &mut || watch.look())?);
    }
    Ok((moved, still.stood))
}

/// Everything that can be said against it before anything is looked at in the process's memory.
fn order(root: &Root, arguments: &Arguments, pid: Pid) -> Result<Order> {
    let topology = topology::discover(root)?.topology;
    let all = Range::memory_nodes(&topology);
    let parse = |flag: &str, text: &str| {
        all.parse(text).map_err(|problem| anyhow::anyhow!("{flag}: {problem}"))
    };
    let (from, to) = (parse("--from", &arguments.from)?, parse("--to", &arguments.to)?);
    let ways = nodes::ways(&from, &to);
    if ways.is_empty() {
        let (from, to) = (cpulist::format(&from), cpulist::format(&to));
        bail!("--from {from} --to {to}: no node's memory would go to another");
    }
    let process = session::process_of(root, pid)?;
    session::may_move_pages_of(root, pid)?;
    if let Some(allowed) = allowed_nodes(root, pid)?
        && let Some(node) = ways.values().find(|node| !allowed.contains(node))
    {
        let allowed = cpulist::format(&allowed);
        bail!("process {pid} may have memory on nodes {allowed} only (its cpuset), not on {node}");
    }
    if arguments.shared && !probe::may_move_shared() {
        bail!("--shared: moving pages of several processes needs CAP_SYS_NICE (sudo rondpoint …)");
    }
    Ok(Order {
        process,
        ways,
        reach: if arguments.shared { Reach::Shared } else { Reach::Own },
        workers: arguments.workers.unwrap_or_else(bulk::workers),
        limit: arguments.limit.map(Bytes),
        passes: MAX_PASSES,
    })
}

/// Where the process may have memory; `None` where the kernel does not say.
fn allowed_nodes(root: &Root, pid: Pid) -> Result<Option<Vec<u32>>> {
    let path = root.in_proc(format!("{pid}/status"));
    let Some(bytes) = root::read_optional(&path)? else { return Ok(None) };
    let status = status::parse(&bytes).map_err(|source| LinuxError::Format { path, source })?;
    Ok(status.nodes_allowed)
}

/// Refuses what has no room on its target, for the kernel would fill the node to the last page.
fn room(root: &Root, ways: &BTreeMap<u32, u32>, before: &BTreeMap<u32, Bytes>) -> Result<()> {
    let on = |node: &u32| before.get(node).map_or(0, |bytes| bytes.0);
    let targets: std::collections::BTreeSet<u32> = ways.values().copied().collect();
    for target in targets {
        let coming = ways.iter().filter(|(_, to)| **to == target).map(|(from, _)| on(from));
        let leaving = if ways.contains_key(&target) { on(&target) } else { 0 };
        let coming = coming.fold(0, u64::saturating_add);
        let wanted = coming.saturating_sub(leaving);
        let path = root.in_sys(format!("devices/system/node/node{target}/meminfo"));
        let bytes = root::read_required(&path)?;
        let memory =
            meminfo::parse(&bytes).map_err(|source| LinuxError::Format { path, source })?;
        let room = memory.room_bytes();
        if wanted > room {
            let (wanted, room) = (Bytes(wanted), Bytes(room));
            bail!("node {target} has {room} free or in its page cache, {wanted} would come");
        }
    }
    Ok(())
}

/// Shows how far it is, and stops it at ^C.
struct Watch<'a> {
    control: &'a Control,
    arriving: OwnedFd,
    /// What lay on the sources.
    total: Bytes,
    shown: Option<Instant>,
    shows: bool,
}

impl<'a> Watch<'a> {
    fn new(control: &'a Control, arguments: &Arguments) -> Result<Self> {
        let arriving = session::stop_signals()?;
        let shows = !arguments.quiet && !arguments.json && !arguments.dry_run;
        Ok(Self { control, arriving, total: Bytes(0), shown: None, shows })
    }

    fn look(&mut self) {
        if session::has_stopped(self.arriving.as_fd()) {
            self.control.stop();
        }
        let is_due = self.shown.is_none_or(|shown| shown.elapsed() >= PROGRESS);
        if !self.shows || !is_due || self.total.0 == 0 {
            return;
        }
        self.shown = Some(Instant::now());
        let moved = self.control.moved();
        let percent = 100 * moved.0 / self.total.0;
        terminal::progress(&format!("{moved} of {} moved, {percent} %", self.total));
    }

    fn end(&self) {
        if self.shown.is_some() {
            terminal::end_progress();
        }
    }
}

/// Reads an amount: `4096`, `500M`, `1.5G`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let shift = match text.chars().last().map(|last| last.to_ascii_uppercase()) {
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        _ => 0,
    };
    let digits = if shift > 0 { &text[..text.len() - 1] } else { text };
    let number: Option<f64> = digits.parse().ok();
    let bytes = number.map(|number| number * f64::from(1 << shift));
    let bytes = bytes.filter(|bytes| (1.0..=1e18).contains(bytes)).map(|bytes| bytes as u64);
    bytes.ok_or_else(|| "expected bytes such as 500M or 1.5G".to_string())
}

/// Reads the size of a last-level cache. A smaller number is one without its unit.
pub(crate) fn cache_bytes(text: &str) -> Result<u64, String> {
    const LEAST: u64 = 64 << 10;
    let found = bytes(text).ok().filter(|bytes| *bytes >= LEAST);
    found.ok_or_else(|| "expected a size from 64K up, such as 32M or 1.5G".to_string())
}

/// Threads at most: more than the kernel's lock on one process's memory lets work at once.
const MOST_WORKERS: usize = 256;

fn workers(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse().ok().filter(|number: &NonZeroUsize| number.get() <= MOST_WORKERS);
    number.ok_or_else(|| format!("expected 1 to {MOST_WORKERS}"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=1e6).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected seconds from 0.001 up".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_of_a_few_bytes_is_one_without_its_unit() {
        assert!(cache_bytes("32").is_err() && cache_bytes("63K").is_err());
        assert_eq!(cache_bytes("32M"), Ok(32 << 20));
    }

    #[test]
    fn amounts_are_read() {
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("500M"), Ok(500 << 20));
        assert_eq!(bytes("1.5g"), Ok(3 << 29));
        for bad in ["", "M", "0", "-1", "5T", "nan", "1e30"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(seconds("0").is_err() && seconds("nan").is_err());
    }

    #[test]
    fn a_target_without_room_is_refused_and_an_exchange_needs_none() {
        let directory = tempfile::tempdir().expect("a folder");
        let root = Root::captured(directory.path());
        for node in 0..2 {
            let folder = root.in_sys(format!("devices/system/node/node{node}"));
            std::fs::create_dir_all(&folder).expect("made");
            let line = |name, kib| format!("Node {node} {name}: {kib} kB\n");
            let text = line("MemTotal", 1000) + &line("MemFree", 8) + &line("Active(file)", 4);
            std::fs::write(folder.join("meminfo"), text).expect("written");
        }
        let on = |bytes| [(0, Bytes(bytes)), (1, Bytes(4096))].into();
        assert!(room(&root, &[(0, 1)].into(), &on(12 << 10)).is_ok());
        let error = room(&root, &[(0, 1)].into(), &on(16 << 10)).expect_err("4 KiB too many");
        let expected = "node 1 has 12.0 KiB free or in its page cache, 16.0 KiB would come";
        assert_eq!(error.to_string(), expected);
        assert!(room(&root, &[(0, 1), (1, 0)].into(), &on(16 << 10)).is_ok());
    }
}
