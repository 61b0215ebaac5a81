//! The rondpoint command.

fn main() {}
