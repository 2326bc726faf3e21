//! Tools of your own: a function with the application's state, and a closure.
//!
//! `cargo run -p backstop --example own_tool`. What a tool needs from outside has to be granted.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks to its terminal")]

use std::collections::BTreeMap;

use backstop::prelude::*;
use serde::Deserialize;
use serde_json::json;

struct Stock(BTreeMap<String, u32>);

/// Say how many of an article are in stock.
#[tool(idempotent, exploratory, capabilities("stock:read"))]
async fn in_stock(stock: State<Stock>, article: String) -> Result<u32, ToolError> {
    let count = stock.0.get(&article).copied();
    count.ok_or_else(|| ToolError::ExecutionFailed(format!("no article `{article}`")))
}

#[derive(Deserialize, backstop::schemars::JsonSchema)]
#[schemars(crate = "backstop::schemars")]
struct Order {
    article: String,
}

#[tokio::main]
async fn main() -> Result<(), backstop::Error> {
    let order = FnTool::new("order", "Order more of an article.", |order: Order| async move {
        Err::<(), _>(ToolError::ExecutionFailed(format!("{} cannot be had", order.article)))
    });
    let answer = "There are 7 left.";
    let model = ScriptedProvider::calling("in_stock", json!({"article": "rope"}), answer);
    let stock = Stock(BTreeMap::from([("rope".to_owned(), 7)]));
    let agent = Agent::builder(model).tool(in_stock).tool(order).state(stock).grant("stock:*");
    println!("{}", agent.build()?.run("How much rope is left?").await?.text());
    Ok(())
}
