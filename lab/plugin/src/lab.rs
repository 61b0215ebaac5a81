// SPDX-License-Identifier: GPL-2.0-or-later
//! The lab's one object: what QEMU's callbacks find when they are called.
//!
//! All vCPUs, all timers and all callbacks run on QEMU's single vCPU thread, or under its big lock
//! while that thread waits. So there is one `Lab` and no lock. Functions of QEMU that may call us
//! back (timers, interrupts) are called without holding a borrow of it.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, Ordering};

use rondpoint_lab_model::{LINE_BYTES, Served, Source};

use crate::clock::Clock;
use crate::qemu::{self, AccelOps, CpuState, PluginId, Qemu, Word};
use crate::sharing::Sharing;
use crate::traffic::{Arrival, Traffic};

/// While the guest boots a quantum lasts this many of the machine's: no program looks at the time
/// then, and turns take host time.
const BOOT_QUANTA: u64 = 10;

/// One vCPU as QEMU knows it.
pub(crate) struct Vcpu {
    pub(crate) state: *mut CpuState,
    /// The word that generated code raises by one for each instruction.
    pub(crate) progress: *mut u64,
    /// Up to here the vCPU's time is in its counters, ps.
    accounted_ps: u64,
    /// It has reached the horizon and waits for the others; QEMU passes it over.
    parked: bool,
}

/// Everything the callbacks share.
pub(crate) struct Lab {
    pub(crate) qemu: Qemu,
    pub(crate) id: PluginId,
    pub(crate) word: Word,
    pub(crate) vcpus: Vec<Vcpu>,
    pub(crate) clock: Clock,
    pub(crate) traffic: Traffic,
    sharing: Sharing,
    ops: *mut AccelOps,
    /// The vCPU that was last found running. It is looked at first when QEMU asks whether all are
    /// idle, which it does for each idle vCPU in turn.
    awake: usize,
    /// QEMU's own delivery of interrupts, behind ours. `None` until the first vCPU is there.
    interrupt: Option<extern "C" fn(*mut CpuState, c_int)>,
}

static LAB: AtomicPtr<Lab> = AtomicPtr::new(null_mut());
/// We are asking QEMU ourselves which vCPUs are idle; not in `Lab`, which is borrowed meanwhile.
static ASKING: AtomicBool = AtomicBool::new(false);
/// QEMU looks at its timers on our behalf: all threads see the published time. Not in `Lab` either.
static IN_TIMERS: AtomicBool = AtomicBool::new(false);
/// Up to here QEMU's timers have run, ns: what its virtual clock shows to them.
static PUBLISHED_NS: AtomicI64 = AtomicI64::new(0);

thread_local! {
    /// The address of this thread's `current_cpu`, looked up once.
    static CURRENT: Cell<*const *mut CpuState> = const { Cell::new(std::ptr::null()) };
}

/// The lab. Panics before `install`.
pub(crate) fn lab() -> &'static mut Lab {
    let lab = LAB.load(Ordering::Relaxed);
    assert!(!lab.is_null(), "a callback before the plugin was installed");
    // SAFETY: set once by `install`, never freed. The module's comment says why no two threads are
    // here at once. No borrow is held over a call that may come back.
    unsafe { &mut *lab }
}

/// Makes the lab and puts its clock in the place of QEMU's.
pub(crate) fn install(
    qemu: Qemu,
    id: PluginId,
    clock: Clock,
    traffic: Traffic,
    sharing: Sharing,
) -> Result<(), String> {
    let ops = qemu.accelerator()?;
    let scoreboard = (qemu.scoreboard_new)(size_of::<u64>());
    let lab = Lab {
        qemu,
        id,
        word: Word { scoreboard, offset: 0 },
        vcpus: Vec::new(),
        clock,
        traffic,
        sharing,
        ops,
        awake: 0,
        interrupt: None,
    };
    LAB.store(Box::into_raw(Box::new(lab)), Ordering::Relaxed);
    // SAFETY: the class lives as long as QEMU, which is still single-threaded when plugins load.
    let ops = unsafe { &mut *ops };
    ops.get_virtual_clock = Some(get_virtual_clock);
    ops.set_virtual_clock = Some(set_virtual_clock);
    ops.get_elapsed_ticks = Some(get_elapsed_ticks);
    ops.cpu_thread_is_idle = Some(cpu_thread_is_idle);
    Ok(())
}

