"""Text as numbers: finding it, tokenizing it into a memory-mapped file, and batches in a fixed order.

Knows files and vocabularies; knows nothing about models, plans or devices. The tokenizer itself is in `tokenizer.py`,
which needs the package tokenizers; reading a data set does not.
"""

from geotrain.tokens.batches import Batches
from geotrain.tokens.dataset import Dataset
from geotrain.tokens.manifest import Manifest

__all__ = ["Batches", "Dataset", "Manifest"]
