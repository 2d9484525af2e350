"""The house keeps its own rules: pins, set-up, notebooks, lists and forbidden constructs."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MODULES = sorted((ROOT / "lib").rglob("*.py"))


def lock() -> dict[str, Version]:
    """Return package -> exact version of requirements.lock."""
    pins = {}
    for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            match = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.]+)", line)
            assert match, f"requirements.lock: {line!r} is not an exact public version"
            pins[canonicalize_name(match[1])] = Version(match[2])
    return pins


# ---------------------------------------------------------------------------------------------------------------- pins and routes


def test_every_declared_dependency_is_locked_inside_its_range() -> None:
    declared = PYPROJECT["project"]["dependencies"] + PYPROJECT["project"]["optional-dependencies"]["dev"]
    pins = lock()
    for text in declared:
        requirement = Requirement(text)
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), f"{text} against the lock"


def test_every_third_party_import_is_declared() -> None:
    extras = PYPROJECT["project"]["optional-dependencies"]
    texts = PYPROJECT["project"]["dependencies"] + [text for name in extras if name != "dev" for text in extras[name]]
    declared = {canonicalize_name(Requirement(text).name) for text in texts}
    providers = importlib.metadata.packages_distributions()
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for name in {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - {"lib"}:
                owners = {canonicalize_name(owner) for owner in providers.get(name, [name])}
                assert owners & declared, (
                    f"{path.relative_to(ROOT)} imports {name}, which pyproject.toml does not declare"
                )


def test_both_routes_install_the_same_pins() -> None:
    conda = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    plain = [item for item in conda["dependencies"] if isinstance(item, str)]
    through_pip = next(item["pip"] for item in conda["dependencies"] if isinstance(item, dict))
    assert through_pip == ["-r requirements.lock", "-e ."]
    # Beside Python and pip the conda route may name nothing: a second list of versions could drift from the lock.
    assert [re.split("[=<>]", item)[0] for item in plain] == ["python", "pip"]
    version = Version(next(item for item in plain if item.startswith("python=")).split("=")[1])
    assert Requirement(f"x{PYPROJECT['project']['requires-python']}").specifier.contains(version)
    venv_route = (ROOT / "tools" / "make_venv.py").read_text(encoding="utf-8")
    assert '["-r", LOCK, "-e", ROOT]' in venv_route
    assert 'LOCK = os.path.join(ROOT, "requirements.lock")' in venv_route


def test_torch_is_pinned_once_and_no_accelerator_package_is_locked() -> None:
    assert "torch==2.13.0" in PYPROJECT["project"]["dependencies"]
    assert lock()["torch"] == Version("2.13.0")
    drags = {name for name in lock() if name.startswith(("nvidia-c", "nvidia-n", "triton", "cuda-", "vllm"))}
    assert drags == set(), "these come with a CUDA build of torch and would break a CPU install"


def test_this_environment_is_the_locked_one() -> None:
    wrong = {}
    for name, version in lock().items():
        try:
            here = Version(importlib.metadata.version(name).split("+")[0])
        except importlib.metadata.PackageNotFoundError:
            here = None
        if here != version:
            wrong[name] = (str(here), str(version))
    assert wrong == {}, "installed, locked; run `make environment`"


# ---------------------------------------------------------------------------------------------------------------- set-up


@pytest.fixture(scope="module")
def make_venv() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_venv", ROOT / "tools" / "make_venv.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_set_up_script_starts_on_an_old_python(make_venv: ModuleType) -> None:
    text = (ROOT / "tools" / "make_venv.py").read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 6))  # it must parse before it can say that the Python is too old
    imported = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    assert imported <= set(sys.stdlib_module_names)


def test_stale_and_interrupted_environments_are_noticed(
    make_venv: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv = tmp_path / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    for name, value in {
        "ROOT": tmp_path,
        "VENV": venv,
        "STAMP": venv / "lab-ready.json",
        "LOCK": tmp_path / "requirements.lock",
    }.items():
        monkeypatch.setattr(make_venv, name, str(value))
    (tmp_path / "requirements.lock").write_text("torch==1")
    (tmp_path / "pyproject.toml").write_text("")
    key = make_venv.wanted_key()
    assert not make_venv.is_ready(key), "no stamp: never finished"
    (venv / "lab-ready.json").write_text('{"key": "')
    assert not make_venv.is_ready(key), "torn stamp"
    (venv / "lab-ready.json").write_text(json.dumps({"key": key}))
    assert make_venv.is_ready(key)
    (tmp_path / "pyproject.toml").write_text("\n[tool.ruff]\nline-length = 100")
    assert make_venv.is_ready(make_venv.wanted_key()), "a linter's setting changes nothing installed"
    (tmp_path / "requirements.lock").write_text("torch==2")
    assert not make_venv.is_ready(make_venv.wanted_key()), "the lock changed"
    (venv / "bin" / "python").unlink()
    assert not make_venv.is_ready(key), "no interpreter"


def test_packages_cut_short_are_installed_again(make_venv: ModuleType, tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    for name, files in {"whole-1.0": ["METADATA", "RECORD"], "half-2.0": ["METADATA"]}.items():
        (site / f"{name}.dist-info").mkdir(parents=True)
        for file in files:
            (site / f"{name}.dist-info" / file).write_text("")
    assert make_venv.drop_half_installed(str(tmp_path)) == ["half-2.0"]
    assert [path.name for path in site.iterdir()] == ["whole-1.0.dist-info"]


@pytest.mark.parametrize(
    ("log", "advice"),
    [
        ("ERROR: Could not install: [Errno 28] No space left on device", "no space left"),
        ("NewConnectionError: refused\nERROR: No matching distribution found for torch==2.13.0", "not reachable"),
        ("ERROR: No matching distribution found for torch==2.13.0", "offers no torch==2.13.0 for this Python"),
        ("SSLError(CERTIFICATE_VERIFY_FAILED)", "PIP_CERT"),
        ("ERROR: [Errno 13] Permission denied: 'x'", "Check the owner"),
        ("2026 ERROR: odd thing", "odd thing"),
    ],
)
def test_set_up_failures_say_how_to_mend_them(make_venv: ModuleType, log: str, advice: str) -> None:
    assert advice in make_venv.diagnose(log)


def test_no_fitting_python_is_one_clear_message(tmp_path: Path) -> None:
    """A Python without ensurepip, and nothing else on the PATH: the message names both ways out."""
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "python3.11").write_text("#!/bin/sh\necho 3.11\nexit 1\n")
    (fake / "python3.11").chmod(0o755)
    code = (
        "import sys, importlib.util as u; s = u.spec_from_file_location('m', sys.argv[1]); m = u.module_from_spec(s)\n"
        "s.loader.exec_module(m); m.sys.executable = ''\n"
        "try: m.find_python()\nexcept m.SetupError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "tools" / "make_venv.py")],
        env={"PATH": str(fake)},
        capture_output=True,
        text=True,
    )
    assert "python3.11 is 3.11 without venv/ensurepip" in done.stdout
    assert "conda env create -f environment.yml" in done.stdout


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(re.search(r"^\.PHONY: (.*)$", makefile, re.M)[1].split()) - {"environment"}  # type: ignore[index]
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in shown.splitlines() if line.startswith("  make ")} == phony
    for target in ("run", "test", "lab"):
        rule = re.search(rf"^{target}:(.*?)##", makefile, re.M)
        assert rule and "$(ENVIRONMENT)" in rule[1], f"{target} must make .venv on its own"


# ---------------------------------------------------------------------------------------------------------------- notebooks


def notebook_ids() -> list[str]:
    return [path.name for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=notebook_ids())
def test_notebook_is_stripped_and_has_one_parameters_cell(path: Path) -> None:
    book = json.loads(path.read_text(encoding="utf-8"))
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None, "run `make format`"
    tagged = [cell for cell in book["cells"] if "parameters" in cell.get("metadata", {}).get("tags", [])]
    assert len(tagged) == 1, "exactly one cell carries the tag `parameters`"
    assert "widgets" not in book["metadata"]
    verify = [sys.executable, "-m", "nbstripout", "--keep-id", "--verify", str(path)]
    assert subprocess.run(verify, capture_output=True).returncode == 0, "run `make format`"


def test_stripping_keeps_tags(tmp_path: Path) -> None:
    cell = {
        "cell_type": "code",
        "id": "a1",
        "metadata": {"tags": ["parameters"]},
        "source": "x = 1",
        "outputs": [{"output_type": "stream", "name": "stdout", "text": "1"}],
        "execution_count": 3,
    }
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    subprocess.run([sys.executable, "-m", "nbstripout", "--keep-id", str(path)], check=True)
    kept = json.loads(path.read_text())["cells"][0]
    assert (kept["outputs"], kept["execution_count"], kept["metadata"]) == ([], None, {"tags": ["parameters"]})


# ---------------------------------------------------------------------------------------------------------------- code


def uses(tree: ast.AST) -> set[str]:
    """Return the names called or imported that the house forbids."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"hash", "eval"}:
            found.add(f"{node.func.id}()")
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & {
                "pickle",
                "cloudpickle",
                "dill",
                "joblib",
                "marshal",
                "shelve",
            }
        if isinstance(node, ast.ImportFrom) and node.module in {"pickle", "cloudpickle", "dill", "joblib", "marshal"}:
            found.add(node.module)
        if (
            isinstance(node, ast.keyword)
            and node.arg == "trust_remote_code"
            and getattr(node.value, "value", 1) is not False
        ):
            found.add("trust_remote_code")
        if isinstance(node, ast.Attribute) and node.attr == "append" and ast.unparse(node.value) == "sys.path":
            found.add("sys.path.append")
    return found


def test_the_ban_list_sees_what_it_bans() -> None:
    text = "import pickle\nfrom dill import x\nhash(1)\nf(trust_remote_code=True)\nf(trust_remote_code=False)\nsys.path.append(1)"
    assert uses(ast.parse(text)) == {"pickle", "dill", "hash()", "trust_remote_code", "sys.path.append"}


@pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(ROOT)) for path in MODULES])
def test_module_keeps_the_house_rules(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert uses(tree) == set()
    assert ast.get_docstring(tree), "a module opens with what it does and what it does not cover"
    assert path.stem not in {"utils", "helpers", "common", "misc"}


def test_no_large_file_is_tracked() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    tracked = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    large = {str(path.relative_to(ROOT)): path.stat().st_size for path in tracked if path.is_file()}
    assert {name: size for name, size in large.items() if size > 1_000_000} == {}
