// SPDX-License-Identifier: GPL-2.0-or-later
//! What the plugin needs of QEMU 10.0: the public plugin API and the few internals behind its
//! clock.
//!
//! Every function is looked up by name when the plugin is loaded. We rely on the layout of one
//! structure, and compare it with functions of known addresses. A QEMU that differs is refused with
//! one sentence before the guest executes its first instruction.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

/// The plugin's identity, handed out by QEMU.
pub(crate) type PluginId = u64;
/// QEMU's `CPUState`, opaque here.
pub(crate) type CpuState = c_void;
/// QEMU's memory access description, opaque here.
pub(crate) type MemInfo = u32;

/// The plugin API version that we speak (`include/qemu/qemu-plugin.h`, QEMU 10.0).
pub(crate) const API_VERSION: c_int = 4;
/// `QEMU_PLUGIN_CB_NO_REGS`.
pub(crate) const NO_REGISTERS: c_int = 0;
/// `QEMU_PLUGIN_MEM_R`.
pub(crate) const LOADS: c_int = 1;
/// `QEMU_PLUGIN_MEM_W`.
pub(crate) const STORES: c_int = 2;
/// `QEMU_PLUGIN_COND_GE`.
pub(crate) const GREATER_OR_EQUAL: c_int = 7;
/// `QEMU_PLUGIN_INLINE_ADD_U64`.
pub(crate) const ADD: c_int = 0;
/// `QEMU_PLUGIN_MEM_VALUE_U64`.
pub(crate) const VALUE_U64: c_int = 3;
/// `QEMU_CLOCK_VIRTUAL` (`include/qemu/timer.h`).
pub(crate) const CLOCK_VIRTUAL: c_int = 1;
/// `QEMU_TIMER_ATTR_ALL`.
const TIMERS_ALL: c_int = -1;
/// `CPU_INTERRUPT_NMI` of x86 targets (`target/i386/cpu.h`: `CPU_INTERRUPT_TGT_EXT_3`).
const INTERRUPT_NMI: c_int = 0x0200;

/// `qemu_info_t`.
#[repr(C)]
#[allow(unreachable_pub)] // part of the exported function's signature
pub struct Info {
    pub(crate) target_name: *const c_char,
    pub(crate) version_min: c_int,
    pub(crate) version_cur: c_int,
    pub(crate) system_emulation: bool,
    pub(crate) smp_vcpus: c_int,
    pub(crate) max_vcpus: c_int,
}

/// `qemu_plugin_u64`: one word of a scoreboard, per vCPU.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Word {
    pub(crate) scoreboard: *mut c_void,
    pub(crate) offset: usize,
}

/// `qemu_plugin_mem_value`; the union is as wide as its widest member.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MemValue {
    pub(crate) kind: c_int,
    pub(crate) low: u64,
    pub(crate) high: u64,
}

/// `AccelOpsClass` (`include/system/accel-ops.h`), up to the last field that we set.
#[repr(C)]
pub(crate) struct AccelOps {
    parent_class: [u8; 96],
    ops_init: *const c_void,
    cpus_are_resettable: *const c_void,
    cpu_reset_hold: *const c_void,
    create_vcpu_thread: *const c_void,
    kick_vcpu_thread: *const c_void,
    pub(crate) cpu_thread_is_idle: Option<extern "C" fn(*mut CpuState) -> bool>,
    synchronize: [*const c_void; 5],
    pub(crate) handle_interrupt: Option<extern "C" fn(*mut CpuState, c_int)>,
    pub(crate) get_virtual_clock: Option<extern "C" fn() -> i64>,
    pub(crate) set_virtual_clock: Option<extern "C" fn(i64)>,
    pub(crate) get_elapsed_ticks: Option<extern "C" fn() -> i64>,
}