/// Puts our hook before QEMU's delivery of interrupts, once QEMU has initialised the accelerator.
/// A QEMU that is not what we think ends here, before its first guest instruction.
fn hook_interrupts(lab: &mut Lab) {
    // SAFETY: as in `install`; the vCPU threads have not executed any guest code yet.
    let ops = unsafe { &mut *lab.ops };
    if let Err(error) = Qemu::check_accelerator(ops) {
        eprintln!("rondpoint-lab-plugin: {error}");
        std::process::exit(1);
    }
    lab.interrupt = ops.handle_interrupt.replace(handle_interrupt);
}

impl Lab {
    /// A vCPU came into being. QEMU may have moved the scoreboard: all words are found again.
    pub(crate) fn add_vcpu(&mut self, index: usize) {
        assert_eq!(index, self.vcpus.len(), "vCPUs appear in order");
        if self.interrupt.is_none() {
            hook_interrupts(self);
        }
        let state = (self.qemu.cpu_by_index)(index as c_int);
        // Without this, per-vCPU inline operations corrupt the guest under thread=single
        // (QEMU 10.0 generates code for one scoreboard entry only).
        (self.qemu.cpu_init_flags)(state, true);
        self.vcpus.push(Vcpu { state, progress: null_mut(), accounted_ps: 0, parked: false });
        for (index, vcpu) in self.vcpus.iter_mut().enumerate() {
            let word = (self.qemu.scoreboard_find)(self.word.scoreboard, index as c_uint);
            vcpu.progress = word.cast();
        }
        self.arm(index);
    }

    /// The vCPU's progress word.
    #[inline]
    pub(crate) fn progress(&self, vcpu: usize) -> u64 {
        // SAFETY: points into the scoreboard, which lives as long as QEMU.
        unsafe { *self.vcpus[vcpu].progress }
    }

    /// Has generated code call back when the (folded) vCPU reaches the horizon.
    pub(crate) fn arm(&mut self, vcpu: usize) {
        let most = self.traffic.instructions_to_come(vcpu);
        let progress = self.clock.arm(vcpu, most);
        // SAFETY: as in `progress`.
        unsafe { *self.vcpus[vcpu].progress = progress };
    }

    /// The vCPU's clock, with everything that it has executed and all that it waited for.
    pub(crate) fn fold(&mut self, vcpu: usize) -> u64 {
        let progress = self.progress(vcpu);
        let executed = self.clock.fold(vcpu, progress);
        if self.traffic.is_modelled() {
            let now = self.clock.model_ps(vcpu, progress);
            let instructions = self.clock.instructions(vcpu, progress);
            let owed = self.traffic.hardware.settle(vcpu, now, instructions);
            self.clock.stall(vcpu, owed);
        }
        let now = self.clock.now_ps(vcpu, progress);
        self.traffic.executed(vcpu, executed, now - self.vcpus[vcpu].accounted_ps);
        self.vcpus[vcpu].accounted_ps = now;
        now
    }

    /// The vCPU's time, without folding.
    #[inline]
    pub(crate) fn now_ps(&self, vcpu: usize) -> u64 {
        self.clock.now_ps(vcpu, self.progress(vcpu))
    }

    /// Charges a stall, which may take the vCPU over the horizon.
    #[inline]
    pub(crate) fn stall(&mut self, vcpu: usize, ps: u64) {
        self.clock.stall(vcpu, ps);
        self.yield_at_horizon(vcpu);
    }

    #[inline]
    fn yield_at_horizon(&mut self, vcpu: usize) {
        if self.now_ps(vcpu) >= self.clock.horizon_ps() {
            self.fold(vcpu);
            self.reach_horizon(vcpu);
            self.arm(vcpu);
        }
    }

