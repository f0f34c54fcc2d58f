"""Ranks of one host that a launcher has started, and that meet in a folder of their own: whatever happens, it does not stay."""

import os
import pathlib
import signal
import subprocess

from program import ProgramTest, clean_environment, main, start, temporary_folder, wait_until

QUICK = ("-b", "4", "-e", "4", "--samples", "1", "--iters", "1")


def of_torchrun(rank: int) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29125"}  # fmt: skip


def of_srun(rank: int) -> dict[str, str]:
    return {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NTASKS": "2", "SLURM_NNODES": "1",
            "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "3"}  # fmt: skip


class Meeting(ProgramTest):
    def begin(self, place: dict[str, str], temporary: pathlib.Path, *words: str) -> subprocess.Popen:
        process = start("bench", *QUICK, *words, env=clean_environment(TMPDIR=str(temporary), **place))
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def end(self, process: subprocess.Popen) -> subprocess.CompletedProcess:
        out, err = process.communicate(timeout=60)  # the join timeout, unless a test says another
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def folder_in(self, temporary: pathlib.Path) -> pathlib.Path:
        self.assertTrue(wait_until(lambda: list(temporary.iterdir()), 30), "no folder to meet in")
        (folder,) = temporary.iterdir()
        return folder

    def test_ranks_that_disagree_leave_nothing(self):
        for place in (of_torchrun, of_srun):
            with self.subTest(place=place.__name__), temporary_folder() as temporary:
                ranks = [self.begin(place(rank), temporary, "--transport", name) for rank, name in enumerate(("tcp", "shm"))]
                for rank in ranks:
                    self.assert_sentence(self.end(rank), 1, "transport", "'tcp'", "'shm'")
                self.assertEqual(list(temporary.iterdir()), [])

    def test_who_does_not_come_to_a_folder_that_was_named_is_told_with_it(self):
        with temporary_folder() as temporary:
            place = {"RANVIER_RANK": "0", "RANVIER_WORLD": "2", "RANVIER_STORE": str(temporary / "misspelt" / "store")}
            alone = self.end(self.begin(place, temporary, "--join-timeout", "1"))
            self.assert_sentence(alone, 1, "rank 1 of a world of 2 did not come in time", f"they meet in {place['RANVIER_STORE']}")

    def test_a_place_for_temporary_files_that_is_none_is_named(self):
        with temporary_folder() as temporary:
            file = temporary / "file"
            file.touch()
            for place in (of_torchrun, of_srun):
                for name in (temporary / "missing", file):
                    with self.subTest(place=place.__name__, name=name.name):
                        self.assert_sentence(self.end(self.begin(place(0), name)), 1, str(name), "TMPDIR")

    def test_ranks_of_which_one_cannot_take_part_leave_nothing(self):
        for bad in range(2):
            with self.subTest(bad=bad), temporary_folder() as temporary:
                words = [("--tuning", "/nowhere/table") if rank == bad else () for rank in range(2)]
                ranks = [self.begin(of_torchrun(rank), temporary, *words[rank]) for rank in range(2)]
                for rank in ranks:
                    self.assert_sentence(self.end(rank), 1, "/nowhere/table")
                self.assertEqual(list(temporary.iterdir()), [])

    def test_what_is_wrong_with_one_ranks_algorithm_is_told_to_all(self):
        cases = {
            "torus:3x2": ((1, 2), "a grid of 3x2, which has 6 ranks, but the world has 2"),
            "hierarchical:1": ((1, 1), "rank 0 has algorithm 'auto' and rank 1 has 'hierarchical:1'"),
        }
        for algorithm, (codes, sentence) in cases.items():
            with self.subTest(algorithm=algorithm), temporary_folder() as temporary:
                words = ((), ("--algorithm", algorithm))
                ranks = [self.begin(of_torchrun(rank), temporary, *words[rank]) for rank in range(2)]
                for rank, code in zip(ranks, codes):
                    self.assert_sentence(self.end(rank), code, sentence)

    def test_words_of_one_rank_that_cannot_be_followed_are_told_to_all(self):
        cases = {
            ("--algorithm", "rinq"): "'rinq'; did you mean 'ring'?",
            ("--transport", "tpc"): "'tpc'; did you mean 'tcp'?",
            ("--dtype", "f23"): "'f23'",
            ("--ranks", "2"): "--ranks starts processes, and torchrun has started this one already",
            ("--transpotr", "tcp"): "--transpotr",
        }
        for words, sentence in cases.items():
            for bad in range(2):
                with self.subTest(words=words, bad=bad), temporary_folder() as temporary:
                    ranks = [self.begin(of_torchrun(rank), temporary, *(words if rank == bad else ())) for rank in range(2)]
                    for number, rank in enumerate(ranks):
                        told = (sentence,) if number == bad else (f"rank {bad} cannot take part: ", sentence)
                        self.assert_sentence(self.end(rank), 2 if number == bad else 1, *told)
                    self.assertEqual(list(temporary.iterdir()), [])

    def test_ranks_that_are_to_do_different_things_are_told_so(self):
        for words in (("--compare-transports",), ("--probe",)):
            with self.subTest(words=words), temporary_folder() as temporary:
                ranks = [self.begin(of_srun(rank), temporary, *(words if rank else ())) for rank in range(2)]
                for rank in ranks:
                    self.assert_sentence(self.end(rank), 1, "rank 0 has purpose 'ranvier bench' and rank 1 has", words[0])
                self.assertEqual(list(temporary.iterdir()), [])

    def test_what_rank_0_cannot_do_is_told_to_all(self):
        with temporary_folder() as temporary, temporary_folder() as elsewhere:
            words = ("--json", str(elsewhere / "absent" / "file"))
            first, second = [self.begin(of_srun(rank), temporary, *words) for rank in range(2)]
            self.assert_sentence(self.end(first), 1, f"cannot write {words[1]}", "--json")
            self.assertIn(f"rank 0 gave up: cannot write {words[1]}", self.end(second).stderr.splitlines()[0])

    def test_a_rank_that_waits_in_vain_leaves_nothing(self):
        for rank in range(2):
            with self.subTest(rank=rank), temporary_folder() as temporary:
                waiting = self.begin(of_torchrun(rank), temporary, "--join-timeout", "0.5")
                self.assert_sentence(self.end(waiting), 1, f"rank {1 - rank} of a world of 2 did not come")
                self.assertEqual(list(temporary.iterdir()), [])

    def test_the_last_to_leave_removes_what_the_dead_have_left(self):
        with temporary_folder() as temporary:
            killed = self.begin(of_srun(0), temporary)
            folder = self.folder_in(temporary)
            self.assertTrue(wait_until((folder / "rank%2F0").exists, 30))
            killed.send_signal(signal.SIGSTOP)  # or the two would meet
            waiting = self.begin(of_srun(1), temporary, "--join-timeout", "10")
            self.assertTrue(wait_until((folder / "rank%2F1").exists, 30))
            killed.send_signal(signal.SIGKILL)
            self.assertEqual(self.end(waiting).returncode, 1)
            self.assertEqual(list(temporary.iterdir()), [])

    def test_only_this_user_sees_what_is_in_it(self):
        with temporary_folder() as temporary:
            before = os.umask(0)  # which ranks inherit
            try:
                self.begin(of_srun(0), temporary)
            finally:
                os.umask(before)
            self.assertEqual(self.folder_in(temporary).stat().st_mode & 0o777, 0o700)

    def test_what_others_may_have_prepared_is_refused(self):
        def opened(folder: pathlib.Path) -> None:
            folder.mkdir()
            folder.chmod(0o777)

        def link(folder: pathlib.Path) -> None:
            folder.symlink_to(folder.parent)

        def file(folder: pathlib.Path) -> None:
            folder.write_text("")

        def foreign(folder: pathlib.Path) -> None:
            folder.mkdir(0o700)
            os.chown(folder, 12345, 12345)

        for prepare, *parts in (
            (opened, "others may", "mode 777"),
            (link, "Not a directory"),
            (file, "Not a directory"),
            *([(foreign, "belongs to user 12345")] if os.geteuid() == 0 else []),
        ):
            with self.subTest(prepare=prepare.__name__), temporary_folder() as temporary:
                folder = temporary / f"ranvier-{os.getuid()}-slurm-17-3"
                prepare(folder)
                result = self.end(self.begin(of_srun(0), temporary, "--join-timeout", "1"))
                self.assert_sentence(result, 1, f"cannot meet in {folder}: ", *parts, "TMPDIR")
                self.assertEqual(list(temporary.iterdir()), [folder])


if __name__ == "__main__":
    main()
