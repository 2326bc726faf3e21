use super::*;
use backstop_clock::VirtualClock;
use layer0::Timestamp;

fn limit() -> (Arc<VirtualClock>, RateLimit) {
    let clock = Arc::new(VirtualClock::starting_at(Timestamp::default()));
    (Arc::clone(&clock), RateLimit::new(clock))
}

const fn level(limit: Option<u64>, remaining: u64, full_in: Option<Duration>) -> RateLevel {
    RateLevel::new(remaining).with_limit(limit).full_in(full_in)
}

async fn pass(clock: &VirtualClock, time: Duration) {
    let inside = clock.clone();
    let sleep = async move { inside.sleep(time).await };
    tokio::spawn(clock.track(Box::pin(sleep))).await.unwrap();
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test]
async fn requests_come_back_evenly() {
    let (clock, rate) = limit();
    let rate = rate.requests_per_minute(2);
    assert!(rate.try_take().is_ok() && rate.try_take().is_ok());
    assert_eq!(rate.wait(), seconds(30));
    pass(&clock, seconds(30)).await;
    assert!(rate.try_take().is_ok());
    assert_eq!(rate.try_take().unwrap_err(), seconds(30));
    // The most that is saved up is the amount of a minute.
    pass(&clock, seconds(3_600)).await;
    assert!(rate.try_take().is_ok() && rate.try_take().is_ok() && rate.try_take().is_err());
}

#[tokio::test]
async fn tokens_are_paid_after_the_answer() {
    let (clock, rate) = limit();
    let rate = rate.tokens_per_minute(600);
    assert!(rate.try_take().is_ok());
    rate.record_usage(900);
    // 300 too many, and one to continue with, at 10 a second.
    assert_eq!(rate.wait(), Duration::from_millis(30_100));
    pass(&clock, rate.wait()).await;
    assert!(rate.try_take().is_ok());
}

#[tokio::test]
async fn an_endpoint_that_rests_is_left_alone() {
    let (clock, rate) = limit();
    rate.rest(Some(seconds(7)));
    // A shorter one does not end it.
    rate.rest(Some(Duration::ZERO));
    assert_eq!(rate.try_take().unwrap_err(), seconds(7));
    pass(&clock, seconds(7)).await;
    assert!(rate.try_take().is_ok());
    rate.rest(Some(Duration::ZERO));
    assert_eq!(rate.wait(), MIN_REST);
    let rate = rate.cooldown(seconds(4));
    rate.rest(None);
    assert_eq!(rate.wait(), seconds(4));
    rate.rest(Some(Duration::MAX));
    assert_eq!(rate.wait(), MAX_WAIT);
}

#[test]
fn what_the_endpoint_says_counts() {
    let (_, rate) = limit();
    // 10 are missing and come in 20 seconds: one in two.
    rate.record_remaining(Some(level(Some(10), 0, Some(seconds(20)))), None);
    assert_eq!(rate.wait(), seconds(2));
    rate.record_remaining(None, Some(level(Some(1_000), 0, Some(seconds(100)))));
    assert_eq!(rate.wait(), seconds(2), "what it does not say stands");
    rate.record_remaining(Some(level(Some(10), 10, None)), None);
    assert_eq!(rate.wait(), Duration::from_millis(100), "tokens come at 10 a second");
}

#[test]
fn longest_wait_of_all_limits_counts() {
    let (_, rate) = limit();
    let rate = rate.requests_per_minute(2);
    rate.record_remaining(Some(level(Some(10), 0, Some(seconds(20)))), None);
    assert_eq!(rate.wait(), seconds(2), "the endpoint is stricter");
    let (_, rate) = limit();
    let rate = rate.requests_per_minute(1);
    drop(rate.try_take().unwrap());
    rate.record_remaining(Some(level(Some(10), 0, Some(seconds(20)))), None);
    assert_eq!(rate.wait(), seconds(60), "the configuration is stricter");
}

#[tokio::test]
async fn idle_time_saves_no_tokens() {
    let (clock, rate) = limit();
    let rate = rate.tokens_per_minute(600);
    pass(&clock, seconds(3_600)).await;
    rate.record_usage(900);
    assert_eq!(rate.wait(), Duration::from_millis(30_100));
}

/// Spec: R7
#[test]
fn limit_of_a_day_is_a_statement() {
    let (_, rate) = limit();
    rate.record_remaining(Some(level(Some(24), 0, Some(MAX_WAIT))), None);
    assert_eq!(rate.wait(), seconds(3_600));
    rate.record_remaining(Some(level(Some(24), 0, Some(MAX_WAIT + seconds(1)))), None);
    assert_eq!(rate.wait(), Duration::from_millis(2_500), "what a minute brings counts");
}

#[test]
fn shortest_rest_is_a_second() {
    let (_, rate) = limit();
    rate.rest(Some(Duration::ZERO));
    assert_eq!(rate.wait(), seconds(1));
}

/// Spec: R7. `x-ratelimit-reset-requests` as the epoch, of an endpoint that answers everything.
#[test]
fn odd_statement_closes_no_endpoint() {
    let (_, rate) = limit();
    rate.record_remaining(Some(level(Some(500), 0, Some(seconds(1_764_172_800)))), None);
    assert!(rate.wait() < seconds(1), "what a minute brings counts: {:?}", rate.wait());
}

