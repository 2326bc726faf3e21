//! Hints for missing mechanisms.

use std::fs;

use super::mechanism::Mechanism;

/// Returns a hint for a missing mechanism.
pub(super) fn find_hint(mechanism: Mechanism, why: &str) -> Option<String> {
    let text = match mechanism {
        Mechanism::Landlock => {
            "Linux 6.2 or later, with `landlock` among `lsm=` of the kernel's command line"
        }
        Mechanism::NetworkNamespace | Mechanism::PidNamespace
            if why == "needs a user namespace" =>
        {
            return None;
        }
        Mechanism::NetworkNamespace | Mechanism::PidNamespace | Mechanism::UserNamespace => {
            return Some(namespaces(setting).to_owned());
        }
        Mechanism::MemoryGroup => "limits of each process are used instead",
        Mechanism::PidsGroup => {
            "run as a user that is not root, or where control groups may be made: \
             `systemd-run --user --scope -p Delegate=yes …`"
        }
        Mechanism::Seccomp => "a kernel with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64",
        Mechanism::Rlimits => return None,
    };
    Some(text.to_owned())
}

/// Returns a hint for the setting that forbids namespaces to users, the most frequent cause first.
fn namespaces(setting: impl Fn(&str) -> Option<String>) -> &'static str {
    let is = |name: &str, value: &str| setting(name).as_deref() == Some(value);
    if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        "AppArmor keeps them from users: a profile with `userns,` for this program, or \
         `sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
    } else if is("kernel/unprivileged_userns_clone", "0") {
        "`sysctl kernel.unprivileged_userns_clone=1`"
    } else if is("user/max_user_namespaces", "0") {
        "`sysctl user.max_user_namespaces=10000`"
    } else {
        "in a container, a seccomp profile that lets `unshare` pass: \
         `--security-opt seccomp=…`"
    }
}

fn setting(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_mended_by_what_forbids_them() {
        for (name, value, part) in [
            ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor"),
            ("kernel/unprivileged_userns_clone", "0", "unprivileged_userns_clone=1"),
            ("user/max_user_namespaces", "0", "max_user_namespaces=10000"),
            ("other", "1", "seccomp profile"),
        ] {
            let text = namespaces(|asked| (asked == name).then(|| value.to_owned()));
            assert!(text.contains(part), "{text}");
        }
    }
}
