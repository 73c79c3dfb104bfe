"""Execute a job spec: run its commands, then import the files they left.

Knows nothing about which sandbox confines it.
"""

from __future__ import annotations

import secrets as randomness
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path

from bridge.errors import InfrastructureError
from bridge.executor.command.bounds import Bounds, Stop, rlimits
from bridge.executor.command.hidden_reports import remove_undeclared, reports_hidden
from bridge.executor.command.logs import LogKeeper, last_line
from bridge.executor.command.marks import MarkReader
from bridge.executor.command.outputs import Stamp, import_outputs, start_stamp
from bridge.executor.command.peer_isolation import Beside, PeerProcess
from bridge.executor.command.plan import CommandEnd, CommandPlan, command_environment, make_folder, open_pipe
from bridge.executor.command.progress import ProgressMeter
from bridge.executor.command.supervise import Supervisor
from bridge.executor.interface import Ending, Execution, Hooks, RunDirectory
from bridge.executor.observe.accelerators.find import find_meter, given_devices
from bridge.executor.observe.telemetry import Sampler
from bridge.executor.processes.shared_memory import objects_of, sweep
from bridge.executor.processes.tree import Usage, processes_of
from bridge.executor.sandbox.confinement import Confinement
from bridge.executor.sandbox.interpreter import ANSWER_MAX_BYTES, answer, question
from bridge.executor.servers.turns import AskedTurns, ServersSeen, write_reports
from bridge.executor.turns.launch import LaunchTurns
from bridge.executor.turns.series import SeriesOfLaunches, joined
from bridge.records.jobspec import Command, JobSpec
from bridge.records.places import PlaceNames
from bridge.records.run import CommandResult, HostRecord, ImportedModule, LimitHit, OutputRecord, PeerRecord, SampleMark
from bridge.records.turns import LaunchRecord, LaunchSeries
from bridge.records.workload import REPORT_FILE
from bridge.run.outcomes import one_line
from bridge.system.clock import Clock, ClockReading, rfc3339


