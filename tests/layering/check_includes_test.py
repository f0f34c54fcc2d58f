#!/usr/bin/env python3
"""The include checker finds what is planted for it, and nothing else."""

import pathlib
import tempfile
import unittest

from check_includes import problems


class CheckIncludes(unittest.TestCase):
    def problems_with(self, files: dict[str, str]) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return problems(pathlib.Path(folder))

    def test_downward_and_level_includes_are_fine(self):
        self.assertEqual(
            self.problems_with(
                {
                    "src/engine/a.cc": '#include <vector>\n#include "engine/a.h"\n#include "ranvier/transport.h"\n',
                    "src/exchange/b.cc": '#include "ranvier/communicator.h"\n',
                    "cli/c.cc": '#include "bench/job.h"\n#include "engine/a.h"\n',
                    "integrations/torch/d.cc": '#include <torch/torch.h>\n',
                }
            ),
            [],
        )

    def test_an_upward_include_is_named(self):
        (problem,) = self.problems_with({"src/transport/a.cc": '#include "engine/engine.h"\n'})
        self.assertIn("src/transport/a.cc: transport includes engine/engine.h", problem)

    def test_an_upward_include_of_a_public_header_is_named(self):
        (problem,) = self.problems_with({"src/schedule/a.cc": '  #  include "ranvier/communicator.h"\n'})
        self.assertIn("above or beside it in engine", problem)

    def test_an_include_of_a_layer_beside_is_named(self):
        (problem,) = self.problems_with({"src/schedule/a.cc": '#include "kernel/grid.h"\n'})
        self.assertIn("beside it in kernel", problem)
        (problem,) = self.problems_with({"src/transport/a.cc": '#include "ranvier/codec.h"\n'})
        self.assertIn("beside it in codec", problem)

    def test_public_headers_keep_the_order_too(self):
        (problem,) = self.problems_with({"include/ranvier/transport.h": '#include "ranvier/exchange.h"\n'})
        self.assertIn("include/ranvier/transport.h", problem)

    def test_the_core_does_not_know_torch(self):
        self.assertEqual(len(self.problems_with({"src/engine/a.cc": "#include <c10/core/Device.h>\n"})), 1)
        self.assertEqual(len(self.problems_with({"src/engine/a.cc": "#include <Python.h>\n"})), 1)

    def test_what_is_compiled_again_for_another_torch_knows_only_what_is_public(self):
        (problem,) = self.problems_with({"integrations/torch/a.cc": '#include "base/a.h"\n#include "ranvier/types.h"\n'})
        self.assertIn("base/a.h is not in the package", problem)
        self.assertEqual(self.problems_with({"integrations/torch/a.cc": '#include "integrations/torch/b.h"\n'}), [])

    def test_what_belongs_to_no_layer_is_named(self):
        self.assertEqual(len(self.problems_with({"src/misc/a.cc": ""})), 1)
        self.assertEqual(len(self.problems_with({"src/engine/a.cc": '#include "ranvier/misc.h"\n'})), 1)


if __name__ == "__main__":
    unittest.main()
