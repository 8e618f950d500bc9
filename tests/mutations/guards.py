"""The guards whose loss a test must notice: counts, hashes, generations, syncs, bounds."""

import dataclasses
from typing import Final


@dataclasses.dataclass(frozen=True, slots=True)
class Guard:
    """One mutation.

    Attributes:
        file: below ``gaussdecode/``.
        old: the guard; must be there exactly once.
        new: what stands there instead.
        tests: of which one must fail.
        survives: why none does; empty where one must.
    """

    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""


_CRASH: Final = (
    "tests/land/test_writer.py",
    "tests/crash/test_faults.py",
    "tests/crash/test_power.py",
)
_COMMITLOG: Final = ("tests/land/test_commitlog.py",)
_LOG: Final = (*_COMMITLOG, *_CRASH)
_WRITER: Final = ("tests/land/test_writer.py",)
_ORDERS: Final = ("tests/land/test_writer.py", "tests/crash/test_interleavings.py")
_VERIFY: Final = ("tests/land/test_verify.py",)
_FLIPS: Final = (
    "tests/land/test_commitlog.py",
    "tests/land/test_flips.py",
)

_COLLECT: Final = ("tests/collect/test_collector.py",)
_TOGETHER: Final = ("tests/collect/test_together.py",)
_GATE: Final = ("tests/collect/test_gate.py", "tests/crash/test_interleavings.py")
_RESENT: Final = ("tests/collect/test_resent.py",)
_START: Final = ("tests/source/test_start.py",)
_WATCH: Final = ("tests/daemon/test_catalogwatch.py",)
_SNAPSHOT: Final = ("tests/snapshot/test_snapshottables.py",)
_SESSION: Final = ("tests/daemon/test_session.py", "tests/crash/test_interleavings.py")
_LOG_OF_SPARK: Final = ("tests/spark/test_log.py",)
_MIRROR: Final = ("tests/land/mirror/test_shipper.py",)
_LOST: Final = ("tests/land/mirror/test_lost.py",)
_TABLES: Final = ("tests/snapshot/test_snapshotter.py",)

