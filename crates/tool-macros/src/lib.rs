//! The `#[tool]` attribute: an async function becomes a tool.
//!
//! Use it as `backstop_tool::tool` or `backstop::tool`; this crate only generates the code.

mod expand;
mod options;

use proc_macro::TokenStream;

/// Turns an async function into a tool of the same name.
///
/// The doc comment is the description for the model, the parameters are the arguments (with their own doc comments as
/// descriptions, `Option` for optional ones), and the function returns a `Result`. A parameter of type `&ToolContext`
/// receives the context of the call, a parameter of type `State<T>` the value that the application gave the agent.
///
/// Options: `name = "web.search"`, `idempotent`, `exploratory`, `timeout = "5s"` (`ms`, `s` or `m`),
/// `capabilities("network:outbound")`, `probe = was_paid` for an async function of the same parameters that returns, as
/// a `Result<Probe, E>`, whether the call happened (with `probe_is_final` if "it did not" is final), `once =
/// "args.invoice_id"` for a call that is made once for each value of an argument, in all runs of a state store,
/// `approval` if a person has to agree to each call, or `approval(expires_after_ms = 3600000, approvers = ["ops"])` if
/// only these people may, within this time; `crate = my_crate::backstop_tool` if the crate has another path.
///
/// # Errors
///
/// Any error type that converts to a boxed error works; a `ToolError` keeps its class, any other error becomes
/// `ToolError::ExecutionFailed` with its whole chain.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, function: TokenStream) -> TokenStream {
    expand::expand(options.into(), function.into(), &quote::quote!(::backstop_tool)).into()
}

/// As [`macro@tool`], for crates that depend only on the facade.
#[proc_macro_attribute]
pub fn backstop_tool(options: TokenStream, function: TokenStream) -> TokenStream {
    expand::expand(options.into(), function.into(), &quote::quote!(::backstop::tool)).into()
}
