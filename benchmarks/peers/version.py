"""Says which PyTorch there is."""

import report

report.emit("version")
