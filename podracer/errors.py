"""The exceptions of podracer: one base class, one subclass for each part of the world that can fail."""


class PodracerError(Exception):
    """Something outside the program is not as it must be; the message says what to do about it."""


class ConfigError(PodracerError):
    """A setting is unknown, out of range, or contradicts another one."""


class MarketDataError(PodracerError):
    """Prices are missing, malformed, or do not cover what was asked for."""


class DeviceError(PodracerError):
    """The requested compute device is not there or not supported."""


class CheckpointError(PodracerError):
    """A checkpoint is missing, damaged, or was trained on another market."""


class LeaderboardError(PodracerError):
    """The leaderboard's store cannot be read or written."""


class PodError(PodracerError):
    """A pod ended without a result."""


class ServerError(PodracerError):
    """A server that the run needs did not answer."""


class NotFinalError(MarketDataError):
    """The newest session's prices are not complete yet; a later run will find them."""
