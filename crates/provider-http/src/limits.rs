/// The most bytes of an answer, or of one event of a stream.
pub const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;

/// The most bytes of a whole stream: a long answer in small, wordy events.
pub const MAX_STREAM_BYTES: usize = 512 * 1024 * 1024;

/// The most items, such as tool calls, of an answer whose items are compared with each other.
pub const MAX_ANSWER_ITEMS: usize = 1024;
