"""Output channels of layers on several compute units: mappings, their files, and networks regrouped by them."""

from .choice import by_layer
from .cost import Costs
from .file import ChannelMapping, MappingLike, read_mapping, write_mapping
from .regroup import regroup

__all__ = ["ChannelMapping", "Costs", "MappingLike", "by_layer", "read_mapping", "regroup", "write_mapping"]
