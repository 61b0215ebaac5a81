//! The variants of SAM as data.

use super::away::Marking;
use super::order::SocketOrder;
use super::thresholds::Basis;

/// Priority of the three phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Coherence, then remote accesses, then bandwidth [SAM-slides, with the worked example].
    CoherenceFirst,
    /// Remote accesses, then coherence, then bandwidth [author code].
    RemoteFirst,
}

/// The rule of phase C: which coherent threads are brought together, and on which socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gathering {
    /// All coherent threads of two flagged sockets, to the lower numbered one [author code:
    /// counters cannot tell which threads share].
    AllToLower,
    /// Only threads of one process, to the socket that needs the fewest and best moves. Of two
    /// equal sockets, the first of [`SocketOrder`] (inferred).
    ProcessToCheaper,
}

/// The rule of phase B: the number of memory-bound threads that leave a saturated socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Half of them where the target is not saturated, else half of the difference [author code]. A
    /// target just below the threshold is pushed over it, and the threads come back in the next
    /// interval.
    Half,
    /// Half of the difference between the memory-bound threads of both sockets (inferred).
    HalfOfDifference,
}

/// One variant of SAM.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// Source of the thresholds.
    pub basis: Basis,
    /// Priority of the phases.
    pub order: Order,
    /// The tie-break between sockets that would do equally well.
    pub socket_order: SocketOrder,
    /// The rule by which threads are marked as away from their data.
    pub marking: Marking,
    /// The rule of phase C.
    pub gathering: Gathering,
    /// In phase C, also pin the coherent threads that a moved thread joins (our rule). The author
    /// code changes the masks of moved threads only. The kernel's balancing moves threads with free
    /// masks away again (emulated: after a second).
    pub pins_joined_threads: bool,
    /// In phase R, also pin the memory-bound threads of the same process that are at home (our
    /// rule). Otherwise the kernel moves them away one after the other. In programs with barriers
    /// this happens several times a second (emulated).
    pub pins_threads_at_home: bool,
    /// In phase C, also exchange with a memory-bound thread that thereby goes home [inferred; the
    /// author's code excludes it].
    pub homeward_exchange: bool,
    /// In phase R, exchange with CPU-bound threads (not in SAM-MPH).
    pub remote_exchange: bool,
    /// In phase R, also exchange with a thread whose data is remote where it runs, because it loses
    /// nothing (our rule).
    pub away_exchange: bool,
    /// In phase R, also take memory-bound threads with data known to be on another socket, even
    /// with few counted remote accesses (our rule). The event counts retired loads, and with
    /// prefetching nearly all lines arrive before those.
    pub remote_by_home: bool,
    /// In phase R, skip threads that share data [the slides never split them; SAM-MPH has the
    /// rule]. Otherwise phases C and R move the same thread back and forth.
    pub remote_spares_sharers: bool,
    /// In phase B, skip sockets with coherence, between sockets or inside (not in SAM-MPH).
    pub bandwidth_spares_coherence: bool,
    /// In phase B, skip threads with data known to be on the saturated socket. Their requests would
    /// come back over the link [inferred]. The author code learns this only from the next phase R.
    pub bandwidth_spares_home: bool,
    /// The rule of phase B.
    pub spread: Spread,
    /// Place whole applications before single threads (SAM-MPH).
    pub places_applications: bool,
}

impl Preset {
    /// The default: the slides' order, with the defects of the author code repaired.
    pub const SLIDES: Self = Self {
        name: "slides",
        basis: Basis::Published,
        order: Order::CoherenceFirst,
        socket_order: SocketOrder::Occupants,
        marking: Marking::Forgetting,
        gathering: Gathering::ProcessToCheaper,
        pins_joined_threads: true,
        pins_threads_at_home: false,
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
    /// The order, the marks and the rules of the author code, without its index slip in phase B.
    pub const AUTHOR: Self = Self {
        name: "author",
        order: Order::RemoteFirst,
        socket_order: SocketOrder::Number,
        marking: Marking::Sticky,
        gathering: Gathering::AllToLower,
        pins_joined_threads: false,
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
    /// The default for when the home of each thread's data is known. `auto` uses it, with homes
    /// from Carrefour's samples. The command line does not offer it.
    pub const WITH_HOMES: Self = Self {
        name: "with-homes",
        pins_threads_at_home: true,
        away_exchange: true,
        remote_by_home: true,
        ..Self::SLIDES
    };
    /// The presets that the command line offers.
    pub const ALL: [Self; 4] = [Self::SLIDES, Self::AUTHOR, Self::PORT, Self::MPH];
}
