//! The lab's command: boots emulated machines and runs programs in them.

fn main() {}
