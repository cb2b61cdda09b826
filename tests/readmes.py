#!/usr/bin/env python3
"""Runs every command of every README as it is written there: `make -C tests check-readmes`.

    readmes.py [README ...]

A command is a line of an indented block. If lines of the block begin with "$ ", only those are
commands, and the other lines show what the command prints. There, any number stands for any other
number, and ... for anything. "(gdb) ..." is typed into the command before it. In a paragraph,
`./run_all.sh ...` is a command too, and so is a `make` that is given a variable.

All commands run in one clean copy of the checkout, from its root. The path of the copy has signs
that make and the shell read. A command that takes longer than some seconds is stopped as by Ctrl-C,
and passes if it has not failed until then. TO_THE_END=1 lets all of them finish. FULL=1 runs all.
Without it, a command is run only if it has a word, or an option or variable of a command, that none
before it had: other values, another ladder or stage make no difference.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TO_THE_END, FULL = bool(os.environ.get("TO_THE_END")), bool(os.environ.get("FULL"))
LIMIT, LIMIT_WITH_OUTPUT = 1, 120  # seconds for a command, and for one whose output is shown
# Commands whose result later ones need. All stages together take a minute.
BUILD = re.compile(r"make( -C (stages|studies)/.*)?" if FULL else r"make -C (stages|studies)/.*")
MAY_BE_MISSING = "gdb", "bats"
NOT_RUN = {
    "make test": "this is a part of it",
    "make deps": "`make test` has begun with it",
    "make peers": "it downloads gigabytes",
    "make lint": "it asks git for the files, and a copy has no git",
    "make check-NAME": "NAME stands for something",
}
# A command may fail only if something is missing, and its last lines say so.
EXCUSES = (r"Needed, and not installed|no GPU|not installed: |no usable CUDA device|"
           r"found no (\S*nvcc|ncu|mpirun)")
# What makes no difference: a variable's value, and which ladder and stage.
NAMES = re.compile(r"=\S+|(?<=--study )\S+|\b(stages|studies/\w+)/\w+")
INLINE = re.compile(r"`((?:\./run_all\.sh|make [^`]*[A-Z]+=)[^`]*)`")


def blocks(text):
    """The indented blocks, and each command within a paragraph as its own block, in order."""
    for part in re.split(r"\n\s*\n", text):
        lines = part.strip("\n").splitlines()
        if all(line.startswith("    ") for line in lines):
            yield [line[4:] for line in lines]
        elif not lines[0].startswith("    "):
            for command in INLINE.findall(" ".join(part.split())):
                yield [command]


def commands(text):
    """[(command, text typed into it, lines that it shows)]."""
    found = []
    for lines in blocks(text):
        prompts = any(line.startswith("$ ") for line in lines)
        for line in "\n".join(lines).replace("\\\n", " ").splitlines():
            if line.startswith("(gdb) "):
                found[-1][1] += line[6:] + "\n"
            elif not prompts:
                found.append([line, "", []])
            elif line.startswith("$ "):
                found.append([line[2:], "", []])
            else:
                found[-1][2].append(line)
    return [(re.sub(r"\s+", " ", re.sub(r"\s+# .*", "", line)).strip(), typed, shown)
            for line, typed, shown in found]


def looks_like(shown, output):
    """The first line that the output lacks, in this order. None if it has all lines."""
    def pattern(line):
        line = re.sub(r"-?\d[\d.,]*", "\0", re.sub(r"\s+", " ", line.strip()))
        return re.escape(line).replace("\0", r"-?\d[\d.,]*").replace(r"\.\.\.", ".*")

    lines = iter(re.sub(r"[ \t]+", " ", line.strip()) for line in output.splitlines())
    for line in shown:
        if line.strip() != "..." and not any(re.fullmatch(pattern(line), other) for other in lines):
            return line
    return None


def run(command, typed, limit, folder):
    """(exit status, output). The status is None if the command was stopped and then did stop."""
    with subprocess.Popen(command, shell=True, executable="/bin/bash", cwd=folder,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", start_new_session=True,
                          # A script's background commands inherit that SIGINT is ignored.
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
                          ) as process:
        try:
            output = process.communicate(typed, timeout=limit)[0]
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
        except BaseException:  # the command has a session of its own, and would run on
            os.killpg(process.pid, signal.SIGINT)
            raise
        try:
            return None, process.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            words = ["ps", "-o", "pid,ppid,stat,wchan:20,args", "-s"]
            hang = subprocess.run([*words, str(process.pid)], stdout=subprocess.PIPE, text=True,
                                  check=False).stdout
            os.killpg(process.pid, signal.SIGKILL)
            return 137, process.communicate()[0] + f"did not stop at Ctrl-C:\n{hang}"


def judge(command, typed, shown, folder):
    """(whether the command is right, a remark or "", the end of its output if it is wrong)."""
    program = next(word for word in command.split() if "=" not in word)
    if command in NOT_RUN:
        return True, f"skip: {NOT_RUN[command]}", []
    if program in MAY_BE_MISSING and not shutil.which(program):
        return True, f"skip: found no {program}", []
    ends = shown or BUILD.fullmatch(command)
    limit = None if TO_THE_END else LIMIT_WITH_OUTPUT if ends else LIMIT
    status, output = run(command, typed, limit, folder)
    if status is None:
        return True, f"stopped after {limit} s", []
    lines = output.splitlines()
    if status:
        excuse = re.search(f".*({EXCUSES}).*", "\n".join(lines[-3:]))
        if excuse:
            return True, f"skip: {excuse[0].strip()}", []
        return False, f"exit status {status}", lines[-20:]
    missing = looks_like(shown, output)
    if missing:
        return False, f"the README shows, and it did not print: {missing}", lines[-20:]
    return True, "", []


def features(command):
    """What is tested by running a command: its program or target, with each of its options, of the
    variables of make and of other words. Values are none, nor are ladders and stages."""
    words = re.sub(r"[\"';|]", " ", NAMES.sub("", command)).split()
    what = " ".join(word for word in words if re.match(r"[./a-z]", word))
    return {(what, word) for word in words if not re.match(r"\d", word)}


def chosen(found, seen):
    """The commands of a README to run: those with a feature that is not in `seen`, those whose
    output is shown, and what makes or builds the stages of either."""
    wanted = []
    for each in found:
        if FULL or each[2] or not features(each[0]) <= seen:
            wanted.append(each)
            seen |= features(each[0])

    def is_needed(command):
        made = re.match(r"make (?:new-stage .*NAME=(\d+)|-C (\S+))", command)
        return made and any((made[1] or made[2]) in other for other, *_ in wanted)
    return [each for each in found if each in wanted or is_needed(each[0])]


def run_all(readmes, folder):
    """Runs the commands of these files; returns the exit status."""
    done, seen, failed = set(), set(), 0
    for readme in readmes:
        print(f"# {readme}")
        text = (ROOT / readme).read_text(encoding="utf-8")
        made = set(re.findall(r"make new-stage .*NAME=(\w+)", text))
        for command, typed, shown in chosen(commands(text), seen):
            if (command, typed) in done and not any(name in command for name in made):
                continue
            done.add((command, typed))
            file = Path(folder, command.split()[0])
            if not FULL and NAMES.match(command) and file.parent.is_dir() and not file.exists():
                continue  # its build was left out
            start = time.monotonic()
            right, remark, lines = judge(command, typed, shown, folder)
            failed += not right
            print(f"{'ok' if right else 'not ok'} {command} ({time.monotonic() - start:.0f} s)"
                  + (f" # {remark}" if remark else ""), *(f"# {line}" for line in lines), sep="\n",
                  flush=True)
        for name in made:  # the next README makes its own
            for stage in (*Path(folder).glob(f"*/{name}"), *Path(folder).glob(f"*/*/{name}")):
                shutil.rmtree(stage)
    print(f"{failed} failed" if failed else f"{len(done)} commands, all right")
    return failed != 0


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="a b'c$d(e#f:g=h[i]") as folder:
        if subprocess.run([ROOT / "tests/clean_copy.sh", folder], check=False).returncode:
            print("skipped: not a checkout of git, which knows what is in a clean one")
            return 0
        for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"):
            os.environ.pop(name, None)
        # All commands share one copy of the data. Without a GPU, nothing is compiled for one.
        for data in (*ROOT.glob("data/*.set"), *ROOT.glob("studies/*/data/*.set")):
            located = subprocess.run([ROOT / "data/locate.sh", "", data],
                                     env={**os.environ, "OFFLINE": "1"}, stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL, check=True)
            os.environ[f"{data.stem.upper()}_DIR"] = os.fsdecode(located.stdout).strip()
        if not shutil.which("nvidia-smi"):
            os.environ["NVCC"] = "no-nvcc-without-a-gpu"
        # What readers have built by then: the `make` that they typed was stopped after a second.
        subprocess.run(["make", "-s", "stages/00_serial", "stages/01_vectorized"], cwd=folder,
                       check=True)
        found = sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*.md")
                       if ".github" not in path.parts)  # forms to fill in
        return run_all(sys.argv[1:] or found, folder)


if __name__ == "__main__":
    sys.exit(main())
