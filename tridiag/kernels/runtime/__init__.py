"""Thread teams, the object cache, calls from CPython and XLA, memory that is kept."""
