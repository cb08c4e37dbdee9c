#!/usr/bin/env python3
"""Tiles are chosen by what they lose over all row counts, and by the code that more of them need."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHOOSE = pathlib.Path(__file__).resolve().parents[2] / "tools" / "choose_tiles"
ROWS = (64, 128, 256, 512, 1024, 2048, 4096, 32768)


def figure(name, rows, n, k, tile, us):
    parts = 2 if "geglu" in name else 1
    return {"name": name, "shape": f"{rows} x {n} x {k} tile {tile}",
            "value": 2e-6 * rows * n * parts * k / us, "unit": "TFLOP/s"}


class ChooseTiles(unittest.TestCase):
    def choose(self, *files):
        """The lines printed for files of figures, and what was written to stderr."""
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for i, figures in enumerate(files):
                paths.append(pathlib.Path(folder) / f"{i}.json")
                paths[-1].write_text(json.dumps(figures))
            done = subprocess.run([sys.executable, CHOOSE, *paths], capture_output=True, text=True)
            return [line.strip() for line in done.stdout.splitlines()], done.stderr

    def sweep(self, times, name="gemm_rope", n=2304, k=768):
        """Figures of each tile at each row count: times(tile, rows) in microseconds."""
        tiles = ("64,64,1,1,12", "128,64,2,2,7", "128,160,1,2,6,shared")
        return [figure(name if tile == tiles[0] else name + "/other", rows, n, k, tile,
                       times(tile, rows)) for tile in tiles for rows in ROWS]

    def test_each_range_of_row_counts_gets_its_fastest_tile(self):
        lines, _ = self.choose(self.sweep(
            lambda tile, rows: 2 if tile.startswith("64") == (rows <= 256) else 9))
        self.assertEqual(lines, ['{"gemm_rope", 2304, 768, 256, {64, 64, 1, 1, false, 1}},',
                                 '{"gemm_rope", 2304, 768, kAnyRows, {128, 160, 1, 2, true, 1}},'])

    def test_a_kernel_that_gains_little_is_not_worth_its_code(self):
        lines, _ = self.choose(self.sweep(
            lambda tile, rows: 2 if tile.startswith("64") == (rows <= 64) else 2.01))
        self.assertEqual(len(lines), 1)
        self.assertIn("kAnyRows", lines[0])

    def test_columns_of_geglu_count_both_parts_and_of_a_cluster_all_blocks(self):
        geglu, _ = self.choose(self.sweep(lambda tile, rows: 2 if ",2,2" in tile else 9,
                                          name="gemm_geglu"))
        self.assertEqual(geglu, ['{"gemm_geglu", 2304, 768, kAnyRows, {128, 128, 2, 2, false, 1}},'])
        plain, _ = self.choose(self.sweep(lambda tile, rows: 2 if ",2,2" in tile else 9,
                                          name="gemm+bias"))
        self.assertEqual(plain, ['{"gemm", 2304, 768, kAnyRows, {128, 128, 2, 2, false, 1}},'])

    def test_a_ring_for_x_is_part_of_a_tile(self):
        figures = [figure("gemm_residual" + ("/other" if ring else ""), rows, 768, 768,
                          "64,192,1,2,5" + ring, 2 if bool(ring) == (rows > 4096) else 9)
                   for ring in ("", ",x_ring") for rows in ROWS]
        lines, _ = self.choose(figures)
        self.assertEqual(lines, [
            '{"gemm_residual", 768, 768, 4096, {64, 192, 1, 2, false, 1}},',
            '{"gemm_residual", 768, 768, kAnyRows, {64, 192, 1, 2, false, 1, true}},'])

    def test_times_of_several_files_are_averaged_and_what_one_lacks_is_not_zero(self):
        fast_once = self.sweep(lambda tile, rows: 3 if tile.startswith("64") else 4)
        slow = self.sweep(lambda tile, rows: 6 if tile.startswith("64") else 4)
        lines, _ = self.choose(fast_once, slow)
        self.assertNotIn("{64,", lines[-1])
        others = [f for f in slow if "tile 64" in f["shape"] or "160" in f["shape"]]
        lines, _ = self.choose(self.sweep(lambda tile, rows: 5 if ",2,2" in tile else 4), others)
        self.assertNotIn("{128, 128,", lines[-1])

    def test_a_product_without_a_whole_row_of_measurements_is_an_error(self):
        lines, error = self.choose([figure("gemm_rope", 64, 2304, 768, "64,64,1,1,12", 3)])
        self.assertEqual(lines, [])
        self.assertIn("no tile was measured at all of", error)


if __name__ == "__main__":
    unittest.main()
