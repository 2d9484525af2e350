"""The Agent Communication Lab: what agents should say to each other, and what it costs."""

import os
import warnings

__version__ = "0.1.0"

# Threads that spin while they wait starve each other on a machine that does anything else; asked to sleep, the same work ran two
# to five times faster beside another job and no slower alone. The variable counts only if it is set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Batch runs have no widgets; libraries that would like to draw bars with them warn once in every notebook.
warnings.filterwarnings("ignore", message="IProgress not found")
