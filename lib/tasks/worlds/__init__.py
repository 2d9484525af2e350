"""Fictional corpora with known answers: facts that no model can have read before.

`generate` builds workloads from the three `structures`; `documents` writes the pages, `grammar` holds wording and values, `names`
invents names, and `draw` is the one source of chance.
"""