    fn index_of(&self, state: *mut CpuState) -> Option<usize> {
        self.vcpus.iter().position(|vcpu| vcpu.state == state)
    }

    fn is_idle(&self, vcpu: usize) -> bool {
        ASKING.store(true, Ordering::Relaxed);
        let idle = (self.qemu.cpu_is_idle)(self.vcpus[vcpu].state);
        ASKING.store(false, Ordering::Relaxed);
        idle
    }

    /// The clock of the vCPU that is furthest behind, of those that run or are parked; `None` where
    /// all are idle. `caller` runs for certain.
    fn slowest(&self, caller: Option<usize>) -> Option<u64> {
        let runs =
            |vcpu: usize| caller == Some(vcpu) || self.vcpus[vcpu].parked || !self.is_idle(vcpu);
        // A vCPU that is ahead of a running one need not be asked, and asking takes long.
        (0..self.vcpus.len()).fold(None, |slowest: Option<u64>, vcpu| {
            let now = self.now_ps(vcpu);
            let is_slowest = slowest.is_none_or(|slowest| now < slowest) && runs(vcpu);
            if is_slowest { Some(now) } else { slowest }
        })
    }

    /// Generated code called back: the vCPU used up what it was armed with.
    pub(crate) fn limit_reached(&mut self, vcpu: usize) {
        self.fold(vcpu);
        self.sample_execution(vcpu);
        if self.now_ps(vcpu) >= self.clock.horizon_ps() {
            self.reach_horizon(vcpu);
        }
        self.arm(vcpu);
    }

    /// The (folded) vCPU has run as far as it may: it waits for the others, or lets them go on.
    fn reach_horizon(&mut self, vcpu: usize) {
        let slowest = self.slowest(Some(vcpu)).expect("the caller runs");
        if self.close_quantum(slowest, Some(vcpu)) {
            let horizon_ps = self.clock.horizon_ps();
            if self.now_ps(vcpu) < horizon_ps {
                return;
            }
        }
        if !self.vcpus[vcpu].parked {
            self.vcpus[vcpu].parked = true;
            (self.qemu.cpu_pause)(self.vcpus[vcpu].state);
        }
    }

    /// Begins another quantum if `slowest_ps` allows it. `caller` is a vCPU at its turn.
    fn close_quantum(&mut self, slowest_ps: u64, caller: Option<usize>) -> bool {
        let Some(elapsed_ps) = self.clock.close_quantum(slowest_ps) else { return false };
        self.traffic.end_quantum(elapsed_ps, &self.clock);
        let machine_ps = self.clock.machine_ps();
        let patience = if self.traffic.is_woven_in() { 1 } else { BOOT_QUANTA };
        self.clock.set_quantum_ps(patience * self.sharing.quantum_ps(machine_ps));
        if next_timer_ns(&self.qemu).is_some_and(|due| due <= ns(machine_ps)) {
            // Timers need QEMU's big lock, which is not ours inside generated code.
            let state = self.vcpus[caller.unwrap_or(0)].state;
            (self.qemu.queue_work)(state, run_timers, 0);
            (self.qemu.cpu_exit)(state);
        }
        for other in 0..self.vcpus.len() {
            if self.vcpus[other].parked && self.now_ps(other) < self.clock.horizon_ps() {
                self.arm(other);
                self.vcpus[other].parked = false;
                (self.qemu.cpu_resume)(self.vcpus[other].state);
            }
        }
        true
    }

    /// An access that the model or a sampling slot must see.
    #[inline(never)]
    pub(crate) fn arrive(&mut self, vcpu: usize, arrival: &Arrival, hit: bool) {
        let served =
            if hit { self.traffic.first_level_hit() } else { self.traffic.miss(vcpu, arrival) };
        self.clock.stall(vcpu, served.stall_ps);
        let now_ps = self.now_ps(vcpu);
        if served.transfer_from.is_some() {
            let machine_ps = self.clock.machine_ps();
            self.sharing.transferred(arrival.access.paddr / LINE_BYTES, machine_ps);
            self.clock.set_quantum_ps(self.sharing.quantum_ps(machine_ps));
        }
        let samples = self.traffic.sample(vcpu, &served, arrival, now_ps);
        self.interrupt_for(vcpu, samples);
        self.clock.stall_for_manager(vcpu, samples * self.traffic.sample_cost_ps());
        self.yield_at_horizon(vcpu);
    }

