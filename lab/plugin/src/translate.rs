// SPDX-License-Identifier: GPL-2.0-or-later
//! What is woven into the guest's code when QEMU translates it.
//!
//! Every block counts its instructions and compares the count with a limit, in line. Memory
//! accesses call the model, but only from `ModelOn` on: until then the guest boots at full speed.

#![allow(unsafe_code)]

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;

use rondpoint_lab_model::Access;

use crate::clock::CALL_BACK_AT;
use crate::decode::{LONGEST, Special, classify};
use crate::lab::{Lab, lab};
use crate::qemu::{
    ADD, GREATER_OR_EQUAL, LOADS, MemCallback, MemInfo, NO_REGISTERS, PluginId, STORES, VALUE_U64,
};
use crate::traffic::Arrival;

/// PAUSE on a machine of today, ps: about 40 cycles at 2.5 GHz and more on newer cores. Without a
/// charge the kernel's delay loops would take for ever in modelled time.
const PAUSE_PS: u64 = 150_000;

/// Asks QEMU for the callbacks that last.
pub(crate) fn register() {
    let lab = lab();
    (lab.qemu.on_vcpu_init)(lab.id, vcpu_init);
    (lab.qemu.on_translation)(lab.id, translate);
    (lab.qemu.on_exit)(lab.id, power_off, null_mut());
}

extern "C" fn vcpu_init(_: PluginId, vcpu: c_uint) {
    // After a reset of the plugin QEMU announces the vCPUs again.
    if lab().vcpus.len() == vcpu as usize {
        lab().add_vcpu(vcpu as usize);
    }
}

extern "C" fn power_off(_: PluginId, _: *mut c_void) {
    let lab = lab();
    for vcpu in 0..lab.vcpus.len() {
        lab.fold(vcpu);
    }
    lab.traffic.power_off(&lab.clock);
}

extern "C" fn translate(_: PluginId, block: *mut c_void) {
    let lab = lab();
    let qemu = &lab.qemu;
    let instructions = (qemu.block_len)(block);
    (qemu.block_add)(block, ADD, lab.word, instructions as u64);
    (qemu.on_block_condition)(
        block,
        limit_reached,
        NO_REGISTERS,
        GREATER_OR_EQUAL,
        lab.word,
        CALL_BACK_AT,
        null_mut(),
    );
    let woven_in = lab.traffic.is_woven_in();
    for index in 0..instructions {
        let instruction = (qemu.block_instruction)(block, index);
        let mut bytes = [0; LONGEST];
        let length = (qemu.instruction_len)(instruction).min(LONGEST);
        (qemu.instruction_bytes)(instruction, bytes.as_mut_ptr().cast(), length);
        if let Some(special) = classify(&bytes[..length]) {
            let datum = special as usize as *mut c_void;
            (qemu.on_instruction)(instruction, special_callback(special), NO_REGISTERS, datum);
        }
        if woven_in {
            let address = (qemu.instruction_address)(instruction);
            let datum = address as *mut c_void;
            // The kernel's half of the address space has the topmost bit set.
            let (load, store): (MemCallback, MemCallback) = if address >> 63 == 1 {
                (access::<false, true>, access::<true, true>)
            } else {
                (access::<false, false>, access::<true, false>)
            };
            (qemu.on_memory)(instruction, load, NO_REGISTERS, LOADS, datum);
            (qemu.on_memory)(instruction, store, NO_REGISTERS, STORES, datum);
        }
    }
}

fn special_callback(special: Special) -> crate::qemu::VcpuCallback {
    match special {
        Special::ModelOn => model_on,
        Special::ModelOff => model_off,
        Special::ReadCounters => read_counters,
        Special::LoadSlots => load_slots,
        Special::ReadNodes => read_nodes,
        Special::Price => change_price,
        Special::Pause => pause,
        Special::AddressSpace | Special::Invalidate => flush,
    }
}

extern "C" fn limit_reached(vcpu: c_uint, _: *mut c_void) {
    lab().limit_reached(vcpu as usize);
}

