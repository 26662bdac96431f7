"""The config of a run: frozen sections, read from TOML, overridden by ``key=value``, hashed to a fingerprint."""

from fedeas.config.reading import checked_config, load_config
from fedeas.config.run import RunConfig
from fedeas.config.sections import (
    ContentConfig,
    EngineConfig,
    ModelConfig,
    PartitionConfig,
    RoundsConfig,
    TrainConfig,
)

__all__ = [
    "ContentConfig",
    "EngineConfig",
    "ModelConfig",
    "PartitionConfig",
    "RoundsConfig",
    "RunConfig",
    "TrainConfig",
    "checked_config",
    "load_config",
]
