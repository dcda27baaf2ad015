"""Output channels of layers on several compute units: mappings, their files, and networks regrouped by them."""

from .file import ChannelMapping, read_mapping, write_mapping
from .regroup import regroup

__all__ = ["ChannelMapping", "read_mapping", "regroup", "write_mapping"]
