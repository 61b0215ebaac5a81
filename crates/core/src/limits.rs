//! Every bound of the core in one place, with assertions on how they relate.

use crate::units::Nanos;

/// Nodes: the kernel's `MAX_NUMNODES` with `NODES_SHIFT` 10 (arch/x86/Kconfig, v6.12).
pub const MAX_NODES: usize = 1024;
/// CPUs: the kernel's `NR_CPUS` with `MAXSMP` (arch/x86/Kconfig, v6.12).
pub const MAX_CPUS: usize = 8192;
/// Nodes up to which a page record counts accesses densely; above, the record holds the few nodes
/// that were seen.
pub const DENSE_NODES: usize = 8;
/// Pages that one model may track, whatever a policy asks for: 2²¹ records of 64 bytes are 128 MiB.
pub const MAX_TRACKED_PAGES: usize = 1 << 21;
/// Policies of one controller: there are fewer, and each preset needs naming once.
pub const MAX_POLICIES: usize = 64;
/// A counter that ran for a smaller share of the interval is not believed [Carrefour author code:
/// warns below 15 %].
pub const MIN_RUNNING_SHARE: f64 = 0.15;

const _: () = assert!(
    MAX_NODES < u16::MAX as usize,
    "node indices are stored in 16 bits and one value means unknown"
);
const _: () = assert!(DENSE_NODES <= MAX_NODES);
const _: () = assert!(MAX_TRACKED_PAGES < u32::MAX as usize, "pages are indexed with 32 bits");
/// Treated pages that Carrefour remembers for one application: as many as it can treat in 17 s at
/// 30,000 a second.
pub const MAX_REMEMBERED_PAGES: usize = 1 << 19;
/// Co-located pages that Carrefour follows for one application to see which nodes use them: as many
/// as one round fills between samples.
pub const MAX_FOLLOWED_PAGES: usize = 1 << 16;
/// Moves of pages and threads that the guard remembers: more than the byte budget of eight nodes
/// allows in half a window.
pub const MAX_REMEMBERED_MOVES: usize = 1 << 20;
/// Entries of the ledger that hold pages to be put back; the oldest are settled first.
pub const MAX_LEDGER_ENTRIES: usize = 1 << 16;
/// Windows of one trial at most: then it is judged and a new one begins.
pub const MAX_TRIAL_WINDOWS: usize = 12;
/// A trial waits at most this long for what its policy has yet to bring about, whatever the policy
/// says. AsymSched's memory follows from the next second on, for two seconds. What is left goes in
/// the one after, and a host that is late once adds another.
pub const MAX_TRIAL_WAIT: Nanos = Nanos::from_secs(8);
/// Windows after an action that a verdict needs, and before it that an action needs. Of those
/// before, one may be all that the program's present phase has.
pub const MIN_TRIAL_WINDOWS: usize = 3;

/// A window while something is tried, except for a policy with a shorter period of its own. Three
/// windows after an action, and the one with the action's own cost, are over by the next second's
/// decision. So the last step of a policy is judged then, however quiet the policy is. It is
/// not shorter, for reading `/proc` and the counters costs about a millisecond. Rates over a few
/// scheduler ticks are noise, too (our choice).
pub const TRIAL_WINDOW: Nanos = Nanos::from_millis(250);

const _: () = assert!(MAX_TRIAL_WINDOWS >= 2 * MIN_TRIAL_WINDOWS);
/// For how long hint faults are kept where there are no samples. The kernel passes over a process's
/// memory in 1 s to 60 s (`sysctl_numa_balancing_scan_period_min` and `_max`, kernel/sched/fair.c,
/// v6.12); our choice between them.
pub const HINT_FAULT_MEMORY: Nanos = Nanos::from_secs(10);
/// Hint faults of earlier observations that are kept at most: what the kernel makes of one process
/// in two seconds at its fastest. Each decision reads them, at some 10⁷ a second.
pub const MAX_EARLIER_HINT_FAULTS: usize = 1 << 17;

/// How long nothing must have been done before counting may stop. Every policy that decides each
/// second has then found twice that there is nothing to do (our choice).
pub const QUIET_BEFORE_PAUSE: Nanos = Nanos::from_secs(2);
/// For how long it is counted between two pauses, so that each policy decides once.
pub const WATCH_BETWEEN_PAUSES: Nanos = Nanos::from_secs(1);
/// What only counters tell is seen later by this at most (our choice): a fifth of the cost of being
/// counted is left.
pub const LONGEST_PAUSE: Nanos = Nanos::from_secs(4);
/// How often `/proc` is looked at during a pause: as often as most policies decide.
pub const GLANCE: Nanos = Nanos::from_secs(1);
/// How often a host glances at the processes while the controller waits or pauses. Ten ticks of the
/// kernel's clock: below that a share of CPU time is noise. A change is seen within two of them. A
/// glance is a system call for each process and, where one runs, for each unit outside the cores.
pub const QUICK_GLANCE: Nanos = Nanos::from_millis(100);

const _: () = assert!(WATCH_BETWEEN_PAUSES.0 < QUIET_BEFORE_PAUSE.0);

/// Share of each node's memory that moves leave free, unless the user sets another (our choice).
pub const RESERVE_SHARE: f64 = 0.02;