class RunExecution:
    """Runs the commands of one job spec in order and collects what they left.

    Attributes:
        marker: in the environment of every process of the run.
        stamp: which directory its reports are expected in, and since when.
    """

    def __init__(
        self,
        spec: JobSpec,
        directory: RunDirectory,
        hooks: Hooks,
        *,
        secrets: tuple[str, ...],
        confinement: Confinement,
        clock: Clock,
        beside: Beside | None = None,
        host: HostRecord | None = None,
        on_mark: Callable[[SampleMark], None] | None = None,
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            spec: what runs.
            directory: where it may write.
            hooks: called from the thread of `execute`.
            secrets: what must not appear in log or reports, besides the spec's own.
            confinement: the sandbox around it, or none.
            clock: measures time.
            beside: confines the peers of its commands.
            host: the machine, for the record.
            on_mark: gets each accepted mark as it comes.
        """
        self._spec = spec
        self._clock = clock
        self._beside = beside
        self._peers: list[PeerRecord] = []
        self._launches: list[LaunchRecord] = []
        self._own_reports: dict[str, bytes] = {}
        self._directory = directory
        self._confinement = confinement
        self._secrets = (*secrets, *(variable.value for variable in spec.environment if variable.secret))
        handle = directory.root.parent
        places = PlaceNames({"RUN": (handle, handle.resolve()), "HOME": (Path.home(),)})
        self._log = LogKeeper(hooks.on_log, spec.limits.log_bytes, self._secrets, places=places)
        self._bounds = Bounds(spec.limits, directory.root, clock)
        self._meter = ProgressMeter(spec.commands, self._bounds.elapsed_s, hooks.on_progress)
        self._on_mark = on_mark
        self._marks = MarkReader(self._secrets, on_mark=self._marked, on_plan=self._meter.plan)
        self._host = host
        self._given = given_devices(spec.environment)
        self._sampler = Sampler(find_meter(self._given))
        self.marker = f"{spec.id}-{randomness.token_hex(8)}"
        self.stamp = start_stamp(directory.out)
        self._began = ClockReading.of(clock)
        self._nonce = randomness.token_hex(32)
        self._hooks = hooks
        self._imported: ImportedModule | None = None
        self._ok = True
        self._ending: Ending = "exited"
        self._message: str | None = None
        self._results: list[CommandResult] = []
        self._hits: list[LimitHit] = []

    def execute(self) -> Execution:
        """Run the commands until one does not end well, then bring in what they left."""
        user = self._confinement.applied.uid
        shared = objects_of(user)
        if self._find_module(self._spec.commands[0]):
            for command in self._spec.commands:
                if not self._run(command):
                    break
        if self._confinement.applied.kind == "none":  # a sandbox has shared memory of its own
            for line in sweep(shared, user, processes_of):
                self._log.note(line)
        wall_s = self._results[-1].ended_s if self._results else self._bounds.elapsed_s()
        self._marks.end()
        if self._own_reports:
            write_reports(self._directory.out, self._own_reports)
        declared = [output.path for output in self._spec.outputs]
        imported = import_outputs(
            self._directory.out,
            stamp=self._since(),
            declared=declared,
            secrets=self._secrets,
            marks_bytes=self._marks.bytes,
        )
        for line in imported.refused:
            self._log.note(f"left behind: {line}")
        log = self._log.end()
        if self._log.cut_bytes:
            bound, observed = self._spec.limits.log_bytes, self._log.seen_bytes
            self._hits.append(LimitHit(limit="log_bytes", bound=bound, observed=observed, action="truncated"))
        return Execution(
            ok=self._ok,
            ending=self._ending,
            program_exit=self._program_exit(),
            message=self._message,
            commands=tuple(self._results),
            limits_hit=(*self._hits, *imported.hits),
            sandbox=self._confinement.applied,
            telemetry=self._sampler.record(),
            sample_marks=tuple(self._marks.marks),
            sample_marks_dropped=self._marks.dropped,
            outputs=tuple(imported.outputs),
            reports=imported.reports,
            log=log,
            log_truncated_bytes=self._log.cut_bytes,
            redactions=self._log.redactions,
            wall_s=wall_s,
            imported=self._imported,
            peers=tuple(self._peers),
            launches=tuple(self._launches),
            host=self._host,
            ended=rfc3339(self._clock.now()),
            nonce=self._nonce,
        )

    def _since(self) -> Stamp:
        """Return since when files are the run's own, by the wall clock as it goes now."""
        return self.stamp.set_back(self._began.set_back_s(self._clock))

    def _program_exit(self) -> int | None:
        """Return the exit code of the last command that ran, as shells count."""
        if not self._results:
            return None
        last = self._results[-1]
        return last.exit_code if last.signal is None else 128 + last.signal

    def _supervise(
        self,
        command: Command,
        log: LogKeeper,
        marks: MarkReader,
        on_usage: Callable[[float, Usage], None],
        beside: PeerProcess | LaunchTurns | None = None,
    ) -> CommandEnd | None:
        """Run one command in the run's confinement and bounds; None when the executor could not."""
        hooks = self._hooks if beside is None else beside.hooks(self._hooks)
        supervisor = Supervisor(
            marker=self.marker, hooks=hooks, log=log, marks=marks, bounds=self._bounds, on_usage=on_usage
        )
        try:
            with ExitStack() as stack:
                pipe = open_pipe(stack)
                environment = command_environment(self._spec, command, self._directory, self.marker, pipe.write)
                environment |= {"KAKEYA_NONCE": self._nonce}
                environment |= {} if beside is None else beside.environment()
                wrapped = stack.enter_context(self._confinement.command(command.argv, environment))
                wrapped = wrapped if beside is None else beside.connect(wrapped)
                bounds = rlimits(self._spec.limits, self._confinement.applied.uid)
                return supervisor.run(CommandPlan(command.name, command.argv, wrapped, bounds, pipe, pipe.write))
        except InfrastructureError as error:
            self._fail(f"command {command.name} could not run: {error.message}")
            return None

    def _find_module(self, command: Command) -> bool:
        """Find out where the first command's module would come from; return whether the run may go on."""
        lookup = question(command)
        if lookup is None:
            return True
        output = bytearray()
        log = LogKeeper(output.extend, ANSWER_MAX_BYTES, self._secrets)
        ended = self._supervise(lookup[0], log, MarkReader(), lambda _t_s, _usage: None)
        log.end()
        if ended is None:
            return False
        self._bounds.command_ended(ended.result.cpu_s)
        if ended.stop is not None:
            self._stopped(ended.stop)
        elif ended.result.exit_code == 0:
            self._imported = answer(lookup[1], bytes(output))
        return ended.stop is None  # what else is wrong with the interpreter or the sandbox, the command itself shows

    def _stopped(self, stop: Stop) -> None:
        self._ending, self._message = stop.ending, stop.message
        self._hits += [stop.hit] if stop.hit is not None else []

    def _marked(self, mark: SampleMark) -> None:
        if self._on_mark is not None:
            self._on_mark(mark)
        self._meter.mark(mark)

    def _run(self, command: Command) -> bool:
        """Run one command, in a series or beside its peer if it asks one; return whether the next may run."""
        self._meter.begin(command)
        if command.launches is not None:
            return self._series(command, command.launches)
        if self._beside is None or command.peer is None:
            return self._alone(command)
        peer = PeerProcess(command, self._beside, self.marker, self._bounds.elapsed_s, self._clock)
        with peer:
            went_on = self._alone(command, peer)
        if peer.log:
            self._log.note(f"what the peer of {command.name} wrote:")
            self._log.feed(peer.log)
        self._peers += [] if peer.record is None else [peer.record]
        if peer.failed is not None:
            self._fail(f"the peer of command {command.name}: {peer.failed}", began=True)
        elif peer.record is None or peer.record.survivors:
            self._fail(f"the peer of command {command.name} was not seen to end", began=True)
        return went_on and self._ok

    def _series(self, command: Command, plan: LaunchSeries) -> bool:
        """Launch one command again and again until the stop rule ends that; return whether the next may run.

        The record has one result for the series: its time is from the first launch to the last.
        """
        before, gpu, observed = len(self._results), find_meter(self._given), ServersSeen()
        turns: Callable[..., LaunchTurns] = LaunchTurns
        if command.asker is not None:
            turns = partial(AskedTurns, asker=command.asker, observed=observed, uid=self._spec.sandbox.peer_uid)
        series = SeriesOfLaunches(
            command, plan, self._alone, self._log.note, self._bounds.elapsed_s, gpu, self._meter.launched,
            partial(turns, alive=self._bounds.active), observed.full,
        )  # fmt: skip
        went_on = series.until_decided()
        self._launches += series.records
        if command.asker is not None:
            self._own_reports[f"{command.folder}/{REPORT_FILE}"] = observed.report()
        self._results[before:] = [joined(self._results[before:])] if self._results[before:] else []
        return went_on

    def _alone(self, command: Command, beside: PeerProcess | LaunchTurns | None = None) -> bool:
        before = self._left_so_far() if command.confirms else None
        again = command.confirms and command.folder is not None
        if again:
            self._remove_undeclared(command, before or ())
        make_folder(command, self._directory)
        heard = self._log.listen() if again else None
        with reports_hidden(self._directory.out) if again else nullcontext():
            ended = self._supervise(command, self._log, self._marks, self._sampler.usage, beside)
        if ended is None:
            return False
        for note in ended.notes:
            self._log.note(note)
        why = ended.killed or ended.failed
        if why is not None:
            self._fail(f"command {command.name}: {why}", began=ended.began)
            self._ending = "killed" if ended.killed else self._ending
            if not ended.began:
                return False
        reply = None if heard is None else last_line(heard, self._secrets)
        self._results.append(ended.result if before is None else ended.result.evolve(before=before, answer=reply))
        self._bounds.command_ended(ended.result.cpu_s)
        stop = ended.stop if ended.result.survivors else self._bounds.disk(ended.stop)
        if stop is not None:
            self._stopped(stop)
        if ended.result.survivors:
            self._fail(f"{ended.result.survivors} processes of command {command.name} could not be killed")
        return self._ok and stop is None and ended.result.exit_code == 0

    def _left_so_far(self) -> tuple[OutputRecord, ...]:
        """Return what lies in the report directory; nobody writes there between two commands."""
        declared = [output.path for output in self._spec.outputs]
        return tuple(import_outputs(self._directory.out, stamp=self._since(), declared=declared).outputs)

    def _remove_undeclared(self, command: Command, before: Sequence[OutputRecord]) -> None:
        """Leave a command that computes again only what was declared, and what makes the gate refuse the run."""
        stay = {output.path for output in self._spec.outputs} | {output.path for output in before}
        removed = remove_undeclared(self._directory, stay, work=self._spec.code == "host")
        if removed:
            self._log.note(f"{removed} files or folders that nobody declared were deleted before {command.name}")

    def _fail(self, message: str, *, began: bool = False) -> None:
        """Note that the executor could not do its own work."""
        self._ok = False
        self._message = one_line(message)
        if not self._results and not began:
            self._ending = "not_started"