extern "C" fn pause(vcpu: c_uint, _: *mut c_void) {
    lab().stall(vcpu as usize, PAUSE_PS);
}

extern "C" fn flush(vcpu: c_uint, _: *mut c_void) {
    lab().traffic.flush(vcpu as usize);
}

/// The modelled part begins: translated code goes, and comes back with the model woven in.
extern "C" fn model_on(_: c_uint, _: *mut c_void) {
    let lab = lab();
    if lab.traffic.is_woven_in() {
        return;
    }
    for vcpu in 0..lab.vcpus.len() {
        lab.fold(vcpu);
        lab.arm(vcpu);
    }
    lab.traffic.begin(&mut lab.clock);
    (lab.qemu.reset)(lab.id, translate_again);
}

extern "C" fn translate_again(_: PluginId) {
    register();
}

extern "C" fn model_off(_: c_uint, _: *mut c_void) {
    let lab = lab();
    for vcpu in 0..lab.vcpus.len() {
        lab.fold(vcpu);
        lab.arm(vcpu);
    }
    lab.traffic.end(&lab.clock);
}

extern "C" fn read_counters(vcpu: c_uint, _: *mut c_void) {
    let lab = lab();
    let now_ps = lab.fold(vcpu as usize);
    lab.sample_execution(vcpu as usize);
    lab.arm(vcpu as usize);
    let cost = lab.traffic.read_counters(vcpu as usize, now_ps);
    lab.stall(vcpu as usize, cost);
}

extern "C" fn load_slots(vcpu: c_uint, _: *mut c_void) {
    let lab = lab();
    lab.fold(vcpu as usize);
    lab.sample_execution(vcpu as usize);
    let cost = lab.traffic.load_slots(vcpu as usize);
    lab.arm(vcpu as usize);
    lab.stall(vcpu as usize, cost);
}

extern "C" fn change_price(vcpu: c_uint, _: *mut c_void) {
    lab().change_price(vcpu as usize);
}

extern "C" fn read_nodes(_: c_uint, _: *mut c_void) {
    let lab = lab();
    lab.traffic.export_nodes(lab.clock.machine_ps());
}

/// A load or store by an instruction of the kernel or of a program.
extern "C" fn access<const STORE: bool, const KERNEL: bool>(
    vcpu: c_uint,
    info: MemInfo,
    vaddr: u64,
    instruction: *mut c_void,
) {
    let lab = lab();
    if !lab.traffic.is_modelled() {
        return;
    }
    let vcpu = vcpu as usize;
    if lab.traffic.levels.is_kernel(vcpu) != KERNEL {
        lab.switch_level(vcpu, KERNEL);
    }
    let hit = lab.traffic.hardware.first_level_hit(vcpu, vaddr, STORE);
    if hit {
        let quiet = &mut lab.traffic.quiet_hits[vcpu];
        if *quiet > 1 {
            *quiet -= 1;
            return;
        }
    }
    locate(lab, vcpu, info, vaddr, STORE, instruction, hit);
}

/// Finds the physical address, and what was loaded, and hands the access on.
#[inline(never)]
fn locate(
    lab: &mut Lab,
    vcpu: usize,
    info: MemInfo,
    vaddr: u64,
    store: bool,
    instruction: *mut c_void,
    hit: bool,
) {
    let qemu = lab.qemu;
    let location = (qemu.physical)(info, vaddr);
    // Ports and device registers are not modelled; a lost translation cannot be.
    if location.is_null() || (qemu.physical_is_io)(location) {
        return;
    }
    let value = if store { None } else { Some((qemu.loaded_value)(info)) };
    let progress = lab.progress(vcpu);
    let access = Access {
        vaddr,
        paddr: (qemu.physical_address)(location),
        store,
        loaded: value.filter(|value| value.kind == VALUE_U64).map(|value| value.low),
        now_ps: lab.clock.model_ps(vcpu, progress),
        instructions: lab.clock.instructions(vcpu, progress),
    };
    let arrival = Arrival { access, ip: instruction as u64 };
    lab.arrive(vcpu, &arrival, hit);
}
