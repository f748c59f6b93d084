"""Prefect tasks: one call into podracer and a log line each."""
