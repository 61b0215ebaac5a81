// SPDX-License-Identifier: GPL-2.0-or-later
//! The QEMU plugin around the lab's hardware model, with its own guest clock.
//!
//! QEMU runs the guest; this plugin gives it time. It counts instructions and sends every memory
//! access through `rondpoint-lab-model`. It charges the modelled latency to the vCPU that waited,
//! and shows the guest one consistent clock (`clock`, `lab`). Counters and samples go to the guest
//! through shared memory (`bar`), where the driver in `lab/driver` makes a perf PMU of them. It
//! decides nothing about caches, controllers or links: that is the model's business.

#![allow(unsafe_code)]

mod clock;
mod decode;
mod lab;
mod layout;
mod levels;
mod qemu;
mod report;
mod sampler;
mod settings;
mod shared;
mod sharing;
mod traffic;
mod translate;

use std::ffi::{c_char, c_int};

use clock::Clock;
use qemu::{Info, PluginId, Qemu};
use report::Reporter;
use rondpoint_lab_model::{Event, Hardware};
use rondpoint_machine::Machine;
use settings::Settings;
use shared::Shared;
use sharing::Sharing;
use traffic::Traffic;

/// The plugin API that this plugin was written for; QEMU compares it with its own.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: c_int = qemu::API_VERSION;

/// While the guest boots nothing is modelled and an instruction takes this long, ps. The longer it
/// takes, the sooner the kernel's pauses are over, which the kernel spends turning. With 0.5 ns
/// booting took 1.8 times as long (metal, asymsched-8, one run each).
const BOOT_PS_PER_INSTRUCTION: u64 = 10_000;

/// Called by QEMU when it loads the plugin; a non-zero result ends QEMU.
///
/// # Safety
/// QEMU passes a valid `info` and `argc` strings in `argv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: by the caller's promise.
    let (info, arguments) = unsafe { (&*info, qemu::arguments(argc, argv)) };
    match install(id, info, &arguments) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("rondpoint-lab-plugin: {error}");
            1
        }
    }
}

fn install(id: PluginId, info: &Info, arguments: &[(String, String)]) -> Result<(), String> {
    let settings = Settings::read(arguments)?;
    let machine = Machine::load(&settings.machine).map_err(|error| error.to_string())?;
    if usize::try_from(info.smp_vcpus) != Ok(machine.cpu_count()) {
        let (vcpus, cpus) = (info.smp_vcpus, machine.cpu_count());
        return Err(format!("QEMU has {vcpus} vCPUs, but {} has {cpus}", machine.name));
    }
    let mut hardware =
        Hardware::new(&machine, &settings.memory).map_err(|error| error.to_string())?;
    let shared = settings.shared.as_deref().map(Shared::map).transpose()?;
    if let Some(shared) = &shared {
        shared.describe(&machine, Event::COUNT)?;
    }
    let quantum_ps = machine.lab.quantum_ns * 1000;
    let mut clock = Clock::new(machine.cpu_count(), BOOT_PS_PER_INSTRUCTION, quantum_ps);
    clock.speed_up_managers(machine.lab.manager_speed_up());
    hardware.speed_up_managers(machine.lab.manager_speed_up());
    let reporter = Reporter::new(settings.report);
    let traffic = Traffic::new(&machine, hardware, shared, reporter);
    let sharing = Sharing::new(quantum_ps, fastest_transfer_ps(&machine));
    lab::install(Qemu::load()?, id, clock, traffic, sharing)?;
    translate::register();
    Ok(())
}

/// The shortest time in which a line goes from one vCPU to another, ps.
fn fastest_transfer_ps(machine: &Machine) -> u64 {
    let transfer = &machine.transfer_ns;
    let remote = transfer.remote_ns.iter().flatten().copied();
    let all = remote.chain([transfer.same_domain_ns, transfer.same_node_ns]);
    let fastest = all.filter(|ns| *ns > 0.0).fold(f64::INFINITY, f64::min);
    if fastest.is_finite() { (fastest * 1e3) as u64 } else { u64::MAX }
}
