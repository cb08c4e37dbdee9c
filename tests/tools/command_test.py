#!/usr/bin/env python3
"""Drives the real `laya` command in fresh processes: every subcommand, cold, warm and disabled
caches with their counters, and wrong input of every kind.

usage: command_test.py BIN_DIR   (the folder with `laya`)
"""
import json
import math
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

BIN_DIR = pathlib.Path(sys.argv.pop(1)).resolve()
ROWS = [
    {"ids": [2, 11, 12, 1, 4, 21, 4, 22, 23, 1, 31, 32, 1], "markers": [4, 6], "qtype": 2},
    {"ids": [2, 13, 1, 4, 24, 4, 25, 4, 26, 1, 33, 1], "markers": [3, 5, 7], "qtype": 0},
    {"ids": [2, 14, 1, 4, 27, 1] + list(range(40, 240)) + [1], "markers": [3], "qtype": 1},
]


def lines_of(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def copy_cache(source, target):
    """`target`, a cache of its own with what `source` holds."""
    return pathlib.Path(shutil.copytree(source, target))


def change_first(cache, statement):
    """Runs `statement` on the cache's first artifact, behind the store's back."""
    database = sqlite3.connect(next(cache.glob("*.sqlite")))
    with database:
        database.execute(f"{statement} WHERE id = (SELECT min(id) FROM artifacts)")
    database.close()


def setUpModule():
    """A tiny model and a cache with its kernels, for all tests; compiling is what takes time."""
    LayaTest.shared = pathlib.Path(tempfile.mkdtemp(prefix="laya-test-"))
    unittest.addModuleCleanup(shutil.rmtree, LayaTest.shared, ignore_errors=True)
    LayaTest.model = LayaTest.shared / "model"
    LayaTest.warm_cache = LayaTest.shared / "warm"
    made = LayaTest.laya("init-model", "--preset", "tiny", "--seed", "7", LayaTest.model)
    warmed = LayaTest.laya("warm", "--model", LayaTest.model, "--json", cache=LayaTest.warm_cache)
    if made.returncode != 0 or warmed.returncode != 0:
        raise AssertionError(made.stderr + warmed.stderr)
    LayaTest.warmed = json.loads(warmed.stdout)


class LayaTest(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="laya-test-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    @staticmethod
    def environment_of(cache, **environment):
        """The caller's environment without its options of ours."""
        env = {key: value for key, value in os.environ.items() if not key.startswith("LAYA_")}
        return dict(env, LAYA_CACHE_DIR=str(cache), **environment)

    @classmethod
    def laya(cls, *args, cache=None, stdin="", **environment):
        env = cls.environment_of(cache or cls.shared / "unused", **environment)
        return subprocess.run([BIN_DIR / "laya", *map(str, args)], input=stdin, env=env,
                              capture_output=True, text=True, timeout=300)

    def ok(self, *args, **kwargs):
        done = self.laya(*args, **kwargs)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refused(self, status, *args, **kwargs):
        """stderr of a process that must fail with `status`, and print nothing on stdout."""
        done = self.laya(*args, **kwargs)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def predict(self, *args, rows=ROWS, **kwargs):
        """The answers and the statistics."""
        out = self.ok("predict", "--model", self.model, "--device", "cpu", "--stats", *args,
                      stdin=lines_of(rows), **kwargs)
        lines = [json.loads(line) for line in out.splitlines()]
        return lines[:-1], lines[-1]["stats"]

    def has_nvrtc(self):
        found = {each["what"]: each["ok"] for each in json.loads(self.ok("doctor", "--json"))}
        return found["nvrtc"]


class Usage(LayaTest):
    def test_wrong_usage_exits_2(self):
        for args in ([], ["fly"], ["warm", "--fly"], ["predict"], ["init-model", "x"], ["cache"],
                     ["cache", "show"], ["cache", "show", "xyz"], ["bench"], ["cache", "fly"],
                     ["warm"], ["warm", "--preset", "huge"], ["warm", "--model", "/nonexistent"],
                     ["warm", "--preset", "tiny", "--target", "sm_1x"],
                     ["warm", "--preset", "tiny", "--jobs", "0"],
                     ["warm", "--preset", "tiny", "--target", "cpu", "--dtype", "fp16"],
                     ["warm", "--preset", "tiny", "--dtype", "fp8"],
                     ["predict", "--model", self.model, "--device", "tpu"],
                     ["predict", "--model", self.model, "--device", "cuda:x"],
                     ["predict", "--model", self.model, "--input", "/nonexistent"],
                     ["predict", "--model", self.model, "--batch-size", "0"],
                     ["bench", "model", "--preset", "tiny", "--shapes", "4by4"],
                     ["bench", "model", "--preset", "tiny", "--reference", "/nonexistent"],
                     ["bench", "kernels", "--shape", "16x64"],
                     ["bench", "kernels", "--shape", "16x64x63"],
                     ["bench", "kernels", "--kernel", "conv"],
                     ["bench", "kernels", "--dtype", "fp16"],
                     ["bench", "kernels", "--rows", "64"],
                     ["bench", "kernels", "--kernel", "attention"],
                     ["bench", "kernels", "--device", "cuda", "--shape", "16x64x64"],
                     ["bench", "kernels", "--device", "cuda", "--kernel", "gemm_gelu"],
                     ["bench", "kernels", "--device", "tpu"]):
            with self.subTest(args=args):
                self.assertNotEqual(self.refused(2, *args), "")

    def test_help_and_version_exit_0(self):
        self.assertIn("warm", self.ok("--help"))
        self.assertRegex(self.ok("--version"), r"^laya \d+\.\d+\.\d+\n$")

    def test_a_wrong_variable_is_named(self):
        self.assertIn("LAYA_JIT='maybe'", self.refused(2, "doctor", LAYA_JIT="maybe"))

    def test_output_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([BIN_DIR / "laya", "doctor"], stdout=full, stderr=subprocess.PIPE,
                                  env={**os.environ, "LAYA_CACHE_DIR": str(self.dir)}, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("could not be written", done.stderr)


class InitModel(LayaTest):
    def test_the_same_seed_gives_the_same_bytes(self):
        def weights(seed, name):
            self.ok("init-model", "--preset", "tiny", "--seed", seed, self.dir / name)
            return (self.dir / name / "model.safetensors").read_bytes()
        self.assertEqual(weights(7, "a"), (self.model / "model.safetensors").read_bytes())
        self.assertNotEqual(weights(8, "b"), weights(7, "c"))

    def test_a_place_that_cannot_be_written_is_named(self):
        self.assertIn("/proc/x", self.refused(2, "init-model", "--preset", "tiny", "/proc/x"))


class Warm(LayaTest):
    def test_a_cold_cache_compiles_everything_and_a_warm_one_nothing(self):
        cold = self.warmed
        self.assertGreater(cold["specs"], 0)
        self.assertEqual((cold["compiled"], cold["disk_hits"], cold["failed"]),
                         (cold["specs"], 0, 0))
        warm = json.loads(self.ok("warm", "--model", self.model, "--json", cache=self.warm_cache))
        self.assertEqual((warm["compiled"], warm["disk_hits"], warm["failed"]),
                         (0, cold["specs"], 0))
        self.assertEqual({kernel["source"] for kernel in warm["kernels"]}, {"user"})
        for kernel in cold["kernels"]:
            self.assertEqual(kernel["source"], "compiled")
            self.assertGreater(kernel["bytes"], 0)
            self.assertLessEqual({"template", "target", "seconds", "registers", "spill_bytes"},
                                 kernel.keys())

    def test_a_cache_that_keeps_nothing_is_refused(self):
        self.assertIn("/proc/laya", self.refused(1, "warm", "--preset", "tiny", cache="/proc/laya"))

    def test_a_cache_too_small_for_the_kernels_is_a_gap(self):
        done = self.laya("warm", "--model", self.model, cache=self.dir, LAYA_CACHE_MAX_BYTES="20KiB")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("the cache has a gap", done.stderr)

    def test_a_gpu_target_needs_no_gpu(self):
        if not self.has_nvrtc():
            self.skipTest("no NVRTC")
        args = ("warm", "--preset", "tiny", "--target", "sm_90a", "--dtype", "bf16", "--json")
        cold = json.loads(self.ok(*args, cache=self.dir))
        self.assertEqual(cold["compiled"], cold["specs"])
        self.assertEqual({kernel["target"] for kernel in cold["kernels"]}, {"sm_90a"})
        self.assertTrue(all(kernel["registers"] > 0 for kernel in cold["kernels"]))
        warm = json.loads(self.ok(*args, cache=self.dir))
        self.assertEqual((warm["compiled"], warm["disk_hits"]), (0, cold["specs"]))

    def test_a_missing_dtype_of_the_cpu_is_noted_and_left_out(self):
        done = self.laya("warm", "--preset", "tiny", "--dtype", "fp32,fp16", "--json",
                         cache=self.warm_cache)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["specs"], self.warmed["specs"])
        self.assertIn("left out", done.stderr)

    def test_two_at_once_both_succeed(self):
        command = [BIN_DIR / "laya", "warm", "--preset", "tiny"]
        env = {**os.environ, "LAYA_CACHE_DIR": str(self.dir)}
        both = [subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True) for _ in range(2)]
        for process in both:
            _, errors = process.communicate(timeout=300)
            self.assertEqual(process.returncode, 0, errors)


class Predict(LayaTest):
    def test_an_answer_has_a_figure_for_each_option_and_action(self):
        answers, _ = self.predict(cache=self.warm_cache)
        self.assertEqual(len(answers), len(ROWS))
        for row, answer in zip(ROWS, answers):
            self.assertEqual(len(answer["logits"]), len(row["markers"]))
            self.assertEqual(len(answer["action_logits"]), 2)
            top = max(answer["logits"])
            weights = [math.exp(logit - top) for logit in answer["logits"]]
            for weight, probability in zip(weights, answer["probabilities"]):
                self.assertAlmostEqual(weight / sum(weights), probability, places=5)

    def test_answers_do_not_depend_on_the_batch(self):
        together, _ = self.predict(cache=self.warm_cache)
        alone, _ = self.predict("--batch-size", 1, cache=self.warm_cache)
        reversed_order, _ = self.predict(rows=ROWS[::-1], cache=self.warm_cache)
        self.assertEqual(together, alone)
        self.assertEqual(together, reversed_order[::-1])

    def test_a_file_and_standard_input_give_the_same(self):
        file = self.dir / "rows.jsonl"
        file.write_text(lines_of(ROWS))
        from_file = self.ok("predict", "--model", self.model, "--device", "cpu", "--input", file,
                            cache=self.warm_cache)
        from_stdin = self.ok("predict", "--model", self.model, "--device", "cpu",
                             stdin=lines_of(ROWS), cache=self.warm_cache)
        self.assertEqual(from_file, from_stdin)
        self.assertEqual(from_file.count("\n"), len(ROWS))

    def test_a_cold_process_compiles_and_the_next_one_does_not(self):
        cold_answers, cold = self.predict(cache=self.dir)
        self.assertGreater(cold["compiled"], 0)
        self.assertEqual(cold["disk_hits"], 0)
        warm_answers, warm = self.predict(cache=self.dir)
        self.assertEqual((warm["compiled"], warm["disk_hits"]), (0, cold["compiled"]))
        self.assertEqual(cold_answers, warm_answers)
        self.assertGreaterEqual(warm["first_answer_s"], warm["kernels_ready_s"])

    def test_warm_leaves_nothing_to_compile(self):
        _, stats = self.predict(cache=self.warm_cache, LAYA_JIT="never")
        self.assertEqual((stats["compiled"], stats["disk_hits"]), (0, self.warmed["specs"]))

    def test_without_a_compiler_and_a_cache_the_missing_kernel_is_named(self):
        error = self.refused(1, "predict", "--model", self.model, "--device", "cpu",
                             stdin=lines_of(ROWS), cache=self.dir, LAYA_JIT="never")
        self.assertTrue(any(kernel["spec"] in error for kernel in self.warmed["kernels"]), error)

    def test_a_cache_that_cannot_be_used_costs_time_and_nothing_else(self):
        answers, stats = self.predict(cache="/proc/laya")
        self.assertEqual(stats["compiled"], self.warmed["specs"])
        self.assertEqual(answers, self.predict(cache=self.warm_cache)[0])

    def libraries_of(self, **kwargs):
        """What the dynamic linker maps while the model answers."""
        done = self.laya("predict", "--model", self.model, "--device", "cpu",
                         stdin=lines_of(ROWS), LD_DEBUG="files", **kwargs)
        self.assertEqual(done.returncode, 0)
        return done.stderr

    def test_a_warm_process_maps_no_compiler(self):
        compilers = ("libnvrtc", "libLLVM", "libclang", "liblaya_llvm")
        warm = self.libraries_of(cache=self.warm_cache)
        self.assertEqual([name for name in compilers if name in warm], [])
        self.assertIn("libstdc++", warm)  # the trace works
        cache = copy_cache(self.warm_cache, self.dir / "cache")
        change_first(cache, "DELETE FROM artifacts")
        self.assertIn("liblaya_llvm", self.libraries_of(cache=cache))

    def test_auto_falls_back_to_the_cpu_with_a_note(self):
        found = {each["what"]: each["ok"] for each in json.loads(self.ok("doctor", "--json"))}
        if found["gpu"]:
            self.skipTest("there is a GPU")
        done = self.laya("predict", "--model", self.model, stdin=lines_of(ROWS),
                         cache=self.warm_cache)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("using the CPU", done.stderr)
        self.refused(1, "predict", "--model", self.model, "--device", "cuda:0",
                     stdin=lines_of(ROWS), cache=self.warm_cache)

    def test_a_wrong_line_is_named_and_nothing_is_answered(self):
        good = json.dumps(ROWS[0])
        for bad in ("nonsense", "{", "[]", "{}", '{"ids":[],"markers":[0],"qtype":0}',
                    '{"ids":[2,7],"markers":[2],"qtype":0}', '{"ids":[2,7],"markers":[],"qtype":0}',
                    '{"ids":[2,7],"markers":[1],"qtype":3}', '{"ids":[2,-7],"markers":[1],"qtype":0}',
                    '{"ids":[2,99999999],"markers":[1],"qtype":0}',
                    '{"ids":[2,7],"markers":[1,0],"qtype":0}', "[" * 5000, "\0", "\ufffe"):
            with self.subTest(line=bad[:60]):
                error = self.refused(2, "predict", "--model", self.model, "--device", "cpu",
                                     stdin=f"{good}\n{bad}\n{good}\n", cache=self.dir / "untouched")
                self.assertIn("standard input:2: ", error)
                self.assertEqual(len(error.splitlines()), 1, error)
        self.assertFalse((self.dir / "untouched").exists())

    def test_no_rows_give_no_answers(self):
        answers, _ = self.predict(rows=[], cache=self.warm_cache)
        self.assertEqual(answers, [])

    def test_a_damaged_checkpoint_is_refused(self):
        broken = self.dir / "model"
        shutil.copytree(self.model, broken)
        weights = broken / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1])
        error = self.refused(2, "predict", "--model", broken, "--device", "cpu",
                             stdin=lines_of(ROWS), cache=self.warm_cache)
        self.assertIn("model.safetensors", error)


