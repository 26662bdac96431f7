"""The config of a run: frozen sections, read from TOML, overridden by ``key=value``, hashed to a fingerprint."""

from fedeas.config.reading import checked_config, load_config
from fedeas.config.recorded import recorded_config
from fedeas.config.run import NO_GENERATION, OWN, UNSEEDED, RunConfig
from fedeas.config.sections import (
    ContentConfig,
    DataConfig,
    EngineConfig,
    ModelConfig,
    PartitionConfig,
    RoundsConfig,
    TrainConfig,
)

__all__ = [
    "NO_GENERATION",
    "OWN",
    "UNSEEDED",
    "ContentConfig",
    "DataConfig",
    "EngineConfig",
    "ModelConfig",
    "PartitionConfig",
    "RoundsConfig",
    "RunConfig",
    "TrainConfig",
    "checked_config",
    "load_config",
    "recorded_config",
]
