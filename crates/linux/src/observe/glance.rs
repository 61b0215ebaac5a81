//! A look that costs next to nothing, between two whole ones.

use rondpoint_core::counting_pause::Glance;
use rondpoint_core::observation::Counter;
use rondpoint_core::{Matrix, Nanos};

use super::sensors::Sensors;
use super::{Observer, counters};
use crate::LinuxError;
use crate::syscall::time::since_boot_ns;

impl Observer {
    /// Looks at what costs next to nothing: the clock of each process and, where `requests` are
    /// wanted, counters that are not the program's. The rings are not emptied.
    ///
    /// # Errors
    /// An open counter cannot be read.
    pub fn glance(&self, requests: bool) -> Result<Glance, LinuxError> {
        let Sensors { uncore, .. } = &self.sensors;
        let traffic = requests.then(|| uncore.traffic(&self.machine.topology)).transpose()?;
        Ok(self.glance_with(traffic.flatten().as_ref()))
    }

    /// The same with the machine's requests as they were just read.
    pub(super) fn glance_with(&self, traffic: Option<&Matrix<Counter>>) -> Glance {
        let sum = |traffic: &Matrix<Counter>| {
            traffic.rows().flatten().copied().fold(Counter::default(), counters::added)
        };
        Glance {
            at: Nanos(since_boot_ns()),
            cpu_time: self.sensors.tasks.cpu_times(),
            requests: traffic.map(sum),
        }
    }
}
