#!/usr/bin/env python3
"""The layer check finds what it is there to find, and nothing in comments and strings."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_layers"


class CheckLayers(unittest.TestCase):
    def check(self, path, text):
        """Exit status and report for a tree with this one file."""
        with tempfile.TemporaryDirectory() as root:
            file = pathlib.Path(root) / path
            file.parent.mkdir(parents=True)
            file.write_text(text)
            done = subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True)
            return done.returncode, done.stdout

    def refused(self, path, line):
        status, report = self.check(path, f"// one\n{line}\n")
        self.assertEqual(status, 1, line)
        self.assertTrue(report.startswith(f"{path}:2: "), report)

    def allowed(self, path, text):
        self.assertEqual(self.check(path, text), (0, ""))

    def test_upward_includes_are_refused_and_downward_skips_are_not(self):
        self.refused("cache/store.cpp", '#include "jit/engine.h"')
        self.refused("jit/engine.cpp", '#include "model/plan.h"')
        self.refused("model/model.cpp", '#include "tools/table.h"')
        self.refused("tools/main.cpp", '#include "tests/temp_dir.h"')
        self.refused("jit/engine.cpp", '  #  include "templates/cpu/types.h"')
        self.refused("jit/engine.cpp", '#include "kernel.h"')
        self.allowed("model/model.cpp", '#include "cache/result.h"\n#include <vector>\n')

    def test_c_headers_stay_out_of_headers(self):
        self.refused("cache/store.h", "#include <sqlite3.h>")
        self.refused("jit/device.h", "#include <cuda.h>")
        self.refused("jit/llvm.h", '#include "clang/Basic/Version.h"')
        self.allowed("cache/store.cpp", "#include <sqlite3.h>\n")

    def test_the_environment_is_read_in_one_file(self):
        self.refused("model/model.cpp", 'auto x = std::getenv("X");')
        self.refused("tools/main.cpp", 'auto x = secure_getenv("X");')
        self.allowed("jit/options.cpp", 'auto x = std::getenv("X");\n')
        self.allowed("tests/cache/x_test.cpp", 'auto x = getenv("X");\n')

    def test_libraries_neither_print_nor_end_the_process(self):
        for line in ('std::printf("x");', "std::cout << 1;", "std::fputs(text, file);",
                     "perror(text);", "write(stderr);", "std::abort();", "exit(1);"):
            self.refused("jit/engine.cpp", line)
        self.allowed("tools/main.cpp", 'std::printf("x");\n')
        self.allowed("cache/store.cpp", 'std::snprintf(text, 9, "%d", n); pool.exit(1);\n')

    def test_comments_and_strings_are_no_code(self):
        self.allowed("cache/store.cpp", '// getenv, printf("x")\n/* abort();\n std::cout */\n'
                     'auto a = "getenv \\" printf(1)";\nauto b = R"x(std::cerr\n)x";\n'
                     '// #include "jit/engine.h"\n')

    def test_an_empty_tree_is_an_error(self):
        with tempfile.TemporaryDirectory() as root:
            self.assertEqual(subprocess.run([sys.executable, CHECK, root],
                                            capture_output=True).returncode, 1)


if __name__ == "__main__":
    unittest.main()
