//! `rondpoint-sim`, run as `rondpoint simulate`.

use std::process::ExitCode;

fn main() -> ExitCode {
    rondpoint_sim::cli::main()
}
