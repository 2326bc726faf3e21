//! The signature of a call is `name:16 hex digits`, the name escaped, and the same for arguments that
//! were written down and read again.
#![no_main]

use backstop_react_machine::call_signature;
use backstop_tool::JsonText;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|given: (&str, &str)| {
    let (name, text) = given;
    let Ok(arguments) = JsonText::parse(text) else { return };
    let signature = call_signature(name, &arguments);
    let (escaped, digest) = signature.rsplit_once(':').unwrap();
    assert_eq!(escaped, name.replace('\\', r"\\").replace('|', r"\|"));
    assert_eq!(digest.len(), 16);
    assert!(digest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{digest}");

    let again = JsonText::parse(arguments.get()).unwrap();
    assert_eq!(call_signature(name, &again), signature, "{arguments}");
});
