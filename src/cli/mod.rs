//! Arguments, daemon, signals and messages.
