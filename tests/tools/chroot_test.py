#!/usr/bin/env python3
"""A container in the small: a chroot with the command, the libraries it is linked with, a
checkpoint and a bundle. No compiler of any kind is inside, and the user is new; the model must
answer with nothing compiled.

usage: chroot_test.py BIN_DIR   (the folder with `laya`); exits 77 where it cannot run
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BIN_DIR = pathlib.Path(sys.argv.pop(1)).resolve()
ROW = {"ids": [2, 11, 12, 1, 4, 21, 4, 22, 23, 1, 31, 32, 1], "markers": [4, 6], "qtype": 2}
USER = 54321


def laya(*args, **options):
    env = {key: value for key, value in os.environ.items() if not key.startswith("LAYA_")}
    env.update(options.pop("env", {}))
    done = subprocess.run([BIN_DIR / "laya", *map(str, args)], env=env, capture_output=True,
                          text=True, timeout=300, **options)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


def libraries_of(program):
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(/\S+) \(0x", listed)


def copy_with_libraries(program, root):
    """Copies `program` to root/bin, and what the dynamic linker would load to where it is here."""
    (root / "bin").mkdir()
    shutil.copy(program, root / "bin")
    for library in libraries_of(program):
        target = root / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(library), target)


class Chroot(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="laya-test-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.root = self.dir / "root"
        (self.root / "home" / "someone").mkdir(parents=True)
        os.chown(self.root / "home" / "someone", USER, USER)
        os.chmod(self.dir, 0o755)
        copy_with_libraries(BIN_DIR / "laya", self.root)
        self.here = {"LAYA_CACHE_DIR": str(self.dir / "cache")}
        laya("init-model", "--preset", "tiny", "--seed", "7", self.root / "model")

    def inside(self, *args, stdin="", **environment):
        env = {"HOME": "/home/someone", "LAYA_CACHE_LAYERS": "/opt/laya/kernels.laya"}
        env.update(environment)

        def enter():
            os.chroot(self.root)
            os.chdir("/")
            os.setgroups([])
            os.setgid(USER)
            os.setuid(USER)

        done = subprocess.run(["/bin/laya", *args], input=stdin, env=env, preexec_fn=enter,
                              capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def make_bundle(self, *targets):
        for target in targets:
            laya("warm", "--model", self.root / "model", "--target", target, env=self.here)
        (self.root / "opt" / "laya").mkdir(parents=True)
        laya("cache", "export", self.root / "opt" / "laya" / "kernels.laya", env=self.here)

    def test_a_new_user_answers_from_a_bundle_and_compiles_nothing(self):
        self.make_bundle("cpu")
        done = self.inside("predict", "--model", "/model", "--device", "cpu", "--stats",
                           stdin=json.dumps(ROW) + "\n")
        answer, stats = map(json.loads, done.stdout.splitlines())
        self.assertEqual(stats["stats"]["compiled"], 0)
        self.assertGreater(stats["stats"]["disk_hits"], 0)
        outside = laya("predict", "--model", self.root / "model", "--device", "cpu",
                       input=json.dumps(ROW) + "\n", env=self.here)
        self.assertEqual(answer, json.loads(outside))
        self.assertEqual(done.stderr, "")

    def test_kernels_for_a_gpu_come_from_the_bundle_too(self):
        found = {each["what"]: each["ok"] for each in json.loads(laya("doctor", "--json"))}
        if not found["nvrtc"]:
            self.skipTest("no NVRTC to make the bundle with")
        self.make_bundle("sm_90a")
        warmed = json.loads(self.inside("warm", "--model", "/model", "--target", "sm_90a",
                                        "--json").stdout)
        self.assertEqual((warmed["compiled"], warmed["failed"]), (0, 0))
        self.assertEqual({kernel["source"] for kernel in warmed["kernels"]}, {"layer"})


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("[SKIP] only root may chroot")
        sys.exit(77)
    if any(re.search("lib[at]san", library) for library in libraries_of(BIN_DIR / "laya")):
        print("[SKIP] sanitizers need /proc, which the chroot has not")
        sys.exit(77)
    unittest.main()
