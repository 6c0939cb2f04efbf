"""PID 1 of each pod: preflight, group, workers, signals, records. Never imports torch."""
