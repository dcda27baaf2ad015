"""Networks that tests of the compiler make, too."""

from tests.compiler.conftest import qdq, random_network, tflite

__all__ = ["qdq", "random_network", "tflite"]
