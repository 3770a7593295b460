"""Batching strategies: functions from a `StrategyInput` to a `StrategyResult`."""
