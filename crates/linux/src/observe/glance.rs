//! A glance: a quick reading of CPU clocks and traffic between two observations.

use rondpoint_core::counting_pause::Glance;
use rondpoint_core::observation::Counter;
use rondpoint_core::{Matrix, Nanos};

use super::sensors::Sensors;
use super::{Observer, counters};
use crate::LinuxError;
use crate::syscall::time::since_boot_ns;

impl Observer {
    /// Reads only cheap values: the CPU clock of each process and, with `requests`, counters that
    /// are not the program's. The rings are not emptied.
    ///
    /// # Errors
    /// An open counter cannot be read.
    pub fn glance(&self, requests: bool) -> Result<Glance, LinuxError> {
        let Sensors { uncore, .. } = &self.sensors;
        let traffic = requests.then(|| uncore.traffic(&self.machine.topology)).transpose()?;
        let lines = requests.then(|| uncore.controller_lines()).transpose()?;
        Ok(self.glance_with(traffic.flatten().as_ref(), lines.flatten().as_deref()))
    }

    /// A glance with the machine's requests as just read: by pair of nodes, else by node.
    pub(super) fn glance_with(
        &self,
        traffic: Option<&Matrix<Counter>>,
        lines: Option<&[Counter]>,
    ) -> Glance {
        let sum = |counters: &mut dyn Iterator<Item = &Counter>| {
            counters.copied().fold(Counter::default(), counters::added)
        };
        let requests = traffic.map(|traffic| sum(&mut traffic.rows().flatten()));
        Glance {
            at: Nanos(since_boot_ns()),
            cpu_time: self.sensors.tasks.cpu_times(),
            requests: requests.or_else(|| lines.map(|lines| sum(&mut lines.iter()))),
        }
    }
}