/// Callback with the vCPU's index and a word of our own.
pub(crate) type VcpuCallback = extern "C" fn(c_uint, *mut c_void);
/// Callback of a memory access.
pub(crate) type MemCallback = extern "C" fn(c_uint, MemInfo, u64, *mut c_void);
/// Work queued for a vCPU (`run_on_cpu_func`; the datum is a union of a word).
pub(crate) type CpuWork = extern "C" fn(*mut CpuState, u64);

macro_rules! symbols {
    ($(#[$outer:meta])* struct $name:ident { $($field:ident = $symbol:literal : $kind:ty,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name { $(pub(crate) $field: $kind,)* }
        impl $name {
            /// Looks every symbol up; the error names the first that is missing.
            pub(crate) fn load() -> Result<Self, String> {
                Ok(Self { $($field: {
                    let address = address_of($symbol)?;
                    // SAFETY: the symbol was found in the QEMU that loaded us. Its type is the one
                    // declared by QEMU 10.0's headers, which `check` has us rely on.
                    unsafe { std::mem::transmute_copy::<*mut c_void, $kind>(&address) }
                },)* })
            }
        }
    };
}

symbols! {
/// Functions of QEMU, public API first, internals after.
struct Qemu {
    reset = "qemu_plugin_reset": extern "C" fn(PluginId, extern "C" fn(PluginId)),
    on_vcpu_init = "qemu_plugin_register_vcpu_init_cb": extern "C" fn(PluginId, extern "C" fn(PluginId, c_uint)),
    on_translation = "qemu_plugin_register_vcpu_tb_trans_cb": extern "C" fn(PluginId, extern "C" fn(PluginId, *mut c_void)),
    on_exit = "qemu_plugin_register_atexit_cb": extern "C" fn(PluginId, extern "C" fn(PluginId, *mut c_void), *mut c_void),
    on_block_condition = "qemu_plugin_register_vcpu_tb_exec_cond_cb": extern "C" fn(*mut c_void, VcpuCallback, c_int, c_int, Word, u64, *mut c_void),
    block_add = "qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu": extern "C" fn(*mut c_void, c_int, Word, u64),
    on_instruction = "qemu_plugin_register_vcpu_insn_exec_cb": extern "C" fn(*mut c_void, VcpuCallback, c_int, *mut c_void),
    on_memory = "qemu_plugin_register_vcpu_mem_cb": extern "C" fn(*mut c_void, MemCallback, c_int, c_int, *mut c_void),
    block_len = "qemu_plugin_tb_n_insns": extern "C" fn(*const c_void) -> usize,
    block_instruction = "qemu_plugin_tb_get_insn": extern "C" fn(*const c_void, usize) -> *mut c_void,
    instruction_bytes = "qemu_plugin_insn_data": extern "C" fn(*const c_void, *mut c_void, usize) -> usize,
    instruction_len = "qemu_plugin_insn_size": extern "C" fn(*const c_void) -> usize,
    instruction_address = "qemu_plugin_insn_vaddr": extern "C" fn(*const c_void) -> u64,
    physical = "qemu_plugin_get_hwaddr": extern "C" fn(MemInfo, u64) -> *mut c_void,
    physical_is_io = "qemu_plugin_hwaddr_is_io": extern "C" fn(*const c_void) -> bool,
    physical_address = "qemu_plugin_hwaddr_phys_addr": extern "C" fn(*const c_void) -> u64,
    loaded_value = "qemu_plugin_mem_get_value": extern "C" fn(MemInfo) -> MemValue,
    scoreboard_new = "qemu_plugin_scoreboard_new": extern "C" fn(usize) -> *mut c_void,
    scoreboard_find = "qemu_plugin_scoreboard_find": extern "C" fn(*mut c_void, c_uint) -> *mut c_void,
    cpu_by_index = "qemu_get_cpu": extern "C" fn(c_int) -> *mut CpuState,
    cpu_exit = "cpu_exit": extern "C" fn(*mut CpuState),
    cpu_pause = "cpu_pause": extern "C" fn(*mut CpuState),
    cpu_resume = "cpu_resume": extern "C" fn(*mut CpuState),
    cpu_interrupt = "cpu_interrupt": extern "C" fn(*mut CpuState, c_int),
    cpu_is_idle = "cpu_thread_is_idle": extern "C" fn(*mut CpuState) -> bool,
    cpu_init_flags = "tcg_cpu_init_cflags": extern "C" fn(*mut CpuState, bool),
    queue_work = "async_run_on_cpu": extern "C" fn(*mut CpuState, CpuWork, u64),
    clock_deadline = "qemu_clock_deadline_ns_all": extern "C" fn(c_int, c_int) -> i64,
    clock_advance = "qemu_clock_advance_virtual_time": extern "C" fn(i64) -> i64,
    class_by_name = "object_class_by_name": extern "C" fn(*const c_char) -> *mut AccelOps,
}
}

impl Qemu {
    /// The accelerator's operations, with the clock fields free. When plugins load, QEMU has made
    /// the class but not yet initialised it: `check_accelerator` proves the rest of its layout.
    pub(crate) fn accelerator(&self) -> Result<*mut AccelOps, String> {
        let class = (self.class_by_name)(c"tcg-accel-ops".as_ptr());
        if class.is_null() {
            return Err("QEMU has no class tcg-accel-ops; run it with -accel tcg".to_owned());
        }
        // SAFETY: the class object is larger than our view of it and lives as long as QEMU.
        let ops = unsafe { &*class };
        let clocks = ops.get_virtual_clock.is_some() || ops.set_virtual_clock.is_some();
        if clocks || ops.get_elapsed_ticks.is_some() || ops.cpu_thread_is_idle.is_some() {
            return Err("the clock of QEMU is taken already, or QEMU is not 10.0".to_owned());
        }
        Ok(class)
    }

    /// Compares two fields of the initialised accelerator with the functions that must be there.
    pub(crate) fn check_accelerator(ops: &AccelOps) -> Result<(), String> {
        let thread = address_of("rr_start_vcpu_thread")?;
        if ops.create_vcpu_thread != thread.cast_const() {
            return Err(
                "AccelOpsClass is not that of QEMU 10.0, or thread=single is missing".into()
            );
        }
        let interrupt = ops.handle_interrupt.map_or(0, |function| function as usize);
        if interrupt != address_of("tcg_handle_interrupt")? as usize {
            return Err("AccelOpsClass is not that of QEMU 10.0: handle_interrupt moved".into());
        }
        Ok(())
    }

    /// Nanoseconds until the next virtual timer; `None` where none is armed.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        u64::try_from((self.clock_deadline)(CLOCK_VIRTUAL, TIMERS_ALL)).ok()
    }

    /// Raises a non-maskable interrupt; the caller holds QEMU's big lock.
    pub(crate) fn raise_nmi(&self, cpu: *mut CpuState) {
        (self.cpu_interrupt)(cpu, INTERRUPT_NMI);
    }
}

/// The address of an exported symbol of QEMU.
pub(crate) fn address_of(symbol: &str) -> Result<*mut c_void, String> {
    let name = CString::new(symbol).map_err(|_| format!("bad symbol name {symbol:?}"))?;
    // SAFETY: dlsym only reads the NUL-terminated name.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if address.is_null() {
        return Err(format!("this QEMU does not export {symbol}; QEMU 10.0 does"));
    }
    Ok(address)
}

/// The arguments of the plugin, `key=value` each.
///
/// # Safety
/// `argv` holds `argc` NUL-terminated strings, as `qemu_plugin_install` promises.
pub(crate) unsafe fn arguments(argc: c_int, argv: *const *const c_char) -> Vec<(String, String)> {
    let count = usize::try_from(argc).unwrap_or(0);
    let text = |index: usize| {
        // SAFETY: index < argc, by the caller's promise.
        unsafe { CStr::from_ptr(*argv.add(index)) }.to_string_lossy().into_owned()
    };
    let split = |argument: String| match argument.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => (argument, String::new()),
    };
    (0..count).map(text).map(split).collect()
}
