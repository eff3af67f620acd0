"""The index of labels: one row for each label of a job, written name=value. A job without labels has none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from holdbeat.store.transaction import Transaction


def add_labels(tx: Transaction, labelled: Sequence[tuple[str, Mapping[str, str]]]) -> None:
    rows = [(text, job_id) for job_id, labels in labelled for text in sorted({f"{k}={v}" for k, v in labels.items()})]
    tx.insert("job_labels", ("label", "job_id"), rows)


def replace_labels(tx: Transaction, job_id: str, labels: Mapping[str, str]) -> None:
    """Puts other labels in the place of those that a job has."""
    forget_labels(tx, [job_id])
    if labels:
        add_labels(tx, [(job_id, labels)])


def forget_labels(tx: Transaction, job_ids: Sequence[str]) -> None:
    """Takes the labels of jobs away; must come before the jobs themselves change or go."""
    plain = "" if tx.dialect == "sqlite" else "::text"
    labelled = tx.rows(f"SELECT id, labels{plain} FROM jobs WHERE id IN :ids AND labels{plain} <> '{{}}'", ids=job_ids)
    rows = [(f"{k}={v}", job_id) for job_id, text in labelled for k, v in json.loads(text).items()]
    if rows:
        tx.execute(
            "DELETE FROM job_labels WHERE (label, job_id) IN "
            "(SELECT o.label, o.job_id FROM rows(:old; label text, job_id text) AS o)",
            old=rows,
        )
