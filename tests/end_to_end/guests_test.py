"""Programs in other languages push to the parameter servers of a job and pull from them."""

import os
import pathlib
import shutil
import socket
import subprocess
import unittest

import program
from program import clean_environment, main
from training import TrainingTest

HERE = pathlib.Path(__file__).resolve().parent
PROTO = HERE.parents[1] / "proto"
PYTHON = os.environ.get("RANVIER_TEST_TORCH_PYTHON", "")


def reason_to_skip() -> str:
    if not (program.RANVIER.parent / "libranvier_grpc.so").exists():
        return "this build has no grpc"
    if not shutil.which("protoc"):
        return "there is no protoc"
    if subprocess.run([PYTHON or "python3", "-c", "import grpc, google.protobuf"], capture_output=True).returncode != 0:
        return "the Python of the tests has no grpcio and protobuf"
    return ""


class Guests(TrainingTest):
    def test_a_guest_pulls_and_pushes(self):
        if reason := reason_to_skip():
            self.skipTest(reason)
        definition = PROTO / "ranvier_parameter_server.proto"
        subprocess.run(["protoc", f"-I{PROTO}", f"--python_out={self.folder}", definition], check=True)
        with socket.socket() as keeper:  # so that meanwhile nobody else is given it who asks for any port
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as ranvier does
            keeper.bind(("127.0.0.1", 0))
            self.serve_a_guest_at(keeper.getsockname()[1])

    def serve_a_guest_at(self, port: int):
        # The workers themselves change hardly anything.
        words = self.words(
            "--workers", "2", "--sync", "async:staleness=0", "--lr", "0.000000001", "--epochs", "1000000", "--serve", str(port),
            "--insecure",
        )  # fmt: skip
        process = program.start(*words, env=self.environment(), stderr=subprocess.DEVNULL)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        guest = subprocess.run(
            [PYTHON or "python3", HERE / "guest.py", self.folder, f"127.0.0.1:{port}"],
            env=clean_environment(), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        self.assertEqual(guest.returncode, 0, guest.stderr)
        self.assertIn("parameters", guest.stdout)
        self.assertIsNone(process.poll(), "the job goes on")

    def test_what_cannot_be_served_is_refused(self):
        for words, problem in (
            (("--serve", "50051"), "has none"),
            (("--sync", "auto", "--serve", "50051"), "has none"),
            (("--sync", "async", "--serve", "0"), "is not a port"),
            # On loopback too: others may be on this host.
            (("--sync", "async", "--serve", "50051"), "say --insecure"),
        ):
            self.assert_sentence(program.run("train", "--workers", "2", *words), 2, problem)


if __name__ == "__main__":
    main()
