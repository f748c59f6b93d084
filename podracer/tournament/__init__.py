"""Tournament-based ensemble training: entries, generator, updater, ledger, gate, orchestrator."""