GUARDS: Final = (
    # ---- publication: what is durable before what ----
    Guard("land/making.py",
          "    disk.sync_directories(*touched)\n    disk.files.reach(Step.FILES_DURABLE)",
          "    disk.files.reach(Step.FILES_DURABLE)", _CRASH),
    Guard("land/making.py",
          "    disk.sync_directories(COMMITS)\n    disk.files.reach(Step.ENTRY_COMMITTED)",
          "    disk.files.reach(Step.ENTRY_COMMITTED)", _CRASH),
    Guard("land/making.py",
          "    disk.sync_directories(*touched)\n    disk.files.reach(Step.FILES_RENAMED)",
          "    disk.files.reach(Step.FILES_RENAMED)", _CRASH),
    Guard("land/making.py",
          "    disk.sync_directories(COMMITS)\n    disk.files.reach(Step.ENTRY_SHOWN)",
          "    disk.files.reach(Step.ENTRY_SHOWN)", _CRASH),
    Guard("land/making.py", "    try:\n        check_next()\n    except LandingError:",
          "    try:\n        pass\n    except LandingError:", _COMMITLOG),
    Guard("land/making.py",
          "        if disk.size(file.path) is not None:\n            raise LandingError",
          "        if False:\n            raise LandingError", _LOG),
    Guard("land/making.py", "        if disk.read(entry_path(entry.n)) != entry.to_bytes():",
          "        if False:", _LOG),
    Guard("land/making.py", "            disk.set_time(path, entry.mtime_ms + rank)\n", "",
          _LOG),
    Guard("land/making.py", "    if wrong is not None:\n        raise AccountError(",
          "    if False:\n        raise AccountError(", ("tests/land/test_writer.py",)),
    Guard("land/making.py",
          "            or account.wrong_place(before.get(source), entry.positions[source])\n", "",
          ("tests/land/test_writer.py",)),
    Guard("collect/together.py", "if len(self._arrived) < len(self._names):", "if False:", _TOGETHER),
    Guard("collect/together.py", "            if self._is_over or len(self._parts) < len(self._names):",
          "            if len(self._parts) < len(self._names):", _TOGETHER),
    Guard("collect/together.py", "lambda: self._is_over or name not in self._parts",
          "lambda: self._is_over or not self._parts", _TOGETHER),
    Guard("collect/together.py", "            if cut is None or name in self._parts or self._is_over:",
          "            if cut is None or self._is_over:", _TOGETHER),
    Guard("land/making.py", "        if file.ops and sum(file.ops.values()) != file.rows:",
          "        if False:", ("tests/land/test_writer.py",)),
    Guard("land/making.py", "max(int(committed.timestamp() * 1000), state.mtime_ms + 1)",
          "int(committed.timestamp() * 1000)", _LOG),
    # ---- commit log ----
    Guard("land/commitlog.py", "        if newest >= n:", "        if False:", _COMMITLOG),
    Guard("land/commitlog.py",
          "        if raw is None or _hash(raw, n - 1) != self._state.last_hash:", "        if False:", _COMMITLOG),
    Guard("land/commitlog.py", "                self._broken = _told(error)\n",
          "                self._broken = None\n", _COMMITLOG),
    Guard("land/commitlog.py", "        self._uncertain = True\n", "", _COMMITLOG),
    Guard("land/commitlog.py", "            if check is not None:\n                check()\n", "",
          _ORDERS),
    # ---- recovery ----
    Guard("land/recovery.py", '        self.disk.sync_directories("", COMMITS, CHECKPOINTS)\n', "", _CRASH),
    Guard("land/recovery.py", "        if n != self.state.next_n:\n            return None\n", "", _COMMITLOG),
    Guard("land/recovery.py", "            self.state.check_next(entry)\n        except",
          "            pass\n        except", _COMMITLOG),
    Guard("land/recovery.py",
          "        return entry if all(self.is_there(file, hidden) for file, hidden in pairs) else None",
          "        return entry", _LOG),
    Guard("land/recovery.py", "        if orphans:\n            raise LandingError(",
          "        if False:\n            raise LandingError(", _LOG),
    Guard("land/recovery.py",
          "                if not self.is_committed(n, file) and self.disk.size(file.path) is not None:",
          "                if False:", _COMMITLOG),
    Guard("land/recovery.py", "        if not self.disk.matches(path, file.bytes, file.checksum):\n            raise",
          "        if False:\n            raise", _COMMITLOG),
    Guard("land/recovery.py", "            if size != file.bytes:\n                found",
          "            if False:\n                found", _LOG),
    # ---- checkpoints and retention ----
    Guard("land/checkpoint.py", "        wrong += state.unlike(entry)\n", "", _FLIPS),
    Guard("land/checkpoint.py",
          "        if not header.is_sealed:\n            wrong += self._unlike_entries(header, held)\n", "",
          _FLIPS),
    Guard("land/checkpoint.py",
          '            space.once(f"fsync {hidden}", lambda: files.sync(handle))\n', "            pass\n",
          _CRASH),
    Guard("land/checkpoint.py", "            if n <= last - self.block:", "            if n <= last:",
          ("tests/land/test_commitlog.py", "tests/land/test_retention.py")),
    Guard("land/retention.py", "            if log.entries.last_of(first, last, path).hash != header.hash:",
          "            if False:", ("tests/land/test_retention.py", "tests/land/test_flips.py")),
    Guard("land/retention.py", "last <= log.next_n - 1 - log.block and age_ms > kept_ms",
          "age_ms > kept_ms", ("tests/land/test_retention.py",)),
    Guard("land/retention.py", "last <= log.next_n - 1 - log.block and age_ms > kept_ms",
          "last <= log.next_n - 1 - log.block", ("tests/land/test_retention.py",)),
    # ---- writer: generations and the life of a publication ----
    Guard("land/desk.py", "        if generation not in {None, self._generation}:\n            raise",
          "        if False:\n            raise", _ORDERS),
    Guard("land/desk.py",
          "        self._check(generation)\n        return is_met", "        return is_met", _ORDERS),
    Guard("land/desk.py", "            self._life.step(Event.END)\n            self._supersede()\n",
          "            self._life.step(Event.END)\n", _ORDERS),
    Guard("land/desk.py", "            self._supersede()\n            self._abandon()\n",
          "            self._supersede()\n", _ORDERS),
    Guard("land/desk.py",
          "            self._changed.wait_for(lambda: self._stage.state is Stage.NONE or self._is_over)\n",
          "", _ORDERS),
    Guard("land/desk.py", "            if self._sealed is not None and not is_uncertain():",
          "            if self._sealed is not None:", _COMMITLOG),
    Guard("land/desk.py", "self._sealed is not None and not self._sealed.content.unfinished",
          "self._sealed is not None", _ORDERS),
    # ---- writer: lanes that are added ----
    Guard("land/writer.py", "        if not self._looking.acquire(blocking=False):\n            return\n",
          "        self._looking = threading.Lock()\n        self._looking.acquire()\n", _WRITER),
    Guard("land/writer.py", "        with self._looking:  # whoever was adding lanes has; nobody does any more\n",
          "        if True:\n", _WRITER),
    Guard("land/writer.py", "        if self.is_waiting_for_space:", "        if False:", _WRITER),
    Guard("land/writer.py", "            self._lanes.forget()\n", "", _WRITER),
    Guard("land/writer.py", "        self._desk.check(generation)\n        started = 0",
          "        started = 0", _WRITER),
    Guard("land/writer.py", "        with contextlib.suppress(RuntimeError):", "        if True:", _WRITER),
    # ---- order of rows over the files of an entry ----
    Guard("collect/collector.py", "            self.flush(held)\n            held.is_current",
          "            held.is_current", _COLLECT),
    Guard("collect/collector.py", "held.is_current = held is accumulator", "held.is_current = True",
          _COLLECT),
    Guard("land/tablefile.py", "            if last.schema_id == group.schema_id:", "            if True:",
          ("tests/land/test_tablefile.py",)),
    Guard("land/making.py", 'key=lambda file: (file.table, file.source or ""))',
          'key=lambda file: (file.table, file.source or "", file.first))', _WRITER),
    Guard("land/making.py", "        _check_order(entry)\n", "        pass\n", _WRITER),
    Guard("land/verify.py", "entry.is_in_order and was_kept and not row_order.is_kept", "False", _VERIFY),
    Guard("land/verify.py", "        if entry.is_in_order and row_order.first is not None:",
          "        if False:", _VERIFY),
    Guard("spark/run.py", "        if plan.early is None:", "        if True:", _LOG_OF_SPARK),
    Guard("spark/plan.py", "        elif change.is_mixed:", "        elif False:", _LOG_OF_SPARK),
    # ---- mirror ----
    Guard("land/mirror/putting.py",
          "        if is_first or self._store.size(entry_path(entry.n - 1)) is not None:",
          "        if True:", _MIRROR),
    Guard("land/mirror/restore.py", " if of[0] <= last]", "]", _MIRROR),
    Guard("land/mirror/lost.py", "        if n <= self._floor():", "        if False:", _LOST),
    Guard("land/mirror/lost.py",
          "last = proof.last if proof.is_overtaken else self._ship_end(proof.last)",
          "last = self._ship_end(proof.last)", _LOST),
    Guard("land/mirror/lost.py", "self._here.one(n).hash == theirs.hash", "True", _LOST),
    Guard("land/mirror/lost.py", "return before.n if above.previous == before.hash else n",
          "return before.n", _LOST),
    Guard("land/mirror/lost.py", "            return is_here and ", "            return ", _LOST),
    # ---- session ----
    Guard("daemon/session.py",
          "        if self.collector is not None:\n            self.collector.revoke()\n", "",
          _SESSION),
    Guard("daemon/session.py", "        if self._is_aborted:\n            raise",
          "        if False:\n            raise",
          _SESSION),
    Guard("daemon/session.py", "            if self._failure is None:\n                self._failure = error",
          "            self._failure = error", _SESSION),
    Guard("daemon/session.py",
          "        if self._turn(Turn.CONNECTED) is not Life.STREAMING:\n            return\n",
          "        self._turn(Turn.CONNECTED)\n", _SESSION),
    Guard("daemon/session.py", "            if self._thread is None or not self._thread.is_alive():\n"
          "                ring.close()", "            ring.close()", _SESSION),
    Guard("daemon/session.py", "        if self._waits_for_disk():\n", "        if False:\n", _SESSION),
    Guard("daemon/session.py", "        if problem is not None:\n            raise",
          "        if False:\n            raise", _SESSION),
    Guard("daemon/session.py", "        if isinstance(failure, ChildError):", "        if False:", _SESSION),
    # ---- accounts ----
    Guard("model/account.py", "        if add([self.landed]) != add([files]):", "        if False:",
          ("tests/land/test_writer.py",)),
    Guard("model/account.py", "        if found != add([self.framed]):", "        if False:",
          ("tests/land/test_writer.py",)),
    Guard("model/account.py", "        if (self.since, self.until) == (start, end):", "        if True:",
          ("tests/land/test_writer.py", "tests/land/test_verify.py")),
    # ---- collector and gate ----
    Guard("collect/collector.py", "        if not assembler.can_hand_over or self._attendance.is_closed:",
          "        if not assembler.can_hand_over:", _COLLECT),
    Guard("collect/collector.py", "        if not assembler.can_hand_over or self._attendance.is_closed:",
          "        if self._attendance.is_closed:", _COLLECT),
    Guard("collect/collector.py",
          "        self._writer.end()\n        self._attendance.end()\n\n    # ---- called by the gate",
          "        self._attendance.end()\n\n    # ---- called by the gate", _ORDERS),
    Guard("collect/collector.py", "            account=self._account(position),\n", "", _COLLECT),
    Guard("collect/collector.py", "        self._truncates.clear()\n        self._changes.clear()\n",
          "        self._changes.clear()\n", _COLLECT),
    Guard("collect/collector.py", "            self._suspects.forget()\n", "            pass\n", _COLLECT),
    Guard("collect/gate.py", "                self._attendance.end()\n            self._attendance = ",
          "                pass\n            self._attendance = ", _GATE),
    Guard("collect/gate.py",
          "            if hold.life.state is State.LOST:\n                return\n            hold.life.step",
          "            hold.life.step", _GATE),
    Guard("collect/gate.py", "        if hold.life.state is State.LOST:\n            raise", "        if False:\n            raise",
          _GATE),
    # ---- what the server sends again ----
    Guard("collect/resent.py", "        if sent.end_lsn <= self._since_lsn:", "        if False:", _RESENT),
    Guard("collect/resent.py", "            if not sent.may_be_absent and not self._was_left_out(sent):",
          "            if False:", _RESENT),
    Guard("collect/resent.py", "        if not held.is_same(sent):", "        if False:", _RESENT),
    Guard("collect/resent.py",
          "            if not held.may_be_absent and held.user not in self._excluded_users:",
          "            if False:", _RESENT),
    Guard("collect/resent.py", '        self._pass_absent(self._until_lsn + 1, "nothing more up to there")\n', "",
          _RESENT),
    # ---- start ----
    Guard("source/start.py", "confirmed is None or confirmed <= start.lsn:", "True:", _START),
    Guard("source/start.py", "if end <= start.server.wal_end:", "if True:", _START),
    Guard("source/start.py", "    if log is not None and start.lsn > server.wal_end:", "    if False:", _START),
    # ---- the catalogue ----
    Guard("daemon/catalogwatch.py", "        if self._held:\n            return  #",
          "        if False:\n            return  #", _WATCH),
    Guard("daemon/catalogwatch.py", "            if title not in found and until > lsn",
          "            if title not in found", _WATCH),
    Guard("daemon/catalogwatch.py", "            or any(map(self._is_seen, (title, *change.former)))\n", "", _WATCH),
    Guard("daemon/catalogwatch.py",
          "before.and_then(now)", "now", _WATCH),
    Guard("daemon/catalogwatch.py", "change.former.union(*older)", "change.former", _WATCH),
    Guard("daemon/catalogwatch.py", "if until <= lsn}", "if True}", _WATCH),
    Guard("daemon/catalogwatch.py", "        if not found:\n            self.recorded()\n",
          "        self.recorded()\n", _WATCH),
    Guard("daemon/fingerprints.py", "now.title in dropped or has_other(now.title, now.oid)",
          "has_other(now.title, now.oid)", _WATCH),
    Guard("daemon/fingerprints.py", "dataclasses.replace(before, files={**before.files, **came})",
          "before", _WATCH),
    Guard("daemon/catalogwatch.py", "            self._gone_with_rows(),\n", "", _WATCH),
    Guard("daemon/catalogwatch.py", "            self._namesakes(),\n", "", _WATCH),
    Guard("daemon/catalogwatch.py", "changes.get(title, Change(())).and_then(change)", "change", _WATCH),
    Guard("daemon/catalogwatch.py", "if others and ", "if False and ", _WATCH),
    Guard("daemon/catalogwatch.py", "{*emptied, *self._unseen}", "set(emptied)", _WATCH),
    Guard("daemon/fingerprints.py", "with_files_of(before, now) if is_unsure else now", "now", _WATCH),
    Guard("daemon/fingerprints.py", " if not is_emptied(title)}", "}", _WATCH),
    # ---- snapshots ----
    Guard("snapshot/output.py", "        intake.drain()\n", "", _SNAPSHOT),
    Guard("snapshot/output.py", "        if self.is_handed_over:\n            return\n", "",
          _SNAPSHOT),
    Guard("snapshot/output.py", "        self._hand_over(is_handed_over=True)\n", "", _SNAPSHOT),
    Guard("snapshot/output.py", "            self._hand_over(is_handed_over=False)\n            raise",
          "            raise", _SNAPSHOT),
    Guard("snapshot/output.py", "not self.stamper.count and self.task.where is None",
          "not self.stamper.count", _SNAPSHOT),
    Guard("snapshot/output.py", "            account=account,\n", "", _SNAPSHOT),
    Guard("collect/collector.py", " and not together.is_over", "", _COLLECT),
    Guard("snapshot/doubts.py", " and not is_of_another", "", ("tests/snapshot/test_doubts.py",)),
    Guard("snapshot/once.py", "                output.abandon()\n", "                pass\n",
          _SNAPSHOT),
    Guard("snapshot/tools.py", "                if view.lsn < hold.boundary:",
          "                if False:", _SNAPSHOT),
    Guard("snapshot/tools.py",
          "        view.confirm(functools.partial(self.context.gate.shown, hold))\n", "", _SNAPSHOT),
    Guard("snapshot/tools.py", "            gate.release(hold)\n", "            pass\n", _SNAPSHOT),
    Guard("snapshot/tools.py", '            if known.get("n", -1) >= entry.n:', "            if False:",
          _SNAPSHOT),
    Guard("snapshot/read.py",
          "            runs = [pool.submit(self._run, view, pieces, take, deadline) for _ in range(count)]\n"
          "        _raise_first([run.exception() for run in runs])",
          "            [pool.submit(self._run, view, pieces, take, deadline) for _ in range(count)]",
          ("tests/snapshot/test_snapshottables.py::test_rows_that_do_not_come_to_an_end",)),
    Guard("snapshot/read.py",
          "        runs = [pool.submit(job) for job in jobs]\n"
          "    _raise_first([run.exception() for run in runs])",
          "        [pool.submit(job) for job in jobs]", _SNAPSHOT),
    Guard("snapshot/read.py", "sorted(found, key=lambda error: isinstance(error, HoldLostError))",
          "found", _SNAPSHOT),
    Guard("snapshot/read.py", "        reader.check_files(task.shape, [chunk.leaf])\n", "",
          _SNAPSHOT),
    Guard("snapshot/read.py", "        if expected is not None and expected != found:",
          "        if False:", _SNAPSHOT),
    Guard("snapshot/read.py", "    if reader.hash_of(probe) != hash_text(probe.encode()):",
          "    if False:", _SNAPSHOT),
    Guard("snapshot/chunks.py", '        if shape.fingerprint != state["fingerprint"]:',
          "        if False:", _SNAPSHOT),
    Guard("snapshot/chunks.py", "        if shape.unseen is not None:", "        if False:", _SNAPSHOT),
    Guard("snapshot/chunks.py", "        if self._log.floor > since_n:", "        if False:",
          _SNAPSHOT),
    Guard("snapshot/chunks.py", "            if may_miss(entry, directory) and not is_of_another:", "            if False:",
          _SNAPSHOT),
    Guard("snapshot/chunks.py", "        writer.drain()\n", "", _SNAPSHOT),
    Guard("snapshot/chunks.py",
          "                    keys.add(keyset.changed_keys(rows, names))\n            for",
          "                    pass\n            for", _SNAPSHOT),
    Guard("snapshot/chunks.py",
          "                keys.add(keyset.changed_keys(rows.select(columns), names))\n",
          "                pass\n", _SNAPSHOT),
    Guard("snapshot/chunks.py", "rows.filter(keyset.is_changed(rows, piece))", "rows", _SNAPSHOT),
    Guard("snapshot/chunks.py", "map(keys.without, store.read_chunk(path))",
          "store.read_chunk(path)", _SNAPSHOT),
    Guard("snapshot/chunks.py",
          "                reader.check_files(task.shape, range(len(task.shape.leaves)))\n", "", _SNAPSHOT),
    Guard("snapshot/chunks.py", "                output.abandon()\n", "                pass\n",
          _SNAPSHOT),
    Guard("land/snapshots.py", "        if not is_whole(self._disk, path):", "        if False:", _SNAPSHOT),
    Guard("snapshot/snapshotter.py", '    if task.where is not None and not task.record["key"]:',
          "    if False:", _TABLES),
    Guard("snapshot/snapshotter.py", '            if (store.load(item.directory) or {}).get("request") != path:',
          "            if False:", _TABLES),
    Guard("snapshot/snapshotter.py",
          "        for directory in set(store.tables()) - directories:\n            store.drop(directory)\n",
          "", _TABLES),
    Guard("snapshot/snapshotter.py", '            and record.get("oid") not in oids\n', "", _TABLES),
    Guard("snapshot/snapshotter.py", "                    tools.note_done(entry)\n                    store.drop(directory)\n",
          "", _TABLES),
    Guard("snapshot/snapshotter.py", "            if _has_changed(error) or count >= most:", "            if False:",
          _TABLES),
    Guard("snapshot/snapshotter.py", "    if isinstance(error, _NOBODYS):\n        return True\n", "", _TABLES),
)  # fmt: skip
