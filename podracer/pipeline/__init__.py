"""The steps of a run, shared by DVC stages and Prefect tasks: ingest → features → tournament → backtest."""
