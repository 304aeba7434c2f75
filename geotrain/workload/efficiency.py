"""The efficiency rule: which shares of a GPU's figures a training step achieves. One rule for every model and GPU."""

from pydantic import Field

from geotrain.files import Document, Number
from geotrain.units import Seconds


class Efficiency(Document):
    """Five figures with a meaning each; `geotrain validate FILE --calibrate` fits them to measured runs."""

    matmul: Number = Field(0.98, gt=0, le=1)
    """Share of the GPU's best matrix-product rate that the model's products run at."""
    memory: Number = Field(0.82, gt=0, le=1)
    """Share of the memory bandwidth that norms, softmax, residuals and operands move at."""
    nvlink: Number = Field(0.71, gt=0, le=1)
    """Share of the link between GPUs of a node that their exchanges reach."""
    exchange_s: Seconds = 9.5e-6
    """Fixed cost of one exchange among tensor-parallel GPUs, for each GPU beyond the first."""
    launch_s: Seconds = 0.85e-3
    """Host time to launch one layer's forward; hidden while the GPU is busier than that. Backward takes twice."""
