"""Pods: a population of agents trained by one batched program, and where pods run."""
