use super::ask::ADAPTER;

testkit::adapter_suite!(ADAPTER);
