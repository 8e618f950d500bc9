"""Third stage: decoder processes turn raw batches into column buffers."""
