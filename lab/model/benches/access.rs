//! What one modelled access costs the host. The lab makes hundreds of millions of them.
//!
//! Not measured here: finding the physical address, which QEMU does only below the filter.
fn main() {}