/// Spec: R7
#[tokio::test]
async fn statement_expires_when_the_limit_is_full() {
    let (clock, rate) = limit();
    rate.record_remaining(Some(level(Some(2), 0, Some(seconds(600)))), None);
    assert_eq!(rate.wait(), seconds(300));
    pass(&clock, seconds(600)).await;
    let taken: Vec<_> = (0..9).map(|_| rate.try_take()).collect();
    assert!(taken.iter().all(Result::is_ok), "nothing is known any more");
}

/// Spec: R7
#[test]
fn probe_is_alone_and_within_configured_limits() {
    let (_, rate) = limit();
    rate.rest(Some(seconds(3_600)));
    rate.record_remaining(Some(level(Some(2), 0, Some(seconds(600)))), None);
    assert!(rate.try_take().is_err());
    let probe = rate.try_probe().unwrap();
    assert_eq!(rate.try_probe().unwrap_err(), MIN_REST, "one at a time");
    drop(probe);
    assert!(rate.try_probe().is_ok());
    let rate = limit().1.requests_per_minute(1);
    rate.rest(Some(seconds(3_600)));
    drop(rate.try_probe().unwrap());
    assert_eq!(rate.try_probe().unwrap_err(), seconds(60));
}

#[test]
fn requests_under_way_are_taken_off_too() {
    let (_, rate) = limit();
    let taken = [rate.try_take().unwrap(), rate.try_take().unwrap()];
    assert_eq!(rate.in_flight(), 2);
    rate.record_remaining(Some(level(Some(60), 1, None)), None);
    assert_eq!(rate.wait(), seconds(1));
    drop(taken);
    assert_eq!(rate.in_flight(), 0);
}

#[test]
fn nothing_is_made_of_half_a_limit() {
    for said in [
        level(None, 0, Some(seconds(9))),
        level(Some(0), 0, Some(seconds(9))),
        level(Some(5), 9, Some(Duration::MAX)),
    ] {
        let (_, rate) = limit();
        rate.record_remaining(Some(said), Some(said));
        assert_eq!(rate.wait(), Duration::ZERO, "{said:?}");
    }
    // Without a usable time, the amount of a minute counts.
    for full_in in [None, Some(Duration::ZERO)] {
        let (_, rate) = limit();
        rate.record_remaining(Some(level(Some(60), 0, full_in)), None);
        assert_eq!(rate.wait(), seconds(1), "{full_in:?}");
    }
    let (_, rate) = limit();
    rate.record_remaining(Some(level(Some(u64::MAX), 0, Some(Duration::MAX))), None);
    assert!(rate.wait() <= MAX_WAIT);
}

/// Spec: R7
#[tokio::test]
async fn limits_of_none_are_limits_of_one() {
    let rate = limit().1.tokens_per_minute(0);
    rate.record_usage(1);
    assert_eq!(rate.wait(), seconds(60));
    let rate = limit().1.requests_per_minute(0);
    assert!(rate.try_take().is_ok());
    assert_eq!(rate.wait(), seconds(60));
}

/// Spec: R7
#[tokio::test]
async fn report_counts_from_its_own_time() {
    let (clock, rate) = limit();
    pass(&clock, seconds(100)).await;
    rate.record_remaining(Some(level(Some(10), 0, Some(seconds(20)))), None);
    assert_eq!(rate.wait(), seconds(2));
    pass(&clock, seconds(60)).await;
    let taken: Vec<_> = (0..99).map(|_| rate.try_take()).collect();
    assert!(taken.iter().all(Result::is_ok), "the report is a minute old");
}

/// Spec: R7. Five of ten are missing, and come in 50 seconds.
#[test]
fn missing_part_of_a_limit_comes_back() {
    let (_, rate) = limit();
    rate.record_remaining(Some(level(Some(10), 5, Some(seconds(50)))), None);
    (0..5).for_each(|_| drop(rate.try_take().unwrap()));
    assert_eq!(rate.wait(), seconds(10));
    rate.record_remaining(Some(level(Some(1), 0, Some(seconds(20)))), None);
    assert_eq!(rate.wait(), seconds(20), "the smallest limit");
}

/// Spec: R7. The report says nothing about the time of a limit that is full.
#[test]
fn full_limit_fills_within_a_minute() {
    for remaining in [2, 3] {
        let (_, rate) = limit();
        rate.record_remaining(Some(level(Some(2), remaining, Some(seconds(50)))), None);
        (0..2).for_each(|_| drop(rate.try_take().unwrap()));
        assert_eq!(rate.wait(), seconds(30), "{remaining}");
    }
}

/// Spec: R7
#[tokio::test]
async fn probe_waits_until_all_requests_end() {
    let (clock, rate) = limit();
    let [first, second] = [rate.try_take().unwrap(), rate.try_take().unwrap()];
    drop(first);
    assert_eq!((rate.in_flight(), rate.try_probe().unwrap_err()), (1, MIN_REST));
    drop(second);
    let rate = rate.requests_per_minute(1);
    drop(rate.try_probe().unwrap());
    pass(&clock, seconds(60)).await;
    assert!(rate.try_probe().is_ok(), "the configured limit is full again");
}
