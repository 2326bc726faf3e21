//! Runs over HTTP, several at a time: with Backstop, or the same body with nothing around it.
//!
//! `http backstop|bare URL RUNS AT_ONCE [BODY]`

use backstop::{Agent, OpenAi, ToolError, tool};
use futures_util::{StreamExt, stream};

/// Add two integers
#[tool]
async fn add(a: i64, b: i64) -> Result<i64, ToolError> {
    Ok(a + b)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let who = arguments.next().ok_or("who?")?;
    let url = arguments.next().ok_or("which URL?")?;
    let runs: usize = arguments.next().ok_or("how many runs?")?.parse()?;
    let at_once: usize = arguments.next().ok_or("how many at once?")?.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // It settles which cryptography is used, for both.
    let openai = OpenAi::new("m").base_url(&url).build()?;
    if who == "bare" {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let body = arguments.next().ok_or("which body?")?;
        contest::serve("reqwest", || {
            runtime.block_on(async {
                let asked = stream::iter(0..runs).map(|_| async {
                    let request = client.post(format!("{url}/chat/completions"));
                    let request = request.header("content-type", "application/json");
                    let request = request.body(body.clone());
                    let answer = request.send().await.expect("it answers");
                    let answer: serde_json::Value = answer.json().await.expect("it is JSON");
                    assert_eq!(answer["choices"][0]["message"]["content"], "done");
                });
                asked.buffer_unordered(at_once).collect::<Vec<()>>().await;
            });
        })?;
        return Ok(());
    }
    let agent = Agent::builder(openai).instructions("You add.").tool(add).stream(false).build()?;
    contest::serve(concat!("backstop ", env!("CARGO_PKG_VERSION")), || {
        runtime.block_on(async {
            let asked = stream::iter(0..runs).map(|_| async {
                assert_eq!(agent.run("hello").await.expect("it answers").text(), "done");
            });
            asked.buffer_unordered(at_once).collect::<Vec<()>>().await;
        });
    })?;
    Ok(())
}
