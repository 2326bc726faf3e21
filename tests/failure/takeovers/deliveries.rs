//! A run, and a behaviour that is told of it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop::behaviors::{BehaviorHost, Start, behavior};
use backstop::clock::{Clock, SystemClock};
use backstop::error_store::Store;
use backstop::{Agent, ResumeRequest, RunRequest};
use backstop_testkit::contract::{ActingRun, Ledger};

use super::RUN;
use super::agents::{agent, look};

/// The run, and the deliveries.
pub(super) struct Told;

impl Told {
    fn agent(stores: &Arc<dyn Store>, ledger: &Ledger) -> Agent {
        agent("told", &[&["look"], &["look"]], stores, ledger).tool(look).build().unwrap()
    }

    /// Serves the behaviour until it was told of everything. Returns whether it was.
    async fn serve(stores: &Arc<dyn Store>, ledger: Ledger, at_most: Duration) -> bool {
        let tell = behavior("tell", "tool.responded".parse().unwrap(), move |delivery, _| {
            let ledger = ledger.clone();
            async move {
                ledger.act(format!("tell of {}", delivery.seq));
                Ok(())
            }
        });
        let host = BehaviorHost::builder(stores.log()).behavior(tell.start(Start::Start));
        let serving = host.build().unwrap().serve();
        let tells = async {
            while !serving.wait_for_claims().await.is_empty() {
                SystemClock.sleep(Duration::from_millis(20)).await;
            }
            serving.settle(at_most).await
        };
        let is_told = tokio::select! {
            is_told = tells => is_told,
            () = SystemClock.sleep(at_most) => false,
        };
        serving.stop().await;
        is_told
    }
}

#[async_trait]
impl ActingRun for Told {
    async fn begin(&self, stores: Arc<dyn Store>, ledger: Ledger) -> Result<String, String> {
        let request = RunRequest::new("go").run(RUN.into());
        let outcome = Self::agent(&stores, &ledger).run(request).await;
        let outcome = outcome.map_err(|error| error.to_string())?;
        Self::serve(&stores, ledger, Duration::from_secs(2)).await;
        Ok(outcome.text().to_owned())
    }
    async fn resume(&self, stores: Arc<dyn Store>, ledger: Ledger) -> Result<String, String> {
        let outcome = Self::agent(&stores, &ledger).resume(ResumeRequest::new(RUN)).await;
        let outcome = outcome.map_err(|error| error.to_string())?;
        match Self::serve(&stores, ledger, Duration::from_secs(30)).await {
            true => Ok(outcome.text().to_owned()),
            false => Err("the behaviour was not told".to_owned()),
        }
    }
}
