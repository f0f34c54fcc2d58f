"""ranvier codec on real files."""

import json
import os
import random
import struct
import zipfile

from program import ProgramTest, main, run, temporary_folder


def floats(count: int) -> bytes:
    random.seed(3)
    return struct.pack(f"<{count}f", *(random.gauss(0, 0.01) for _ in range(count)))


def npy(content: bytes, kind: str, count: int) -> bytes:
    return with_header(f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({count},), }}", content)


def with_header(header: str, content: bytes) -> bytes:
    header = header.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content


class Codec(ProgramTest):
    def test_list_explains_every_stage(self):
        result = run("codec", "list")
        self.assertEqual(result.returncode, 0, result.stderr)
        for words in ("sparsify", "hadamard", "rounding=nearest|stochastic", "Alistarh", "powersgd", "ef=0"):
            self.assertIn(words, result.stdout)
        listed = json.loads(run("codec", "list", "--json", "-").stdout)
        self.assertEqual([preset["name"] for preset in listed["presets"]], ["safe", "strong", "extreme", "transformer"])
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

    def test_one_float_is_no_floats(self):
        with temporary_folder() as folder:
            file = folder / "one.f32"
            file.write_bytes(floats(1))
            self.assertTrue(run("codec", str(file), "--spec", "bf16").stdout.startswith(f"1 float of {file}\n"))

    def test_what_is_no_spec_without_its_last_stage_has_no_speed_of_its_own(self):
        spec = "topk:0.1+qsgd:1,norm=l2+rans:ef=0"
        with temporary_folder() as folder:
            file = folder / "gradients.f32"
            file.write_bytes(floats(20_000))
            result = run("codec", str(file), "--spec", spec, "--json", "-")
            table = run("codec", str(file), "--spec", spec)
        self.assertEqual(result.returncode, 0, result.stderr)
        (row,) = json.loads(result.stdout)["rows"]
        self.assertEqual([stage["spec"] for stage in row["stages"]], ["topk:0.1", spec])
        self.assertEqual(table.returncode, 0, table.stderr)
        self.assertIn("up to rans:ef=0", table.stdout)

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

    def test_compare_goes_on_where_a_codec_has_no_code_for_the_values(self):
        with temporary_folder() as folder:
            file = folder / "gradients.f32"
            file.write_bytes(floats(1000) + struct.pack("<3f", float("nan"), float("inf"), -float("inf")))
            result = run("codec", str(file), "--compare", "--json", "-")
            self.assertEqual(result.returncode, 0, result.stderr)
            found = json.loads(result.stdout)
            rows = {row["spec"]: row for row in found["rows"]}
            self.assertEqual({"lossless", "bf16"} - rows.keys(), set())
            self.assertIn("int8", [each["spec"] for each in found["without_code"]])
            self.assertEqual((rows["lossless"]["relative_error"], rows["lossless"]["largest_error"]), (0, 0))
            self.assertAlmostEqual(rows["lossless"]["cosine"], 1, places=12)
            # Of the values that are finite; the others are what they were.
            self.assertTrue(0 < rows["bf16"]["relative_error"] < 2**-8)
            self.assertTrue(0.999 < rows["bf16"]["cosine"] < 1)
            table = run("codec", str(file), "--compare")
            self.assertEqual(table.returncode, 0, table.stderr)
            self.assertRegex(table.stdout, "int8 +no code: .*NaN")
            self.assertNotIn("nan ", table.stdout)

    def test_several_specs_go_on_where_one_has_no_code_and_are_all_looked_at_first(self):
        with temporary_folder() as folder:
            file = folder / "gradients.f32"
            file.write_bytes(floats(1000) + struct.pack("<f", float("nan")))
            words = [word for spec in ("lossless", "int8", "fp32") for word in ("--spec", spec)]
            result = run("codec", str(file), *words, "--json", "-")
            self.assertEqual(result.returncode, 0, result.stderr)
            found = json.loads(result.stdout)
            self.assertEqual([row["spec"] for row in found["rows"]], ["lossless", "fp32"])
            self.assertEqual([each["spec"] for each in found["without_code"]], ["int8"])
            neither = run("codec", str(file), "--spec", "int8", "--spec", "int4", "--json", "-")
            self.assert_sentence(neither, 1, "none of int8, int4 has a code", "'lossless'")
            self.assertEqual(len(json.loads(neither.stdout)["without_code"]), 2)
            wrong = run("codec", str(file), *words, "--spec", "int9")
            self.assertEqual((wrong.returncode, wrong.stdout), (2, ""))

    def test_what_is_decoded_as_nothing_points_nowhere(self):
        with temporary_folder() as folder:
            file = folder / "gradients.f32"
            for content, cosine in ((floats(100), 0), (bytes(400), 1)):
                file.write_bytes(content)
                result = run("codec", str(file), "--spec", "threshold:10", "--json", "-")
                row = json.loads(result.stdout)["rows"][0]
                self.assertEqual((row["cosine"], row["relative_error"]), (cosine, 1 - cosine))

    def test_numpy_files_of_three_sizes_are_read(self):
        with temporary_folder() as folder:
            for kind, form in (("<f2", "e"), ("<f4", "f"), ("<f8", "d")):
                file = folder / "values.npy"
                file.write_bytes(npy(struct.pack(f"<3{form}", 1, -2, 0.5), kind, 3))
                result = run("codec", str(file), "--spec", "fp32", "--json", "-")
                self.assertEqual(json.loads(result.stdout)["values"], 3, result.stderr)
                self.assertEqual(json.loads(result.stdout)["rows"][0]["relative_error"], 0)

    def test_what_warms_up_is_measured_behind_that(self):
        with temporary_folder() as folder:
            file = folder / "values.raw"
            file.write_bytes(struct.pack("<4096f", *((i * 37 % 101 - 50) / 7 for i in range(4096))))
            rows = [json.loads(run("codec", str(file), "--spec", spec, "--json", "-").stdout)["rows"][0]
                    for spec in ("dgc:0.01", "dgc:0.01,warmup=100")]  # fmt: skip
        self.assertEqual(rows[0]["bits_per_value"], rows[1]["bits_per_value"])

    def test_numpy_headers_are_read_as_python_writes_them(self):
        for header, count in (
            ('{"descr": "<f4", "fortran_order": False, "shape": (3, 4), }', 12),
            ("{'shape':(2,2),'fortran_order':True,'descr':'<f8'}", 4),
            ("{'descr': '<f2', 'fortran_order': False, 'shape': (), }", 1),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (5L, 2L), }", 10),
        ):
            with self.subTest(header=header), temporary_folder() as folder:
                file = folder / "values.npy"
                size = {"2": 2, "4": 4, "8": 8}[header[header.index("<f") + 2]]
                file.write_bytes(with_header(header, bytes(size * count)))
                result = run("codec", str(file), "--spec", "fp32", "--json", "-")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(json.loads(result.stdout)["values"], count)

    def test_numpy_files_that_are_not_what_their_header_says_are_refused(self):
        whole = "{'descr': '<f4', 'fortran_order': False, 'shape': (10, 3), }"
        for header, size, sentence in (
            (whole, 116, "its shape (10, 3) takes 120 bytes, 4 each, and 116 stand behind the header"),
            (whole, 124, "and 124 stand"),
            (whole, 0, "and 0 stand"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 3), }", 0, "has no element"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999), }", 4, "damaged"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3.5,), }", 4, "damaged"),
            ("{'descr': '<f4', 'fortran_order': False, }", 4, "damaged"),
            ("{'descr': ('<f4', (3,)), 'fortran_order': False, 'shape': (1,), }", 12, "('<f4', (3,)) and no little"),
            ("{'descr': '<f4(3,)', 'fortran_order': False, 'shape': (1,), }", 12, "'<f4(3,)' and no little-endian"),
            ("{'descr': [('descr', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4, "no little-endian"),
            ("{'descr': [('shape', '<f4'), ('fortran_order', '<f4')], 'fortran_order': False, 'shape': (1,), }", 8, "no little-endian"),
            ("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", 4, "no little-endian"),
        ):
            with self.subTest(header=header, size=size), temporary_folder() as folder:
                file = folder / "values.npy"
                file.write_bytes(with_header(header, bytes(size)))
                result = run("codec", str(file), "--spec", "fp32", limit=10)
                self.assertEqual(result.returncode, 1, result.stdout)
                self.assertIn(sentence, result.stderr)

    def test_an_empty_file_is_called_empty(self):
        with temporary_folder() as folder:
            (folder / "empty").write_bytes(b"")
            result = run("codec", str(folder / "empty"), "--spec", "int8")
            self.assertEqual(result.returncode, 1)
            self.assertIn("it is empty", result.stderr)

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
            large = folder / "large"  # which have codes, and coefficients that have none
            large.write_bytes(struct.pack("<f", 2.0**49) * 64)
            archive = folder / "values.npz"
            with zipfile.ZipFile(archive, "w") as file:
                file.writestr("arr_0.npy", npy(floats(4), "<f4", 4))
            for words, code, sentence in (
                ((str(good), "--spec", "int9"), 2, "did you mean 'int8'"),
                ((str(good), "--spec", "rans+int8"), 2, "write 'int8' before it"),
                ((str(good),), 2, "--compare"),
                ((), 2, "FILE"),
                (("list", "--spec", "int9"), 2, "measures none"),
                (("list", "--compare"), 2, "measures none"),
                ((str(good), "--spec", "TOPK:0.1+int8"), 2, "did you mean 'topk'"),
                ((str(archive), "--spec", "int8"), 1, "it is an archive"),
                ((str(odd), "--spec", "int8"), 1, "not a whole number of floats"),
                ((str(integers), "--spec", "int8"), 1, "astype"),
                ((str(broken), "--spec", "int8"), 1, "damaged"),
                ((str(bad), "--spec", "int8"), 1, "'lossless' codes those too"),
                ((str(large), "--spec", "dct+topk"), 1, "or a coefficient of them is"),
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
