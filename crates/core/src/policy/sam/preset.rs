//! The variants of SAM as data.

use super::away::Memory;
use super::order::SocketOrder;
use super::thresholds::Basis;

/// Which problem is repaired first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Coherence, then remote accesses, then bandwidth [SAM-slides, with the worked example].
    CoherenceFirst,
    /// Remote accesses, then coherence, then bandwidth [author code].
    RemoteFirst,
}

/// Which coherent threads are brought together, and their target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gathering {
    /// All coherent threads of two flagged sockets, to the lower numbered one [author code:
    /// counters cannot tell which threads share].
    AllToLower,
    /// Only threads of one process, to the socket that needs the fewest and best moves; of two
    /// equal ones to the first of [`SocketOrder`] (inferred).
    ProcessToCheaper,
}

/// How many memory-bound threads leave a socket that is short of bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Half of them where the other socket is not flagged, else half of the difference [author
    /// code]. A socket just below the threshold is pushed over it, and the threads come back in the
    /// next interval.
    Half,
    /// Half of the difference (inferred).
    HalfOfDifference,
}

/// One variant.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// Where the thresholds come from.
    pub basis: Basis,
    /// Priority of the phases.
    pub order: Order,
    /// The tie-break between sockets that would do equally well.
    pub socket_order: SocketOrder,
    /// How the marks of threads away from their data are kept.
    pub memory: Memory,
    /// Which threads are brought together, and their target.
    pub gathering: Gathering,
    /// In phase C, the threads that a moved thread joins are pinned to that socket as well (ours).
    /// The published code changes the masks of moved threads only. With free masks the kernel's
    /// balancing takes them away again (emulated: after a second).
    pub keeps_company: bool,
    /// In phase R, threads of the same process that are at home are pinned there as well (ours).
    /// Otherwise the kernel, having taken one thread away, takes the next. In programs with
    /// barriers this happens several times a second (emulated).
    pub keeps_home: bool,
    /// In phase C, also exchange with a memory-bound thread that thereby goes home [inferred; the
    /// author's code excludes it].
    pub homeward_exchange: bool,
    /// In phase R, exchange with CPU-bound threads (not in SAM-MPH).
    pub remote_exchange: bool,
    /// In phase R, also exchange with a thread that is away from its data where it is: it has
    /// nothing to lose (ours).
    pub away_exchange: bool,
    /// In phase R, also take threads with many misses and with data known to be on another socket,
    /// even with few counted remote accesses (ours). The event counts loads that retire, and where
    /// prefetching works nearly all lines come before those.
    pub remote_by_home: bool,
    /// In phase R, leave threads that share with their company [the slides never split them;
    /// SAM-MPH has the rule]. Without it phase C fetches what phase R sends away, for ever.
    pub remote_spares_sharers: bool,
    /// In phase B, only on sockets without coherence (not in SAM-MPH).
    pub bandwidth_spares_coherence: bool,
    /// In phase B, skip threads with pages known to be here: their requests would come back over
    /// the link [inferred]. The published code learns it one phase R later.
    pub bandwidth_spares_home: bool,
    /// How many leave in phase B.
    pub spread: Spread,
    /// Place whole applications first (SAM-MPH).
    pub places_applications: bool,
}

impl Preset {
    /// The default: the slides' order, with the defects of the code repaired.
    pub const SLIDES: Self = Self {
        name: "slides",
        basis: Basis::Published,
        order: Order::CoherenceFirst,
        socket_order: SocketOrder::Occupants,
        memory: Memory::Forgetting,
        gathering: Gathering::ProcessToCheaper,
        keeps_company: true,
        keeps_home: false,
        homeward_exchange: true,
        remote_exchange: true,
        away_exchange: false,
        remote_by_home: false,
        remote_spares_sharers: true,
        bandwidth_spares_coherence: true,
        bandwidth_spares_home: true,
        spread: Spread::HalfOfDifference,
        places_applications: false,
    };
    /// The order, the marks and the rules of the public code; only its index slip in phase B is not
    /// reproduced.
    pub const AUTHOR: Self = Self {
        name: "author",
        order: Order::RemoteFirst,
        socket_order: SocketOrder::Number,
        memory: Memory::Sticky,
        gathering: Gathering::AllToLower,
        keeps_company: false,
        homeward_exchange: false,
        remote_spares_sharers: false,
        bandwidth_spares_home: false,
        spread: Spread::Half,
        ..Self::SLIDES
    };
    /// The default with the thresholds of the user-level port.
    pub const PORT: Self = Self { name: "port", basis: Basis::Port, ..Self::SLIDES };
    /// SAM-MPH: whole applications first, then the thread phases with its restrictions.
    pub const MPH: Self = Self {
        name: "mph",
        remote_exchange: false,
        bandwidth_spares_coherence: false,
        places_applications: true,
        ..Self::SLIDES
    };
    /// The default where it is known of each thread where its data is, as `auto` learns it from
    /// Carrefour's samples; not by name.
    pub const WITH_HOMES: Self = Self {
        name: "with-homes",
        keeps_home: true,
        away_exchange: true,
        remote_by_home: true,
        ..Self::SLIDES
    };
    /// All of them.
    pub const ALL: [Self; 4] = [Self::SLIDES, Self::AUTHOR, Self::PORT, Self::MPH];
}
