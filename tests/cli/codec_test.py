"""ranvier codec on real files."""

import json
import os
import random
import struct

from program import ProgramTest, main, run, temporary_folder


def floats(count: int) -> bytes:
    random.seed(3)
    return struct.pack(f"<{count}f", *(random.gauss(0, 0.01) for _ in range(count)))


def npy(content: bytes, kind: str, count: int) -> bytes:
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({count},), }}"
    header = header.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content


class Codec(ProgramTest):
    def test_list_explains_every_stage(self):
        result = run("codec", "list")
        self.assertEqual(result.returncode, 0, result.stderr)
        for words in ("sparsify", "hadamard", "rounding=nearest|stochastic", "Alistarh", "powersgd", "ef=0"):
            self.assertIn(words, result.stdout)
        listed = json.loads(run("codec", "list", "--json", "-").stdout)
        self.assertEqual([preset["name"] for preset in listed["presets"]], ["safe", "strong", "extreme"])
        stages = listed["stages"]
        self.assertIn("rans", {stage["name"] for stage in stages})
        self.assertTrue(all(stage["rule"] and stage["bias"] for stage in stages))

    def test_rows_hold_bits_error_and_speed(self):
        with temporary_folder() as folder:
            file = folder / "gradients.f32"
            file.write_bytes(floats(20_000))
            result = run("codec", str(file), "--spec", "bf16", "--spec", "hadamard:32+int4+rans", "--json", "-")
            self.assertEqual(result.returncode, 0, result.stderr)
            bf16, int4 = json.loads(result.stdout)["rows"]
            self.assertEqual((bf16["spec"], bf16["bits_per_value"]), ("bf16", 16))
            self.assertLess(bf16["relative_error"], 2**-8)
            self.assertLess(int4["bits_per_value"], 4.25)
            self.assertAlmostEqual(int4["relative_error"], 0.11, delta=0.02)
            self.assertGreater(int4["cosine"], 0.99)
            self.assertEqual([stage["spec"] for stage in int4["stages"]][1], "hadamard:32+int4")
            for row in (bf16, int4):
                self.assertGreater(row["encode_gbps"], 0)
                self.assertGreater(row["decode_gbps"], 0)
            table = run("codec", str(file), "--spec", "hadamard:32+int4+rans").stdout
            self.assertIn("20000 floats", table)
            self.assertIn("up to rans", table)
            preset = run("codec", str(file), "--spec", "strong")
            self.assertEqual(preset.returncode, 0, preset.stderr)
            self.assertRegex(preset.stdout, r"up to dgc:0.02,\S+ .*alone", "the stages that a preset stands for")
            self.assertIn("up to int4", preset.stdout)

    def test_compare_tries_all_that_is_recommended(self):
        with temporary_folder() as folder:
            file = folder / "gradients.f32"
            file.write_bytes(floats(5000))
            result = run("codec", str(file), "--compare", "--json", str(folder / "rows.json"))
            self.assertEqual(result.returncode, 0, result.stderr)
            rows = json.loads((folder / "rows.json").read_text())["rows"]
            self.assertGreater(len(rows), 8)
            self.assertEqual(rows[0]["spec"], "lossless")
            self.assertEqual(rows[0]["relative_error"], 0)

    def test_numpy_files_of_three_sizes_are_read(self):
        with temporary_folder() as folder:
            for kind, form in (("<f2", "e"), ("<f4", "f"), ("<f8", "d")):
                file = folder / "values.npy"
                file.write_bytes(npy(struct.pack(f"<3{form}", 1, -2, 0.5), kind, 3))
                result = run("codec", str(file), "--spec", "fp32", "--json", "-")
                self.assertEqual(json.loads(result.stdout)["values"], 3, result.stderr)
                self.assertEqual(json.loads(result.stdout)["rows"][0]["relative_error"], 0)

    def test_wrong_words_and_files_get_a_sentence(self):
        with temporary_folder() as folder:
            good, odd, integers, broken, bad = (folder / name for name in ("good", "odd", "integers", "broken", "bad"))
            pipe = folder / "pipe"
            os.mkfifo(pipe)  # nobody writes to it
            good.write_bytes(floats(10))
            odd.write_bytes(b"12345")
            integers.write_bytes(npy(bytes(16), "<i4", 4))
            broken.write_bytes(b"\x93NUMPY\x01\x00\xff\xff")
            bad.write_bytes(struct.pack("<2f", 1, float("nan")))
            for words, code, sentence in (
                ((str(good), "--spec", "int9"), 2, "did you mean 'int8'"),
                ((str(good), "--spec", "rans+int8"), 2, "write 'int8' before it"),
                ((str(good),), 2, "--compare"),
                ((), 2, "FILE"),
                ((str(odd), "--spec", "int8"), 1, "not a whole number of floats"),
                ((str(integers), "--spec", "int8"), 1, "astype"),
                ((str(broken), "--spec", "int8"), 1, "damaged"),
                ((str(bad), "--spec", "int8"), 1, "'lossless' codes those too"),
                ((str(folder / "none"), "--spec", "int8"), 1, "cannot be read"),
                ((str(folder), "--spec", "int8"), 1, "it is a folder"),
                ((str(pipe), "--spec", "int8"), 1, "no regular file"),
            ):
                with self.subTest(words=words):
                    result = run("codec", *words, limit=10)
                    self.assertEqual(result.returncode, code, result.stderr)
                    self.assertIn(sentence, result.stderr)
            self.assertEqual(run("codec", str(bad), "--spec", "lossless").returncode, 0)


if __name__ == "__main__":
    main()
