//! The retry layer alone, on any tower service whose error is a `Failure`.
//!
//! `cargo run -p backstop --example retry`. The error says whether trying again can help.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks to its terminal")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use backstop::OperatorError;
use backstop::clock::SystemClock;
use backstop::retry::{RetryConfig, RetryPolicy, RetryRequest};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

/// What the scale is asked; a weighing may be repeated.
#[derive(Clone)]
struct Weigh;

impl<E> RetryRequest<E> for Weigh {
    fn is_idempotent(&self) -> bool {
        true
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scale = Arc::new(AtomicU32::new(0));
    let weigh = service_fn(move |_: Weigh| {
        let attempt = scale.fetch_add(1, Relaxed) + 1;
        async move {
            println!("attempt {attempt}");
            if attempt < 3 { Err(OperatorError::Retryable("it swings".into())) } else { Ok(42) }
        }
    });
    let policy = RetryPolicy::new(RetryConfig::new(), Arc::new(SystemClock));
    let mut weigh = ServiceBuilder::new().layer(policy.layer()).service(weigh);
    println!("{} grams", weigh.ready().await?.call(Weigh).await?);
    Ok(())
}
