//! Parts of the system that every walled program needs.

/// The paths that every program with walls around its files may read.
pub(super) const FOLDERS: &[&str] = &[
    "/bin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/sbin",
    "/usr",
    // The equivalents on NixOS and Guix.
    "/gnu/store",
    "/nix/store",
    "/run/current-system/sw",
    // Lists of shared libraries.
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    // Trusted certificates, without the private keys in neighbouring folders.
    "/etc/ca-certificates",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    // Names of users, groups, hosts and times.
    "/etc/alternatives",
    "/etc/group",
    "/etc/hosts",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/resolv.conf",
    "/etc/services",
];

/// Devices that are always granted, and whether they may be written.
pub(crate) const DEVICES: [(&str, bool); 5] = [
    ("/dev/null", true),
    ("/dev/zero", true),
    ("/dev/full", true),
    ("/dev/random", false),
    ("/dev/urandom", false),
];
