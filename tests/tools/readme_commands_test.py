#!/usr/bin/env python3
"""Runs every block of README.md that is marked as sh, in order, as a reader would.

usage: readme_commands_test.py BIN_DIR   (the folder with `laya`)
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BIN_DIR = pathlib.Path(sys.argv.pop(1)).resolve()
README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


class ReadmeCommands(unittest.TestCase):
    def test_every_command_works(self):
        blocks = re.findall(r"^```sh\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
        self.assertGreater(len(blocks), 4)
        with tempfile.TemporaryDirectory(prefix="laya-test-") as home:
            env = {key: value for key, value in os.environ.items()
                   if not key.startswith(("LAYA_", "XDG_"))}
            env.update(HOME=home, PATH=f"{BIN_DIR}:{env['PATH']}")

            def run(script):
                return subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=home, env=env,
                                      capture_output=True, text=True, timeout=300)
            found = {each["what"]: each["ok"] for each in json.loads(run("laya doctor --json").stdout)}
            for block in blocks:
                if "sm_" in block and not found["nvrtc"]:
                    continue
                with self.subTest(block=block):
                    done = run(block)
                    self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
