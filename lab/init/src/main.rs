//! PID 1 of the lab's guest: runs one job and reports.

fn main() {}