class Cache(LayaTest):
    def setUp(self):
        super().setUp()
        self.cache = copy_cache(self.warm_cache, self.dir / "cache")
        self.entries = json.loads(self.ok("cache", "list", "--json", cache=self.cache))

    def test_stats_and_list_agree(self):
        stats = json.loads(self.ok("cache", "stats", "--json", cache=self.cache))
        self.assertEqual(stats["dir"], str(self.cache))
        self.assertEqual(stats["entries"], self.warmed["specs"])
        self.assertEqual(len(self.entries), stats["entries"])
        # Beside the records there are the sources that they share.
        self.assertGreater(stats["bytes"], sum(entry["stored_bytes"] for entry in self.entries))
        self.assertLessEqual({"max_bytes", "hits", "misses", "damaged", "layers"}, stats.keys())
        table = self.ok("cache", "list", cache=self.cache)
        for kernel in self.warmed["kernels"]:
            self.assertIn(kernel["spec"].split(":+")[0], table)
        self.assertIn(str(self.cache), self.ok("cache", "stats", cache=self.cache))

    def test_hits_are_counted_over_processes(self):
        before = json.loads(self.ok("cache", "stats", "--json", cache=self.cache))["hits"]
        self.predict(cache=self.cache)
        after = json.loads(self.ok("cache", "stats", "--json", cache=self.cache))["hits"]
        self.assertEqual(after - before, self.warmed["specs"])

    def test_list_filters_and_sorts(self):
        def kernels(*args):
            listed = json.loads(self.ok("cache", "list", "--json", *args, cache=self.cache))
            return [entry["metadata"]["kernel"] for entry in listed]

        everything = [entry["metadata"]["kernel"] for entry in self.entries]
        gemms = kernels("--template", "gemm")
        self.assertTrue(gemms)
        self.assertEqual(gemms, [kernel for kernel in everything if kernel.startswith("gemm{")])
        self.assertEqual(len(kernels("--template", "gemm,rope")), len(gemms) + 1)
        self.assertEqual(kernels("--target", "cpu"), everything)
        self.assertEqual(kernels("--target", "sm_80"), [])
        self.assertEqual(kernels("--compiler", self.entries[0]["producer"][:6]), everything)
        self.assertEqual(kernels("--compiler", "nobody"), [])
        self.assertEqual(kernels("--model", self.model, "--target", "cpu"), everything)
        self.assertEqual(kernels("--sort", "kernel"), sorted(everything))
        self.assertEqual(len(kernels("--limit", 3)), 3)
        sizes = [entry["stored_bytes"] for entry in json.loads(
            self.ok("cache", "list", "--json", "--sort", "size", cache=self.cache))]
        self.assertEqual(sizes, sorted(sizes, reverse=True))
        self.refused(2, "cache", "list", "--target", "sm_1", cache=self.cache)
        self.refused(2, "cache", "list", "--model", self.model, cache=self.cache)

    def test_explain_says_where_a_kernel_is_or_what_differs(self):
        spec = next(entry["metadata"]["kernel"] for entry in self.entries
                    if entry["metadata"]["template"] == "rope")
        self.assertIn("has this kernel", self.ok("cache", "explain", spec, cache=self.cache))
        key = json.loads(self.ok("cache", "explain", "--json", spec, cache=self.cache))["key"]
        self.assertIn(key, [entry["key"] for entry in self.entries])
        other = spec.replace("HEADS=2", "HEADS=5")
        self.assertNotEqual(other, spec)
        missing = self.ok("cache", "explain", other, cache=self.cache)
        self.assertIn("not stored", missing)
        self.assertIn("differs in", missing)
        self.refused(2, "cache", "explain", "nonsense", cache=self.cache)

    def test_prune_removes_what_is_selected_or_least_recently_used(self):
        count = len(self.entries)
        def left():
            return len(json.loads(self.ok("cache", "list", "--json", cache=self.cache)))

        self.refused(2, "cache", "prune", cache=self.cache)
        self.refused(2, "cache", "prune", "--to", "much", cache=self.cache)
        self.refused(2, "cache", "prune", "--to", "1KiB", "--template", "gemm", cache=self.cache)
        self.assertEqual(left(), count)
        removed = json.loads(self.ok("cache", "prune", "--template", "rope", "--json",
                                     cache=self.cache))["removed"]
        self.assertEqual(removed, 1)
        self.assertIn("removed 0", self.ok("cache", "prune", "--other-compilers", cache=self.cache))
        self.ok("cache", "prune", "--to", "100KiB", cache=self.cache)
        self.assertLess(0, left())
        self.assertLess(left(), count - 1)
        stats = json.loads(self.ok("cache", "stats", "--json", cache=self.cache))
        self.assertLessEqual(stats["bytes"], 100 << 10)
        _, stats = self.predict(cache=self.cache)
        self.assertGreater(stats["compiled"], 0)

    def test_a_bundle_is_a_layer_and_can_be_imported(self):
        bundle = self.dir / "a b'\u65e5?#%.laya"
        made = json.loads(self.ok("cache", "export", bundle, "--json", cache=self.cache))
        self.assertEqual(made["entries"], len(self.entries))
        self.assertEqual(len(made["targets"]), 1)
        checked = json.loads(self.ok("cache", "import", bundle, "--dry-run", "--json",
                                     cache=self.dir / "new"))
        self.assertEqual(checked["seal"], made["seal"])

        _, stats = self.predict(cache=self.dir / "empty", LAYA_CACHE_LAYERS=bundle)
        self.assertEqual((stats["compiled"], stats["disk_hits"]), (0, self.warmed["specs"]))
        layered = json.loads(self.ok("warm", "--model", self.model, "--json",
                                     cache=self.dir / "empty", LAYA_CACHE_LAYERS=bundle))
        self.assertEqual({kernel["source"] for kernel in layered["kernels"]}, {"layer"})
        entries = "cache", "list", "--json"
        self.assertEqual(json.loads(self.ok(*entries, cache=self.dir / "empty")), [])
        self.predict(cache=self.dir / "empty", LAYA_CACHE_LAYERS=bundle, LAYA_CACHE_COPY="yes")
        self.assertEqual(len(json.loads(self.ok(*entries, cache=self.dir / "empty"))),
                         len(self.entries))

        imported = json.loads(self.ok("cache", "import", bundle, "--json", cache=self.dir / "new"))
        self.assertEqual((imported["added"], imported["kept"]), (len(self.entries), 0))
        _, stats = self.predict(cache=self.dir / "new", LAYA_JIT="never")
        self.assertEqual(stats["compiled"], 0)

    def test_a_bundle_that_is_broken_or_empty_is_refused(self):
        bundle = self.dir / "bundle"
        self.refused(1, "cache", "export", bundle, "--template", "no_such", cache=self.cache)
        self.ok("cache", "export", bundle, cache=self.cache)
        whole = bundle.read_bytes()
        bundle.write_bytes(whole[:len(whole) // 2] + b"?" + whole[len(whole) // 2 + 1:])
        error = self.refused(2, "cache", "import", bundle, cache=self.dir / "new")
        self.assertIn(str(bundle), error)
        self.assertEqual(json.loads(self.ok("cache", "list", "--json", cache=self.dir / "new")), [])
        self.refused(1, "cache", "import", self.dir / "nowhere", cache=self.dir / "new")

    def test_processes_that_start_together_compile_each_kernel_once(self):
        args = [BIN_DIR / "laya", "warm", "--model", self.model, "--json", "--jobs", "2"]
        env = self.environment_of(self.dir / "shared")
        processes = [subprocess.Popen(args, env=env, stdout=subprocess.PIPE, text=True)
                     for _ in range(6)]
        outputs = [json.loads(process.communicate()[0]) for process in processes]
        self.assertEqual(sum(output["compiled"] for output in outputs), self.warmed["specs"])
        self.assertEqual([output["failed"] for output in outputs], [0] * len(outputs))

    def test_the_machine_code_of_an_entry_can_be_read(self):
        if not any(map(shutil.which, ("llvm-objdump", "llvm-objdump-19", "objdump"))):
            self.skipTest("no disassembler")
        entry = self.entries[0]
        shown = json.loads(self.ok("cache", "show", entry["key"], "--json", "--disassemble",
                                   cache=self.cache))
        self.assertRegex(shown[0]["disassembly"], r"\bret")

    def test_show_gives_the_key_fields_and_the_compiled_source(self):
        entry = self.entries[0]
        shown = json.loads(self.ok("cache", "show", entry["key"][:8], "--json", cache=self.cache))
        fields = {field["tag"]: field["value"] for field in shown[0]["fields"]}
        self.assertEqual(fields["target"], entry["metadata"]["target"])
        self.assertIn("laya_launch", fields["source"])
        self.assertIn(fields["source"], self.ok("cache", "show", entry["key"], cache=self.cache))
        self.refused(1, "cache", "show", "0" * 32, cache=self.cache)

    def damage_one(self):
        change_first(self.cache, "UPDATE artifacts SET artifact = zeroblob(length(artifact))")

    def test_damage_is_found_and_removed(self):
        self.assertIn("0 of", self.ok("cache", "verify", cache=self.cache))
        self.damage_one()
        done = self.laya("cache", "verify", "--json", cache=self.cache)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(json.loads(done.stdout)["damaged"]), 1)
        self.ok("cache", "verify", "--repair", cache=self.cache)
        self.assertIn("0 of", self.ok("cache", "verify", cache=self.cache))

    def test_a_damaged_entry_is_compiled_again(self):
        self.damage_one()
        _, stats = self.predict(cache=self.cache)
        self.assertEqual(stats["compiled"], 1)
        self.assertEqual(stats["disk_hits"], self.warmed["specs"] - 1)

    def test_clear_leaves_nothing(self):
        self.assertIn(f"removed {self.warmed['specs']} ", self.ok("cache", "clear", cache=self.cache))
        self.assertEqual(json.loads(self.ok("cache", "list", "--json", cache=self.cache)), [])

    def test_a_directory_that_cannot_be_used_is_an_error_here(self):
        self.assertIn("/proc/laya", self.refused(1, "cache", "stats", cache="/proc/laya"))


class Doctor(LayaTest):
    def test_everything_is_reported_and_every_lack_has_advice(self):
        findings = json.loads(self.ok("doctor", "--json", cache=self.warm_cache))
        self.assertEqual([each["what"] for each in findings],
                         ["gpu", "nvrtc", "llvm", "cpu", "cache", "jit"])
        for each in findings:
            self.assertEqual(each["ok"], each["advice"] == "", each)
            self.assertNotEqual(each["found"], "")
        text = self.ok("doctor", cache=self.warm_cache)
        self.assertIn(f"{self.warmed['specs']} entries", text)

    def test_an_unusable_cache_is_reported_with_its_reason(self):
        self.assertIn("/proc/laya", self.ok("doctor", cache="/proc/laya"))


class Bench(LayaTest):
    FIELDS = {"name", "shape", "value", "unit", "reference", "ratio", "p50", "p95"}

    def test_jit_measures_every_kernel_cold_from_disk_and_from_memory(self):
        figures = json.loads(self.ok("bench", "jit", "--preset", "tiny", "--repeat", 1, "--json",
                                     cache=self.dir))
        self.assertTrue(all(set(figure) == self.FIELDS for figure in figures))
        for name in ("cold", "disk", "memory"):
            kernels = [figure["shape"] for figure in figures if figure["name"] == name]
            self.assertEqual(sorted(kernels), sorted(k["spec"] for k in self.warmed["kernels"]))
        self.assertEqual(list(self.dir.iterdir()), [])  # the user's cache is left alone

    def test_kernels_are_measured_in_every_dtype(self):
        for dtype in ("fp32", "bf16"):
            done = self.laya("bench", "kernels", "--device", "cpu", "--dtype", dtype, "--threads", 1,
                             "--shape", "3x72x64,16x64x64", "--repeat", 1, "--json",
                             cache=self.dir)
            self.assertEqual(done.returncode, 0, done.stderr)
            figures = json.loads(done.stdout)
            self.assertTrue(all(set(figure) == self.FIELDS for figure in figures))
            measured = {(figure["name"].split()[0], figure["shape"]) for figure in figures
                        if figure["unit"] == "GFLOP/s" and figure["value"] > 0}
            names = ("gemm", "gemm_gelu", "gemm_residual", "gemm_geglu")
            self.assertEqual(measured, {(name, shape) for name in names
                                        for shape in ("3x72x64", "16x64x64")})

    def test_kernels_without_a_library_have_no_reference(self):
        done = self.laya("bench", "kernels", "--onednn", "/nonexistent/libdnnl.so", "--kernel",
                         "gemm_gelu", "--shape", "16x64x64", "--repeat", 1, "--json", cache=self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no oneDNN", done.stderr)
        figures = json.loads(done.stdout)
        self.assertEqual([figure["name"] for figure in figures], ["gemm_gelu"])
        self.assertIsNone(figures[0]["reference"])

    def test_model_stands_beside_its_reference(self):
        reference = self.dir / "reference.jsonl"
        reference.write_text(lines_of([
            {"cfg": "tiny", "mode": "eager", "import_s": 1.0},
            {"cfg": "tiny", "mode": "eager", "rows": 2, "L": 64, "p50_ms": 40.0, "peak_mb": 8.0},
            {"cfg": "tiny", "mode": "fast", "rows": 2, "L": 64, "p50_ms": 20.0, "peak_mb": 9.0},
            {"cfg": "base", "mode": "fast", "rows": 2, "L": 64, "p50_ms": 1.0, "peak_mb": 1.0}]))
        figures = json.loads(self.ok(
            "bench", "model", "--preset", "tiny", "--device", "cpu", "--shapes", "2x64,1x48",
            "--repeat", 2, "--reference", reference, "--json", cache=self.warm_cache))
        self.assertTrue(all(set(figure) == self.FIELDS for figure in figures))
        by_key = {(figure["name"], figure["shape"]): figure for figure in figures}
        time = by_key["predict", "2x64"]
        self.assertEqual(time["reference"], 20.0)
        self.assertAlmostEqual(time["ratio"], time["value"] / 20.0)
        self.assertEqual(by_key["extra memory", "2x64"]["reference"], 9.0)
        self.assertIsNone(by_key["predict", "1x48"]["reference"])


if __name__ == "__main__":
    unittest.main()
