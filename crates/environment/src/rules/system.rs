//! What every walled program needs of the system.

/// What a program with walls around its files reads all the same.
pub(super) const FOLDERS: &[&str] = &[
    "/bin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/sbin",
    "/usr",
    // Where NixOS and Guix keep all of that.
    "/gnu/store",
    "/nix/store",
    "/run/current-system/sw",
    // Which libraries there are.
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    // Whom to trust; the private keys beside them are not among it.
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

/// Devices that are always there, and whether they are written to.
pub(crate) const DEVICES: [(&str, bool); 5] = [
    ("/dev/null", true),
    ("/dev/zero", true),
    ("/dev/full", true),
    ("/dev/random", false),
    ("/dev/urandom", false),
];