    /// The guest's driver says whether the vCPU executes for a manager (`RP_MARKER_PRICE`).
    pub(crate) fn change_price(&mut self, vcpu: usize) {
        self.fold(vcpu);
        let manages = self.traffic.manages(vcpu);
        self.clock.set_manages(vcpu, manages);
        self.traffic.hardware.set_manages(vcpu, manages);
        self.arm(vcpu);
    }

    /// The vCPU was seen at the other privilege level. Events from before belong to the old level.
    #[inline(never)]
    pub(crate) fn switch_level(&mut self, vcpu: usize, kernel: bool) {
        self.fold(vcpu);
        self.sample_execution(vcpu);
        self.traffic.switch_level(vcpu, kernel);
        self.arm(vcpu);
    }

    /// Slots that count instructions or cycles get their turn where no access comes by. All slots
    /// learn of the first-level hits that they were not asked about.
    pub(crate) fn sample_execution(&mut self, vcpu: usize) {
        let arrival = Arrival::none(self.now_ps(vcpu));
        let served =
            Served { stall_ps: 0, latency_ps: 0, source: Source::Outside, transfer_from: None };
        let samples = self.traffic.sample(vcpu, &served, &arrival, arrival.access.now_ps);
        self.interrupt_for(vcpu, samples);
        self.clock.stall_for_manager(vcpu, samples * self.traffic.sample_cost_ps());
    }

    /// Raises the non-maskable interrupt with which samples announce themselves.
    fn interrupt_for(&mut self, vcpu: usize, samples: u64) {
        if samples > 0 {
            let state = self.vcpus[vcpu].state;
            (self.qemu.queue_work)(state, raise_nmi, 0);
            (self.qemu.cpu_exit)(state);
        }
    }

    /// What the guest's time-stamp counter shows, ns: the vCPU's own time.
    fn ticks_ns(&mut self) -> u64 {
        let machine = self.clock.machine_ps();
        let Some(vcpu) = current_cpu().and_then(|state| self.index_of(state)) else {
            return machine / 1000;
        };
        let now = self.fold(vcpu);
        self.arm(vcpu);
        now.max(machine) / 1000
    }

    /// What devices see, ns: the asking vCPU's time, but never past the horizon, for which timers
    /// have not run.
    fn device_ns(&self) -> i64 {
        let published_ns = PUBLISHED_NS.load(Ordering::Relaxed);
        let Some(vcpu) = current_cpu().and_then(|state| self.index_of(state)) else {
            return published_ns;
        };
        ns(self.now_ps(vcpu).min(self.clock.horizon_ps())).max(published_ns)
    }

    /// An interrupt wakes an idle vCPU at its sender's time, or at the time of the timer that
    /// fired.
    fn wake(&mut self, state: *mut CpuState) {
        let Some(vcpu) = self.index_of(state) else { return };
        if self.vcpus[vcpu].parked || !self.is_idle(vcpu) {
            return;
        }
        let in_timers = IN_TIMERS.load(Ordering::Relaxed);
        let sender = if in_timers { None } else { current_cpu() };
        let sender = sender.and_then(|state| self.index_of(state)).filter(|&sender| sender != vcpu);
        let at = sender.map_or(0, |sender| self.now_ps(sender)).max(self.clock.machine_ps());
        self.fold(vcpu);
        self.vcpus[vcpu].accounted_ps += self.clock.wake(vcpu, at);
        self.arm(vcpu);
    }
}

/// The vCPU that this thread is running; `None` on QEMU's other threads.
fn current_cpu() -> Option<*mut CpuState> {
    let address = CURRENT.with(|current| {
        if current.get().is_null() {
            let found = qemu::address_of("current_cpu").expect("found when the plugin was loaded");
            current.set(found.cast::<*mut CpuState>().cast_const());
        }
        current.get()
    });
    // SAFETY: the address of a thread-local of this thread, valid as long as the thread.
    let state = unsafe { *address };
    (!state.is_null()).then_some(state)
}

