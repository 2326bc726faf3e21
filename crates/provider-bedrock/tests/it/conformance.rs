use super::ask::ADAPTER;

backstop_testkit::adapter_suite!(ADAPTER);
