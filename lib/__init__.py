"""The Agent Communication Lab: what agents should say to each other, and what it costs."""

__version__ = "0.1.0"
