//! The lab's own programs; each checks its own result.

fn main() {}
