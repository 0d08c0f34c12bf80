//! The library is initialised before all others.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |what: &str, value: &str| std::env::var(what).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        // The library that registers its fork handlers first runs last before a fork, and first
        // after it (see `fork`).
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
    }
}
