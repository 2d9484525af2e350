"""Is it real: paired statistics, summaries, tables and figures. Stands alone on pandas, numpy and scipy.

Tables and figures load plotting libraries and are imported by their module: `lib.evaluation.tables`,
`lib.evaluation.figures`.
"""

from __future__ import annotations

from lib.evaluation.inference import (
    Interval,
    SignFlip,
    hierarchical_bootstrap,
    holm,
    mcnemar_exact,
    paired_effect,
    sign_flip_test,
    spearman,
    task_cluster_bootstrap,
    task_means,
    wilson,
)

__all__ = [
    "Interval",
    "SignFlip",
    "hierarchical_bootstrap",
    "holm",
    "mcnemar_exact",
    "paired_effect",
    "sign_flip_test",
    "spearman",
    "task_cluster_bootstrap",
    "task_means",
    "wilson",
]