/// Raises an NMI on the vCPU that took a sample. Called with the big lock held.
extern "C" fn raise_nmi(state: *mut CpuState, _: u64) {
    let qemu = lab().qemu;
    qemu.raise_nmi(state);
}

/// Runs QEMU's timers up to the machine's clock. Called with the big lock held.
extern "C" fn run_timers(_: *mut CpuState, _: u64) {
    let target_ns = ns(lab().clock.machine_ps());
    advance(target_ns);
}

fn advance(target_ns: i64) {
    let advance = lab().qemu.clock_advance;
    IN_TIMERS.store(true, Ordering::Relaxed);
    advance(target_ns);
    IN_TIMERS.store(false, Ordering::Relaxed);
}

/// When the next timer of QEMU is due, ns of guest time; `None` where none is armed.
fn next_timer_ns(qemu: &Qemu) -> Option<i64> {
    // QEMU answers relative to its virtual clock, which must not be that of a vCPU now.
    IN_TIMERS.store(true, Ordering::Relaxed);
    let left_ns = qemu.deadline_ns();
    IN_TIMERS.store(false, Ordering::Relaxed);
    let left_ns = i64::try_from(left_ns?).unwrap_or(i64::MAX / 2);
    Some(PUBLISHED_NS.load(Ordering::Relaxed) + left_ns)
}

fn ns(ps: u64) -> i64 {
    i64::try_from(ps / 1000).unwrap_or(i64::MAX)
}

extern "C" fn get_virtual_clock() -> i64 {
    if IN_TIMERS.load(Ordering::Relaxed) {
        return PUBLISHED_NS.load(Ordering::Relaxed);
    }
    lab().device_ns()
}

extern "C" fn set_virtual_clock(ns: i64) {
    PUBLISHED_NS.fetch_max(ns, Ordering::Relaxed);
}

extern "C" fn get_elapsed_ticks() -> i64 {
    i64::try_from(lab().ticks_ns()).unwrap_or(i64::MAX)
}

extern "C" fn handle_interrupt(state: *mut CpuState, mask: c_int) {
    let original = {
        let lab = lab();
        lab.wake(state);
        lab.interrupt
    };
    if let Some(original) = original {
        original(state, mask);
    }
}

/// QEMU asks this only of a vCPU that has nothing to do. When all vCPUs have nothing to do, the
/// machine's clock jumps to the next timer there and then, on the vCPU thread. So no host time
/// passes in waiting, and events have the same order in every run. `false` sends QEMU around its
/// loop once more.
extern "C" fn cpu_thread_is_idle(_: *mut CpuState) -> bool {
    let busy = ASKING.load(Ordering::Relaxed) || IN_TIMERS.load(Ordering::Relaxed);
    if busy || current_cpu().is_none() {
        return true;
    }
    let lab = lab();
    let runs = |vcpu: &usize| !lab.vcpus[*vcpu].parked && !lab.is_idle(*vcpu);
    if runs(&lab.awake) {
        return true;
    }
    if let Some(awake) = (0..lab.vcpus.len()).find(runs) {
        lab.awake = awake;
        return true;
    }
    if let Some(slowest_ps) = lab.slowest(None) {
        // The last running vCPU has gone idle; vCPUs that waited for it may go on.
        lab.close_quantum(slowest_ps, None);
        return false;
    }
    let Some(due_ns) = next_timer_ns(&lab.qemu) else { return true };
    // A timer that is due already runs only if the clock moves at all.
    let target_ns = due_ns.max(PUBLISHED_NS.load(Ordering::Relaxed) + 1);
    let slept_ps = lab.clock.sleep_until(u64::try_from(target_ns).unwrap_or(0) * 1000);
    lab.traffic.end_quantum(slept_ps, &lab.clock);
    advance(target_ns);
    false
}
