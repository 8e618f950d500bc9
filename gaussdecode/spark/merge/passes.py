"""Merge the changes of tables, one era of each in a pass."""

import functools
import json
from collections.abc import Sequence
from typing import Any

from gaussdecode.spark.log.change_file import ChangeFile
from gaussdecode.spark.log.schema import TableSchema, UnknownColumnsError, reads_as
from gaussdecode.spark.merge import key_changes, tasks
from gaussdecode.spark.merge.bucket import gather, merge_bucket, replaced
from gaussdecode.spark.merge.context import Context
from gaussdecode.spark.merge.engine import Engine
from gaussdecode.spark.merge.plan import Era
from gaussdecode.spark.merge.sizing import MAX_BUCKETS, power_of_two, shared_out
from gaussdecode.spark.merge.tasks import Job, MapTask
from gaussdecode.spark.merge.work import Work, landed_bytes, part_read, portions
from gaussdecode.spark.target.layout import followed
from gaussdecode.spark.target.state_file import OTHERS, StateFile


class Passes:
    """The passes of one apply."""

    def __init__(self, context: Context, worker: Engine) -> None:
        self._context = context
        self._worker = worker
        self._sizes = context.options.sizes
        self._summary = context.summary

    def run(self, works: Sequence[Work]) -> None:
        """Merge all eras of the tables."""
        for number in range(max((len(work.eras) for work in works), default=0)):
            self._pass([work for work in works if number < len(work.eras)], number)

    def _pass(self, works: Sequence[Work], number: int) -> None:
        """Merge one era of each table."""
        jobs = [self._job(index, work, number) for index, work in enumerate(works)]
        described = [(job, work.eras[number]) for job, work in zip(jobs, works, strict=True)]
        resolved = self._resolve(jobs, described)
        planned: list[MapTask] = []
        for job, era in described:
            planned += self._map_tasks(job, era.files)
            if job.index in resolved:
                paths = tuple(resolved[job.index])
                planned.append(MapTask(job, self._context.landing.root, resolved=paths))
        texts = self._worker.gathered(
            planned,
            functools.partial(tasks.map_events, is_resolved=bool(resolved)),
            (
                (functools.partial(merge_bucket, jobs=jobs), self._shares(described)),
                (functools.partial(gather, jobs=jobs), self._gather_shares(described)),
            ),
        )
        for text in texts:
            self._take(works, json.loads(text))
        token = self._token(number)
        for job, work in zip(jobs, works, strict=True):
            work.schema = job.schema
            if job.is_rebuilt:
                work.current = [file for file in work.current if f"/{token}" in file.path]

    def _job(self, index: int, work: Work, number: int) -> Job:
        era = work.eras[number]
        is_rebuilt = work.schema is not None and (work.schema.key_shape() != era.schema.key_shape())
        is_rebuilt |= any(file.bucket == OTHERS for file in work.current)
        is_rebuilt |= _follow_layout(work, era.schema)
        sizes = self._sizes
        bulk = sum(file.bytes for file in work.current) + landed_bytes(era)
        if bulk > work.buckets * sizes.full_bucket and work.buckets < MAX_BUCKETS:
            # More buckets for what comes too: a task has to hold a bucket and all its changes.
            work.buckets = power_of_two(bulk / sizes.bucket)
            is_rebuilt = True
        schemas = dict(era.schemas)
        beside = () if number or work.version is None else work.version.quarantine
        for file in (*work.current, *beside):
            if file.schema_id not in schemas:
                schemas[file.schema_id] = self._context.store.schema(work.table, file.schema_id)
        return Job(
            index=index,
            table_root=self._context.store.table_root(work.table),
            schema=era.schema,
            schemas=schemas,
            order=self._context.landing.source_order,
            resets=tuple(era.resets),
            buckets=work.buckets,
            base=tuple(work.current),
            beside=beside,
            is_rebuilt=is_rebuilt,
            with_history=self._context.has_history(work.version),
            with_vectors=self._context.with_vectors,
            token=self._token(number),
            partition=work.partition,
            cluster=work.cluster,
            sizes=sizes,
        )

    def _token(self, number: int) -> str:
        """What is in the name of each file that a pass writes."""
        return f"{self._context.token}{number:02d}"

    def _map_tasks(self, job: Job, files: Sequence[ChangeFile]) -> list[MapTask]:
        root = self._context.landing.root
        planned = [MapTask(job, root, changes=part) for part in portions(files, self._sizes.read)]
        planned += [MapTask(job, root, base=(file,)) for file in job.beside]
        if job.is_rebuilt:
            planned += [MapTask(job, root, base=(file,)) for file in job.base]
        else:
            forced = {
                file.bucket
                for file in job.base
                if job.resets or not reads_as(job.schemas[file.schema_id], job.schema)
            }
            if -1 in forced:  # rows of any bucket
                forced = set(range(job.buckets))
            if forced:
                planned.append(MapTask(job, root, forced=tuple(sorted(forced))))
        return planned

    def _resolve(
        self, jobs: Sequence[Job], described: Sequence[tuple[Job, Era]]
    ) -> dict[int, list[str]]:
        """Resolve key changes that lack values; return files of whole events per table."""
        asked = [(job, era) for job, era in described if era.may_move_unsent and job.schema.key]
        if not asked:
            return {}
        root = self._context.landing.root
        looks = [
            MapTask(job, root, changes=part)
            for job, era in asked
            for part in portions(era.files, self._sizes.read)
        ]
        pairs: dict[int, list[tuple[bytes, bytes]]] = {}
        for text in self._worker.each(looks, tasks.map_edges):
            index, old, new = json.loads(text)
            pairs.setdefault(index, []).append((bytes.fromhex(old), bytes.fromhex(new)))
        if not pairs:
            return {}
        involved = {index: key_changes.components(found) for index, found in pairs.items()}
        looks += [
            MapTask(job, root, base=(file,))
            for job, _ in asked
            for file in (*job.base, *job.beside)
        ]
        texts = self._worker.grouped(
            [task for task in looks if task.job.index in involved],
            functools.partial(tasks.map_involved, involved=involved),
            (
                functools.partial(tasks.resolve_group, jobs=list(jobs)),
                tasks.shares_of_involved(jobs, involved, self._sizes.reduce),
            ),
        )
        found: dict[int, list[str]] = {index: [] for index in involved}
        for text in texts:
            index, path = json.loads(text)
            found[index].append(path)
        return found

    def _shares(self, described: Sequence[tuple[Job, Era]]) -> dict[int, int]:
        """The task that merges each bucket of a pass."""
        weights = [
            (job.group(bucket), weight)
            for job, era in described
            for bucket, weight in enumerate(_weights(job, landed_bytes(era)))
        ]
        return shared_out(weights, self._sizes.reduce)

    def _gather_shares(self, described: Sequence[tuple[Job, Era]]) -> dict[int, int]:
        """The task that gathers each table of a pass."""
        weights = ((job.index, landed_bytes(era)) for job, era in described)
        return shared_out(weights, self._sizes.reduce)

    def _take(self, works: Sequence[Work], result: dict[str, Any]) -> None:  # Any: JSON
        """Replace the previous files by those of a pass."""
        work = works[result["table"]]
        work.current = replaced(work.current, result)
        work.closed += [StateFile(**file) for kind, file in result["files"] if kind == "closed"]
        whole = [file for files in result["whole"].values() for file in files]
        written = [*whole, *(file for _, file in result["files"])]
        self._summary.bytes_written += result["written"] + sum(file["bytes"] for file in written)
        work.unmatched += result["unmatched"]
        self._summary.bytes_read += result["read"]


def _follow_layout(work: Work, schema: TableSchema) -> bool:
    """Use the current names of layout columns; return whether all files have to be rewritten."""
    if work.schema is None or not (work.partition or work.cluster):
        return False
    before = work.partition
    try:
        work.partition = followed(work.partition, work.schema, schema)
        work.cluster = followed(work.cluster, work.schema, schema)
    except UnknownColumnsError:
        # A snapshot goes over it, and nobody knows which column is which.
        work.partition = work.cluster = ()
    return work.partition != before


def _weights(job: Job, landed: int) -> list[int]:
    """Bytes that the merge of each bucket handles."""
    found = [landed // job.buckets] * job.buckets
    held = sum(file.bytes for file in job.base)
    reads_keys = job.with_vectors and not (job.with_history or job.is_rebuilt or job.resets)
    part = part_read(reads_keys and bool(job.schema.key), landed, held, job.sizes)
    for file in job.base:
        size = file.bytes // part
        if not job.is_rebuilt and file.bucket >= 0:
            found[file.bucket] += size
        else:
            found = [weight + size // job.buckets for weight in found]
    return found
