//! Hidden constants of one simulated machine.

use rondpoint_core::Random;

/// What the machine file does not say, or says with an error.
///
/// Factors are on the value of the machine file. Every other range is a choice.
#[derive(Debug, Clone, PartialEq)]
pub struct Truth {
    /// Factor on controller bandwidth, 0.9 to 1.1.
    pub bandwidth: f64,
    /// Factor on the latency beyond the local one, 0.85 to 1.15.
    pub wire: f64,
    /// Factor on the latency of bursts, 0.8 to 1.2.
    pub burst: f64,
    /// Power of utilisation in the latency of bursts, 0.8 to 1.25; 1 is the machine file's line.
    pub burst_power: f64,
    /// Bytes of a burst at a link, of those at a controller, in [`Self::LINK_BURSTS`].
    pub link_bursts: f64,
    /// Share of a controller's bandwidth lost when all its traffic comes from other nodes, 0 to
    /// 0.1.
    pub mixing: f64,
    /// Share of written lines that go back to memory, 0.5 to 1.
    pub write_back: f64,
    /// Moves of a thread to an idle CPU that the kernel makes without need, per thread and second,
    /// 0 to 0.02.
    pub wander_per_s: f64,
    /// Pace of a hardware thread while its core runs another one as well, 0.55 to 0.7.
    pub shared_core: f64,
    /// Time to move one base page, 1,500 to 3,000 ns: Linux's `move_pages` on servers of the last
    /// ten years.
    pub move_ns: f64,
    /// Time for which each thread of a process stands still for one moved page, 10 to 60 ns. It is
    /// the page table lock and the flush of translations, in batches.
    pub flush_ns: f64,
    /// Time of one NUMA hint fault, 800 to 2,000 ns.
    pub fault_ns: f64,
    /// Time for which a write to a page with copies waits, 100,000 to 400,000 ns: a few hundred
    /// microseconds in Carrefour, section 4.4.
    pub collapse_ns: f64,
    /// Share of the epochs after which a thread that waits for messages is near the one that woke
    /// it, 0.1 to 0.9. The kernel wakes a thread near its waker if that one goes to sleep
    /// (`wake_affine_idle`).
    pub wakes_near: f64,
    /// Time from a message to the moment at which a sleeping thread runs, 1,500 to 6,000 ns.
    pub wake_ns: f64,
}

impl Truth {
    /// Bounds of [`Self::link_bursts`]. They are fitted: Streamcluster has the latencies of
    /// Carrefour's table 1 best at the lower one, PCA at the upper one (`fitting/carrefour.toml`).
    pub const LINK_BURSTS: [f64; 2] = [0.0, 0.15];

    /// Draws the constants.
    pub fn draw(random: &mut Random) -> Self {
        let mut between = |low: f64, high: f64| low + (high - low) * random.unit();
        Self {
            bandwidth: between(0.9, 1.1),
            wire: between(0.85, 1.15),
            burst: between(0.8, 1.2),
            burst_power: between(0.8, 1.25),
            mixing: between(0.0, 0.1),
            write_back: between(0.5, 1.0),
            wander_per_s: between(0.0, 0.02),
            shared_core: between(0.55, 0.7),
            move_ns: between(1500.0, 3000.0),
            flush_ns: between(10.0, 60.0),
            fault_ns: between(800.0, 2000.0),
            collapse_ns: between(100_000.0, 400_000.0),
            link_bursts: between(Self::LINK_BURSTS[0], Self::LINK_BURSTS[1]),
            ..Self::wakes(random.clone())
        }
    }

    /// Draws the constants of wake-ups, from a copy: those of a seed came before them and stay.
    fn wakes(mut random: Random) -> Self {
        let wakes_near = 0.1 + 0.8 * random.unit();
        let wake_ns = 1500.0 + 4500.0 * random.unit();
        Self { wakes_near, wake_ns, ..Self::middle() }
    }

    /// The machine file taken at its word, and the middle of every other range: for fitting.
    #[must_use]
    pub fn middle() -> Self {
        Self {
            bandwidth: 1.0,
            wire: 1.0,
            burst: 1.0,
            burst_power: 1.0,
            mixing: 0.0,
            write_back: 0.75,
            wander_per_s: 0.01,
            shared_core: 0.62,
            move_ns: 2250.0,
            flush_ns: 35.0,
            fault_ns: 1400.0,
            collapse_ns: 250_000.0,
            link_bursts: Self::LINK_BURSTS[0].midpoint(Self::LINK_BURSTS[1]),
            wakes_near: 0.5,
            wake_ns: 3750.0,
        }
    }
}
