// SPDX-License-Identifier: GPL-2.0-or-later
//! The shared memory itself: words that the guest's driver reads and writes.
//!
//! The guest runs on the same thread as we do, so a word is never written from both sides at once.
//! Atomics only keep the compiler from assuming that there is no other writer.

#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use rondpoint_machine::{Machine, Processor, Vendor};

use crate::layout as at;

/// The mapped memory.
pub(crate) struct Shared {
    words: &'static [AtomicU64],
}

impl Shared {
    /// Maps the file that QEMU presents to the guest as a PCI device; it must have the right size.
    pub(crate) fn map(path: &Path) -> Result<Self, String> {
        let what = |error: std::io::Error| format!("{}: {error}", path.display());
        let file = File::options().read(true).write(true).open(path).map_err(what)?;
        let bytes = file.metadata().map_err(what)?.len();
        if bytes != at::BAR_BYTES as u64 {
            return Err(format!("{}: {bytes} bytes, must be {}", path.display(), at::BAR_BYTES));
        }
        // SAFETY: a fresh shared mapping of a file that is at least that long.
        let address = unsafe {
            libc::mmap(
                null_mut(),
                at::BAR_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(what(std::io::Error::last_os_error()));
        }
        // SAFETY: the mapping is page aligned, that long, never unmapped, and only ever reached
        // through atomics.
        let words = unsafe { std::slice::from_raw_parts(address.cast(), at::BAR_BYTES / 8) };
        Ok(Self { words })
    }

    /// Memory of our own, for tests.
    #[cfg(test)]
    pub(crate) fn anonymous() -> Self {
        let words: Vec<AtomicU64> = (0..at::BAR_BYTES / 8).map(|_| AtomicU64::new(0)).collect();
        Self { words: words.leak() }
    }

    #[inline]
    pub(crate) fn get(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, word: usize, value: u64) {
        self.words[word].store(value, Ordering::Relaxed);
    }

    /// Describes the machine to the driver; the magic number comes last. The error names what the
    /// layout has no room for.
    pub(crate) fn describe(&self, machine: &Machine, events: usize) -> Result<(), String> {
        let bounds = [
            ("CPUs", machine.cpu_count(), at::MAX_CPUS),
            ("nodes", machine.nodes.len(), at::MAX_NODES),
            ("links", machine.links.len(), at::MAX_LINKS),
            ("PMU counters", machine.pmu.counters as usize, at::MAX_SLOTS - 1),
        ];
        for (what, count, most) in bounds {
            if count > most {
                return Err(format!(
                    "{}: {count} {what}, but the PMU has room for {most}",
                    machine.name
                ));
            }
        }
        let vendor = match machine.pmu.vendor {
            Vendor::Intel => 0,
            Vendor::Amd => 1,
            Vendor::Arm => 2,
        };
        let processor = match machine.pmu.processor {
            None => at::PROCESSOR_NONE,
            Some(Processor::SkylakeSp) => at::PROCESSOR_SKYLAKE_SP,
            Some(Processor::AmdZen1) => at::PROCESSOR_AMD_ZEN1,
            Some(Processor::AmdZen4) => at::PROCESSOR_AMD_ZEN4,
            Some(Processor::NehalemEp) => at::PROCESSOR_NEHALEM_EP,
            Some(Processor::IvybridgeEp) => at::PROCESSOR_IVYBRIDGE_EP,
            Some(Processor::NeoverseN1) => at::PROCESSOR_NEOVERSE_N1,
        };
        let ps = |ns: f64| (ns * 1e3) as u64;
        self.set(at::HEADER_VERSION, at::LAYOUT_VERSION as u64);
        self.set(at::HEADER_CPUS, machine.cpu_count() as u64);
        self.set(at::HEADER_NODES, machine.nodes.len() as u64);
        self.set(at::HEADER_LINKS, machine.links.len() as u64);
        self.set(at::HEADER_EVENTS, events as u64);
        self.set(at::HEADER_SLOTS, u64::from(machine.pmu.counters));
        self.set(at::HEADER_VENDOR, vendor);
        self.set(at::HEADER_PROCESSOR, processor as u64);
        self.set(at::HEADER_CLOCK_KHZ, (machine.core.clock_mhz * 1e3) as u64);
        self.set(at::HEADER_READ_COST_PS, ps(machine.pmu.read_cost_ns));
        self.set(at::HEADER_SAMPLE_COST_PS, ps(machine.pmu.sample_cost_ns));
        self.set(at::HEADER_SAMPLED_EVENTS_MASK, (1 << events) - 1);
        self.set(at::HEADER_FEATURES_MASK, (at::FEATURE_USER_MASK | at::FEATURE_IP_MASK) as u64);
        for cpu in 0..machine.cpu_count() {
            self.set(at::HEADER_CPU_NODE + cpu, machine.node_of_cpu(cpu) as u64);
        }
        for (index, link) in machine.links.iter().enumerate() {
            self.set(at::HEADER_LINK_ENDS + index, (link.from | link.to << 8) as u64);
        }
        self.set(at::HEADER_MAGIC, at::MAGIC as u64);
        Ok(())
    }
}

/// The first word of a CPU's block.
pub(crate) fn cpu_block(cpu: usize) -> usize {
    at::CPU_BASE + cpu * at::CPU_WORDS
}
