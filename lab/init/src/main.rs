//! PID 1 of the lab's guest. It mounts the usual file systems, loads the PMU driver, and runs the
//! runner's job. Then it reports and powers the machine off.
//!
//! It places nothing except as the job says. If it fails, it writes the reason to the report port
//! and powers off, so a lab run does not hang.

mod identity;
mod job;
mod report;
mod spread;
mod system;

use rondpoint_lab_init::Event;

fn main() {
    if std::process::id() != 1 {
        eprintln!("rondpoint-lab-init: runs as PID 1 of the lab's guest, nowhere else");
        std::process::exit(2);
    }
    let mounted = system::mount_all()
        .and_then(|()| identity::play())
        .and_then(|()| system::allow_descriptors());
    let mut report = report::Report::open();
    let result = mounted.and_then(|()| job::carry_out(&mut report));
    if let Err(reason) = result {
        report.say(&Event::Refused { reason });
    }
    report.say(&Event::Done);
    system::power_off();
}
