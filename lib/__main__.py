"""The laboratory's commands: `python -m lib run | plan | sweep | freeze | report | data | params | runs | bench | check-endpoint | doctor`.

Exit codes: 0 when all went well, 1 when a run, a page or a download failed, 2 when the command was not understood, 130 after
Ctrl-C. Modules are imported when a command needs them, so that `--help` answers at once.

Not covered: the work itself, which is in `lib.runs` and `lib.sources`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

FAILED, USAGE, INTERRUPTED = 1, 2, 130
_REMEDY = "use .venv/bin/python (`make doctor` builds it), or `python -m pip install -r requirements.lock`"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    _stop_on_signals()
    try:
        return _answer(options)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("", "lib"):
            raise  # a mistake in this library, not in the environment
        return _complain(f"{error}; {sys.executable} lacks packages: {_REMEDY}", FAILED)


def _answer(options: argparse.Namespace) -> int:
    """Run the command; what users can mend is told in one line."""
    from lib.runs.params import ParameterError
    from lib.runs.store import StoreError
    from lib.sources import SourceError

    try:
        return int(options.command(options))
    except ParameterError as error:
        return _complain(str(error), USAGE)
    except (StoreError, SourceError, OSError) as error:
        return _complain(str(error), FAILED)
    except KeyboardInterrupt:
        goes_on = "" if options.command is _bench else ", the same command goes on from there"
        return _complain(f"stopped; what was finished is kept{goes_on}", INTERRUPTED)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lib", description="The Agent Communication Lab.")
    commands = parser.add_subparsers(required=True, metavar="command")

    run = commands.add_parser("run", help="run notebooks; finished ones are kept")
    run.add_argument("--profile", default="laptop", help="folder of params/ to take parameters from (default: laptop)")
    run.add_argument("--only", nargs="+", action="extend", metavar="NB", help="numbers, names or starts of names")
    run.add_argument("--force", action="store_true", help="run finished notebooks again (stored replies are used)")
    run.add_argument("--no-cache", action="store_true", help="compute every model call, for latency; implies --force")
    run.add_argument(
        "-p", nargs="+", action="append", default=[], metavar="NAME=VALUE", dest="overrides", help="set a parameter"
    )
    run.add_argument("--jobs", type=_at_least(1), default=1, metavar="N", help="notebooks at a time (default: 1)")
    run.add_argument(
        "--timeout", type=_at_least(0), default=None, metavar="S", help="seconds a cell may take, 0 for no limit"
    )
    run.set_defaults(command=_run)

    plan = commands.add_parser("plan", help="say what runs would ask and cost, before they run")
    plan.add_argument("what", metavar="PROFILE|SWEEP.yaml", help="folder of params/, or a sweep file")
    plan.add_argument("--only", nargs="+", action="extend", metavar="NB", help="numbers, names or starts of names")
    plan.add_argument(
        "-p", nargs="+", action="append", default=[], metavar="NAME=VALUE", dest="overrides", help="set a parameter"
    )
    probe = plan.add_mutually_exclusive_group()
    probe.add_argument(
        "--receiver-probe", action="store_const", const=True, dest="probe", help="measure the receivers' speed anew"
    )
    probe.add_argument(
        "--no-probe",
        action="store_const",
        const=False,
        dest="probe",
        help="load no model; speeds known before are used",
    )
    plan.set_defaults(command=_plan)

    sweep = commands.add_parser("sweep", help="run one notebook under many parameters, on several workers")
    sweep.add_argument("file", metavar="FILE", help="sweep file, or the name of one in params/sweeps")
    sweep.add_argument("--workers", type=_at_least(1), metavar="N", help="runs at a time (default: 2 on this machine)")
    sweep.add_argument("--scheduler", metavar="ADDRESS", help="use this dask cluster, such as tcp://10.0.0.1:8786")
    sweep.add_argument("--retries", type=_at_least(0), metavar="N", help="further tries of a failed run (default: 1)")
    sweep.add_argument("--dry-run", action="store_true", help="list the runs and which are finished; start nothing")
    sweep.set_defaults(command=_sweep)

    freeze = commands.add_parser("freeze", help="run notebooks live and keep their replies in data/frozen/; hours")
    freeze.add_argument(
        "--profile", default="laptop", help="folder of params/ to take parameters from (default: laptop)"
    )
    freeze.add_argument(
        "--only", nargs="+", action="extend", metavar="NB", help="default: all that read frozen replies"
    )
    freeze.set_defaults(command=_freeze)

    report = commands.add_parser("report", help="write the finished runs as HTML pages")
    report.add_argument("--profile", help="this profile only; a notebook without a finished run counts as missing")
    report.set_defaults(command=_report)

    data = commands.add_parser("data", help="fetch models and data sets")
    data.add_argument("names", nargs="*", help="names of data/sources.toml; default: what the profile needs")
    data.add_argument(
        "--profile", default="laptop", help="profile whose parameters say what is needed (default: laptop)"
    )
    data.set_defaults(command=_data)

    params = commands.add_parser("params", help="list what the notebooks may be asked")
    params.add_argument("only", nargs="*", metavar="NB", help="numbers, names or starts of names; default: all")
    params.set_defaults(command=_params)

    runs = commands.add_parser("runs", help="list the runs")
    runs.add_argument("--last", type=_at_least(1), default=20, metavar="N", help="the last N runs (default: 20)")
    runs.add_argument("--csv", metavar="FILE", help="write the whole index as one table instead")
    runs.set_defaults(command=_runs)

    bench = commands.add_parser("bench", help="time replay against the other ways to do it")
    bench.add_argument("--model", default="qwen-coder-0.5b", help="short name or folder (default: qwen-coder-0.5b)")
    bench.add_argument("--dtype", default="fast", help="auto, fast, float32 or bfloat16 (default: fast)")
    bench.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    bench.add_argument("--packets", type=_at_least(1), default=12, metavar="N", help="packets of a task (default: 12)")
    bench.add_argument("--tasks", type=_at_least(1), default=1, metavar="N", help="tasks asked together (default: 1)")
    bench.add_argument("--new-tokens", type=_at_least(1), default=8, metavar="N", help="tokens decoded (default: 8)")
    bench.add_argument("--rounds", type=_at_least(1), default=3, metavar="N", help="timed rounds (default: 3)")
    bench.add_argument(
        "--curve-packets", type=_at_least(1), nargs="*", default=(), metavar="N", help="then: other numbers of packets"
    )
    bench.add_argument(
        "--curve-tasks", type=_at_least(1), nargs="*", default=(), metavar="N", help="then: other numbers of tasks"
    )
    bench.add_argument(
        "--limit-seconds",
        type=_at_least(1),
        default=60,
        metavar="N",
        help="in the curves, leave out a contender that is expected to need longer (default: 60)",
    )
    bench.add_argument("--admission", action="store_true", help="time admission under a byte cap instead; no model")
    bench.add_argument(
        "--gpu-check", action="store_true", help="check a CUDA device instead: same replies, then timings; minutes"
    )
    bench.set_defaults(command=_bench)

    check = commands.add_parser("check-endpoint", help="say what a model server has; compare it with a local model")
    check.add_argument("url", help="its address, such as http://127.0.0.1:8000/v1, or a receiver's name, endpoint:...")
    check.add_argument("--model", default="", help="the model as the server calls it (default: its only one)")
    check.add_argument("--against", metavar="NAME", help="the same weights here: short name, folder or GGUF file")
    check.add_argument("--dtype", default="float32", help="of the weights here (default: float32)")
    check.add_argument("--prompts", type=_at_least(1), default=50, metavar="N", help="questions asked (default: 50)")
    check.add_argument("--max-tokens", type=_at_least(1), default=32, metavar="N", help="of a reply (default: 32)")
    check.add_argument("--csv", metavar="FILE", help="the table (default: endpoint_check.csv among the runs)")
    check.set_defaults(command=_check_endpoint)

    doctor = commands.add_parser("doctor", help="say what this machine has and what is missing")
    doctor.add_argument("--quick", action="store_true", help="no hashing, no kernel, no reading of the whole store")
    doctor.add_argument(
        "--receiver", nargs="+", action="extend", default=[], metavar="NAME", help="who is to answer; a server is asked"
    )
    doctor.set_defaults(command=_doctor)

    for command in (run, plan, sweep, freeze, report, runs, bench, check, doctor):
        command.add_argument("--outputs", metavar="DIR", help="folder of the runs (default: outputs/)")
    return parser


def _run(options: argparse.Namespace) -> int:
    from lib.runs.layout import checkout, find_notebooks, select
    from lib.runs.notebook import CELL_SECONDS, plan_runs, run_notebooks
    from lib.runs.params import ParameterError, split_overrides
    from lib.runs.progress import duration

    layout = checkout(options.outputs)
    notebooks = find_notebooks(layout)
    if not notebooks:
        raise ParameterError(f"{layout.notebooks}: no notebooks")
    overrides = split_overrides(_pairs(options.overrides))
    plans = plan_runs(layout, select(notebooks, options.only or []), options.profile, overrides, say=_say)
    results = run_notebooks(
        layout,
        plans,
        force=options.force,
        timeout=CELL_SECONDS if options.timeout is None else options.timeout,
        jobs=options.jobs,
        no_cache=options.no_cache,
        say=_say,
        show=_show if sys.stdout.isatty() else None,
    )
    count = {status: sum(result.status == status for result in results) for status in ("ok", "skipped", "failed")}
    seconds = duration(sum(result.seconds for result in results))
    _say(f"{count['ok']} run, {count['skipped']} finished before, {count['failed']} failed, {seconds} in all")
    for result in results:
        if result.status == "failed" and result.error:
            _say(f"failed: {result.plan.notebook.stem}: {result.error['name']}: {result.error['value']}")
    return FAILED if count["failed"] else 0


def _plan(options: argparse.Namespace) -> int:
    from lib.runs.layout import checkout, find_notebooks, select
    from lib.runs.notebook import plan_runs
    from lib.runs.params import ParameterError, split_overrides
    from lib.runs.plan import foresee
    from lib.runs.plan_page import plan_lines
    from lib.runs.probe import rates_of
    from lib.runs.sweep import find_sweep, read_sweep

    layout = checkout(options.outputs)
    labels: dict[str, str] = {}
    if options.what.endswith(".yaml"):
        if options.only or options.overrides:
            raise ParameterError("plan: a sweep file names its notebook and parameters; drop --only and -p")
        sweep = read_sweep(find_sweep(layout, options.what), layout)
        plans, labels = list(sweep.plans), sweep.labels
    else:
        overrides = split_overrides(_pairs(options.overrides))
        chosen = select(find_notebooks(layout), options.only or [])
        plans = plan_runs(layout, chosen, options.what, overrides, say=_say)
    found = foresee(layout, plans, say=_say)
    opened = {who.fingerprint: who for one in found for who in one.opened.values()}
    for line in ["", *plan_lines(found, rates_of(opened, options.probe, _say), labels)]:
        _say(line)
    return FAILED if any(one.state == "failed" for one in found) else 0


def _sweep(options: argparse.Namespace) -> int:
    from lib.runs.layout import checkout
    from lib.runs.notebook import is_finished
    from lib.runs.sweep import find_sweep, read_sweep

    layout = checkout(options.outputs)
    sweep = read_sweep(find_sweep(layout, options.file), layout)
    if sweep.duplicates:
        _say(f"{sweep.name}: {sweep.duplicates} combinations ask for the same as an earlier one; each is run once")
    if options.dry_run:
        done = [is_finished(layout.outputs, plan) for plan in sweep.plans]
        for plan, finished in zip(sweep.plans, done, strict=True):
            _say(f"{'finished' if finished else 'to run':<9} {plan.run_id}  {sweep.labels[plan.run_id]}")
        _say(f"{len(done)} runs, {sum(done)} finished before; nothing was started")
        return 0
    from lib.runs.sweep_cluster import run_sweep
    from lib.runs.sweep_table import TABLE

    outcomes = run_sweep(
        layout,
        sweep,
        workers=options.workers,
        scheduler=options.scheduler,
        retries=options.retries,
        say=_say,
        show=_show if sys.stdout.isatty() else None,
    )
    count = {status: sum(one.status == status for one in outcomes.values()) for status in ("skipped", "failed")}
    made = len(outcomes) - sum(count.values())
    _say(f"{made} run, {count['skipped']} finished before, {count['failed']} failed")
    _say(f"table: {layout.outputs / 'sweeps' / sweep.name / TABLE}")
    return FAILED if count["failed"] else 0


def _freeze(options: argparse.Namespace) -> int:
    from datetime import date

    from lib.runs.context import FROZEN, LIVE, frozen_folder
    from lib.runs.freezing import freeze_runs
    from lib.runs.layout import checkout, find_notebooks, select
    from lib.runs.notebook import plan_runs
    from lib.runs.params import ParameterError

    layout = checkout(options.outputs)
    chosen = select(find_notebooks(layout), options.only or [])
    readers = [
        plan.notebook
        for plan in plan_runs(layout, chosen, options.profile, say=lambda _: None)
        if plan.parameters.get("corpus") == FROZEN
    ]
    if not readers:
        raise ParameterError(f"--profile {options.profile}: none of these notebooks has corpus: {FROZEN}")
    plans = plan_runs(layout, readers, options.profile, {"corpus": LIVE}, say=_say)
    only = " --only " + " ".join(options.only) if options.only else ""
    command = f"python -m lib freeze --profile {options.profile}{only}"
    made = date.today().isoformat()
    return FAILED if freeze_runs(layout, plans, command=command, made=made, root=frozen_folder(), say=_say) else 0


def _report(options: argparse.Namespace) -> int:
    from lib.runs.layout import checkout
    from lib.runs.report import build_report

    report = build_report(checkout(options.outputs), options.profile, say=_say)
    _say(f"report: {report.folder / 'index.html'}")
    for problem in report.problems:
        _complain(problem, FAILED)
    return FAILED if report.problems else 0


def _data(options: argparse.Namespace) -> int:
    from lib.sources import catalogue, fetch_all

    names = options.names
    if not names:
        from lib.runs.layout import checkout, find_notebooks
        from lib.runs.notebook import plan_runs

        layout = checkout()
        plans = plan_runs(layout, find_notebooks(layout), options.profile, say=lambda _: None)
        asked = {word for plan in plans for word in _words(plan.parameters)}
        names = [name for name in catalogue() if name in asked]
        _say(f"profile {options.profile} needs: {', '.join(names) or 'nothing to fetch'}")
    return fetch_all(names, log=_say)


def _params(options: argparse.Namespace) -> int:
    from lib.runs.layout import checkout, find_notebooks, select
    from lib.runs.params import read_parameters

    for notebook in select(find_notebooks(checkout()), options.only):
        _say(notebook.stem)
        for spec in read_parameters(notebook).values():
            _say(
                f"  {spec.name}: {spec.kind} = {spec.default!r}{spec.bounds()}"
                + (f"  # {spec.help}" if spec.help else "")
            )
    return 0


def _runs(options: argparse.Namespace) -> int:
    from lib.runs.index import index_frame, read_index
    from lib.runs.layout import checkout
    from lib.runs.notebook import short
    from lib.runs.progress import duration

    outputs = checkout(options.outputs).outputs
    entries, problems = read_index(outputs)
    if options.csv:
        index_frame(outputs).to_csv(options.csv, index=False)
        _say(f"{len(entries)} runs written to {options.csv}")
    else:
        width = max((len(entry["run_id"]) for entry in entries), default=0)
        for entry in entries[-options.last :]:
            numbers = ", ".join(f"{name} {short(value)}" for name, value in (entry.get("headline") or {}).items())
            what = entry.get("error") or numbers
            took = duration(float(entry.get("seconds", 0)))
            _say(
                f"{entry['run_id']:<{width}}  {entry.get('profile', ''):<8} {entry.get('status', ''):<11} {took:>8}  {what}"
            )
        if not entries:
            _say(f"no runs in {outputs} yet; make some with `python -m lib run`")
    for problem in problems:
        _complain(problem, FAILED)
    return FAILED if problems else 0


def _bench(options: argparse.Namespace) -> int:
    from lib.runs.layout import checkout

    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # torch's profiler writes lines of its own between ours
    folder = checkout(options.outputs).outputs / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()  # a place that cannot be written is known before minutes are spent
    if options.admission:
        from lib.runs.bench.admission import bench_admission

        return bench_admission(folder, _say)
    if options.gpu_check:
        from lib.runs.bench.gpu_check import gpu_check

        return gpu_check(folder, options.model, "cuda" if options.device == "auto" else options.device, _say)
    from lib.runs.bench.command import Plan, bench

    plan = Plan(
        packets=options.packets,
        tasks=options.tasks,
        new_tokens=options.new_tokens,
        rounds=options.rounds,
        more_packets=tuple(sorted(set(options.curve_packets))),
        more_tasks=tuple(sorted(set(options.curve_tasks))),
        limit=options.limit_seconds,
    )
    return bench(folder, options.model, options.dtype, options.device, plan, _say)


def _check_endpoint(options: argparse.Namespace) -> int:
    from pathlib import Path

    from lib.models.endpoint_settings import PREFIX, EndpointError
    from lib.runs.check_endpoint import check_endpoint
    from lib.runs.layout import checkout

    named = options.url.startswith(PREFIX)
    if named and options.model:
        return _complain("--model: the receiver's name holds the model already, behind its first '#'", USAGE)
    endpoint = options.url if named else f"{PREFIX}{options.url}#{options.model}"
    target = Path(options.csv) if options.csv else checkout(options.outputs).outputs / "endpoint_check.csv"
    try:
        return check_endpoint(
            endpoint,
            options.against,
            target,
            _say,
            prompts=options.prompts,
            max_tokens=options.max_tokens,
            dtype=options.dtype,
        )
    except EndpointError as error:
        return _complain(str(error), FAILED)


def _doctor(options: argparse.Namespace) -> int:
    from lib.runs.doctor import examine
    from lib.runs.layout import checkout

    missing = 0
    for finding in examine(checkout(options.outputs), quick=options.quick, receivers=options.receiver):
        _say(str(finding))
        missing += finding.state == "missing"
    things = "1 thing is" if missing == 1 else f"{missing} things are"
    _say(f"{things} missing" if missing else "all that is needed is here")
    return FAILED if missing else 0


def _pairs(given: Sequence[Sequence[str]]) -> list[str]:
    """Accept `-p name=value`, several of them after one -p, and papermill's `-p name value`."""
    pairs = []
    for words in given:
        if len(words) == 2 and "=" not in words[0]:
            pairs.append("=".join(words))
        else:
            pairs += words
    return pairs


def _words(value: Any) -> set[str]:
    """Return every text inside a parameter value."""
    if isinstance(value, str):
        return {value}
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {word for member in members for word in _words(member)}


def _at_least(low: int) -> Any:
    def number(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or int(text) < low:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} up")
        return int(text)

    return number


def _stop_on_signals() -> None:
    """Let a polite kill end runs the way Ctrl-C does, with no kernel left behind."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), stop)


def _say(line: str) -> None:
    print(f"\r\x1b[2K{line}" if sys.stdout.isatty() else line, flush=True)


def _show(line: str) -> None:
    """Draw a line over the last one on a terminal."""
    print(f"\r\x1b[2K{line[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)


def _complain(text: str, code: int) -> int:
    print(f"error: {text}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
