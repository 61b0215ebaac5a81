//! Developer commands: setup, test, lab, bench. Never shipped.

fn main() {}
